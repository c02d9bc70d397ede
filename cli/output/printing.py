"""Printing: JSON for scripts, tables for people, one line for errors."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import typer

from cli.output.cells import Cell, drawn_lines, shows_colours

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from cli.output.tables import Fitted

Page = dict[str, Any]
Printable: TypeAlias = "str | Cell | Fitted"
# Wide enough that nothing is cut when the output goes to a file or another program.
PIPE_WIDTH = 250
REFRESH_S = 1.0
_C1 = re.compile(r"[\x7f-\x9f]")

STYLES = {
    "RUNNING": "green",
    "SUCCEEDED": "bold green",
    "FAILED": "bold red",
    "CANCELLED": "yellow",
    "STOPPING": "yellow",
    "PREEMPTING": "magenta",
    "ASSIGNED": "cyan",
    "STARTING": "cyan",
    "PROVISIONING": "blue",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command answers: JSON for scripts, or lines and tables for people."""

    json: object
    text: Iterable[Printable] = ()
    """Lines and tables; made only when they are printed, if it is a generator."""
    notes: Iterable[str] = ()
    """Lines on stderr, after the text."""
    code: int = 0
    """The exit code."""

    def print(self, as_json: bool) -> None:
        if as_json:
            emit(self.json)
        else:
            for part in self.text:
                put(part)
            for line in self.notes:
                note(line)
        if self.code:
            raise typer.Exit(self.code)


def not_all(page: Mapping[str, Any], shown: int) -> list[str]:
    """The note under a list that does not hold all there is."""
    total = total_words(page)
    return [f"{shown} of {total} shown; more with --limit"] if page["total"] > shown else []


def total_words(page: Mapping[str, Any]) -> str:
    """How many there are on all pages, as far as they were counted."""
    return f"{page['total']}" if page.get("total_exact", True) else f"more than {page['total']}"


def emit(value: object, *, line: bool = False) -> None:
    """JSON on stdout; `line` keeps it on one, for streams of values."""
    text = json.dumps(value, ensure_ascii=False, indent=None if line else 2)
    # JSON escapes the older control characters by itself; terminals also obey these.
    text = _C1.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """A line for people, on stdout."""
    sys.stdout.write(clean(text) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """A line about what is going on, on stderr: it must not mix with what a script reads."""
    sys.stderr.write(f"zen: {clean(text)}\n")
    sys.stderr.flush()


def clean(text: object) -> str:
    """One line, without control characters: what came over a wire must not move the cursor."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def put(part: Printable) -> None:
    """Lines and tables for people, on stdout. Lines are never cut: what is too long is wrapped by
    the terminal."""
    if isinstance(part, str):
        say(part)
        return
    terminal = sys.stdout.isatty()
    room = get_terminal_size().columns if terminal else pipe_width(os.environ)
    lines = [part] if isinstance(part, Cell) else part.lines(room)
    sys.stdout.write(drawn_lines(lines, shows_colours(terminal, os.environ)))
    sys.stdout.flush()


def console() -> Console:
    """For what is drawn again and again."""
    from rich.console import Console

    return Console(
        width=None if sys.stdout.isatty() else pipe_width(os.environ),
        soft_wrap=True,
        markup=False,
        highlight=False,
        emoji=False,
    )


def pipe_width(environment: Mapping[str, str]) -> int:
    """Of output that goes to a file or another program: COLUMNS if somebody set it."""
    told = environment.get("COLUMNS", "")
    return int(told) if told.isdecimal() and int(told) > 0 else PIPE_WIDTH


def fitted(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: str | Sequence[str] = "",
    drop: str | Sequence[str] = "",
    below: str = "",
    foot: Sequence[str] = (),
    height: int | None = None,
) -> Fitted:
    """A plain table, without frames, so that it can be cut and searched. `right` names the columns
    that hold numbers. When the terminal is narrow, the columns of `drop` go, `below` gets lines of
    its own, and after that each row becomes a block; no cell is ever cut. Name nothing in `drop`
    that adds up, that is an id or that is a message."""
    from cli.output.tables import Fitted

    cells = [[_cell(value) for value in row] for row in rows]
    numbers = frozenset(_words(right))
    shown_foot = [clean(line) for line in foot]
    return Fitted(headings, cells, numbers, _words(drop), below, shown_foot, height)


def _words(names: str | Sequence[str]) -> Sequence[str]:
    return names.split() if isinstance(names, str) else names


def heading(words: str) -> Cell:
    return Cell(clean(words), "bold")


def status_text(status: object) -> Cell:
    return Cell(clean(status), STYLES.get(str(status), ""))


def _cell(value: object) -> Cell:
    if isinstance(value, Cell):
        return value
    return Cell("-" if value in (None, "") else clean(value))


def watch(
    read: Callable[[], Page],
    draw: Callable[[Page, int], RenderableType],
    lines: Callable[[Page], Mapping[str, str]],
    as_json: bool,
) -> NoReturn:
    """Until Ctrl-C, each second: JSON whenever it changed; on a terminal the whole table, which
    gets the number of lines it may use; else a line for each thing that is new or changed."""
    from rich.live import Live

    screen = console()
    seen: Page = {}
    live = None
    if sys.stdout.isatty() and not as_json:
        live = Live(console=screen, auto_refresh=False, vertical_overflow="crop")
    with live or nullcontext():
        while True:
            now = read()
            if live is not None:
                # The last line stays free: a full screen would scroll with every refresh.
                live.update(draw(now, max(3, screen.size.height - 2)), refresh=True)
            elif as_json and now != seen:
                emit(now, line=True)
            elif not as_json:
                told = lines(seen) if seen else {}
                for key, line in lines(now).items():
                    if told.get(key) != line:
                        say(line)
            seen = now
            time.sleep(REFRESH_S)


def price(usd_per_hour: float) -> str:
    """What a VM costs by the hour."""
    return f"${usd_per_hour:.2f}"


def money(value: object) -> str:
    """Dollars, with cents that matter for short jobs too."""
    if not isinstance(value, int | float):
        return "-"
    return f"${value:.2f}" if value >= 1 else f"${value:.4f}"
