"""A table that fits the terminal without cutting a cell: columns without a value and columns that
are named droppable go, a message gets lines of its own, and what is still too wide is written as
one block for each row."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from cli.output.cells import Cell

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

GAP = 2
INDENT = 4
# Words are not set in fewer columns than this: the terminal wraps the line instead.
ROOM_MIN = 20
EMPTY = ("", "-")


@dataclass(frozen=True, slots=True)
class Fitted:
    """Cells are never cut: an id that lost its end cannot be copied, and numbers that add up must
    all be there. Only the columns of `drop` may be left out, the first one first."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    right: frozenset[str] = frozenset()
    drop: Sequence[str] = ()
    below: str = ""
    """The column of sentences: it gets lines of its own when it does not fit beside the others."""
    foot: Sequence[str] = ()
    """Lines under the table, of which none is lost when the height is limited."""
    height: int | None = None
    """The lines there are on a screen that is drawn again and again. Lines that are too long are
    then broken here, because such a screen cuts them."""

    def __post_init__(self) -> None:
        strangers = {*self.right, *self.drop, self.below} - {*self.headings, ""}
        assert not strangers, f"no such columns: {sorted(strangers)}"
        assert all(len(row) == len(self.headings) for row in self.rows), "a row with other columns"

    def lines(self, room: int) -> Iterator[Cell]:
        """On a terminal of so many columns."""
        head, blocks = self._layout(room)
        foot = [Cell(line) for words in self.foot for line in _wrapped(words, room, "")]
        if self.height is not None:
            yield from self._cut_to_height(head, blocks, foot, room)
            return
        yield from head
        for block in blocks:
            yield from block
        yield from foot

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """On a screen that is drawn again and again, which rich does."""
        from rich.text import Text

        for line in self.lines(options.max_width):
            yield Text.assemble(*line.parts, no_wrap=True, overflow="ignore")

    def _layout(self, room: int) -> tuple[list[Cell], list[list[Cell]]]:
        """The heading's lines, and the lines of each row."""
        widths = {name: self._width(name) for name in self.headings}
        columns = self._columns(widths, room)
        if columns is None:
            return [], [list(self._block(row, room)) for row in self.rows]
        heading = self._line([_heading(name) for name in columns], columns, widths)
        return [heading], [list(self._row(row, columns, widths, room)) for row in self.rows]

    def _columns(self, widths: dict[str, int], room: int) -> list[str] | None:
        """The columns that fit side by side; None if the ones that must stay are too many."""
        columns = list(self.headings)
        empty = (name for name in self.headings if self._is_empty(name))
        for name in (*empty, self.below, *self.drop):
            if _total(columns, widths) <= room:
                return columns
            columns = [kept for kept in columns if kept != name]
        return columns if _total(columns, widths) <= room else None

    def _cut_to_height(
        self, head: list[Cell], blocks: list[list[Cell]], foot: list[Cell], room: int
    ) -> list[Cell]:
        """Whole rows only; the last line then says how many are not shown."""
        assert self.height is not None
        blocks = [_folded(block, room) for block in blocks]
        left = self.height - len(head) - len(foot)
        if sum(map(len, blocks)) <= left:
            shown = blocks
        else:
            shown = list(islice(blocks, _that_fit(blocks, left - 1)))
        more = len(blocks) - len(shown)
        said = [Cell(f"… {more} more")] if more else []
        return [*_folded(head, room), *(line for block in shown for line in block), *said, *foot]

    def _row(
        self, row: Sequence[Cell], columns: Sequence[str], widths: dict[str, int], room: int
    ) -> Iterator[Cell]:
        cells = dict(zip(self.headings, row, strict=True))
        yield self._line([cells[name] for name in columns], columns, widths)
        if self.below and self.below not in columns and cells[self.below].plain not in EMPTY:
            for line in _wrapped(cells[self.below].plain, room, " " * INDENT):
                yield Cell(line)

    def _block(self, row: Sequence[Cell], room: int) -> Iterator[Cell]:
        """The first cell on a line, then every other one behind its heading."""
        first, *others = zip(self.headings, row, strict=True)
        yield Cell.joined(_heading(first[0]), " ", first[1])
        line = Cell(" " * INDENT)
        for name, cell in others:
            if cell.plain.strip() in EMPTY:
                continue
            item = Cell.joined(_heading(name), " ", cell)
            if line.width + item.width <= room:
                line = Cell.joined(line, item, " " * GAP)
                continue
            if line.plain.strip():
                yield line.stripped()
            line = Cell(" " * INDENT)
            if INDENT + item.width <= room or " " not in cell.plain:
                line = Cell.joined(line, item, " " * GAP)
                continue
            words, *more = _wrapped(f"{name} {cell.plain}", room, " " * INDENT)
            yield Cell.joined(" " * INDENT, _heading(name), words[INDENT + len(name) :])
            yield from (Cell(words) for words in more)
        if line.plain.strip():
            yield line.stripped()

    def _is_empty(self, name: str) -> bool:
        index = list(self.headings).index(name)
        return bool(self.rows) and all(row[index].plain in EMPTY for row in self.rows)

    def _width(self, name: str) -> int:
        index = list(self.headings).index(name)
        return max([len(name), *(row[index].width for row in self.rows)])

    def _line(self, cells: Sequence[Cell], columns: Sequence[str], widths: dict[str, int]) -> Cell:
        parts: list[Cell | str] = []
        for name, cell in zip(columns, cells, strict=True):
            space = " " * (widths[name] - cell.width)
            parts += [space, cell] if name in self.right else [cell, space]
            parts.append(" " * GAP)
        return Cell.joined(*parts).stripped()


def _total(columns: Sequence[str], widths: dict[str, int]) -> int:
    return sum(widths[name] + GAP for name in columns) - GAP


def _that_fit(blocks: Sequence[Sequence[Cell]], left: int) -> int:
    """How many of the first rows fit into so many lines; one at least."""
    used = 0
    for index, block in enumerate(blocks):
        used += len(block)
        if used > left:
            return max(1, index)
    return len(blocks)


def _heading(name: str) -> Cell:
    return Cell(name, "bold")


def _wrapped(words: str, room: int, indent: str) -> list[str]:
    """Lines of whole words: a word that is longer than a line, such as an id, stays whole."""
    return textwrap.wrap(
        words,
        max(ROOM_MIN, room),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _folded(lines: Iterable[Cell], room: int) -> list[Cell]:
    """No line longer than the screen: the rest goes on in the next one."""
    found: list[Cell] = []
    for line in lines:
        rest = line
        while rest.width > room > 0:
            # A character may be two columns wide: then the last one goes to the next line.
            first, beyond = rest.cut(room)
            if first.width > room:
                first, beyond = rest.cut(max(1, room // 2))
            rest = beyond
            found.append(first)
        found.append(rest)
    return found
