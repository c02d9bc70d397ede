"""A table that fits the terminal: it drops what can be missed, and puts the long words below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

GAP = 2
INDENT = "    "


@dataclass(frozen=True, slots=True)
class Fitted:
    """Cells are never cut: an id that lost its end cannot be copied. `drop` names the columns
    that go first when it is too narrow; `below` is then written on a line of its own."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Text]]
    right: frozenset[str] = frozenset()
    drop: Sequence[str] = ()
    below: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = [name for name in self.headings if name != self.below]
        widths = {name: self._width(name) for name in self.headings}
        room = options.max_width
        if self.below and self._total([*columns, self.below], widths) <= room:
            columns.append(self.below)
        for name in self.drop:
            if self._total(columns, widths) <= room:
                break
            columns = [kept for kept in columns if kept != name]
        yield self._line([self._heading(name) for name in columns], columns, widths)
        for row in self.rows:
            cells = dict(zip(self.headings, row, strict=False))
            yield self._line([cells.get(name) for name in columns], columns, widths)
            words = cells.get(self.below)
            if self.below not in columns and words is not None and words.plain not in ("", "-"):
                yield from self._wrapped(words, console, room)

    def _width(self, name: str) -> int:
        index = list(self.headings).index(name)
        cells = (row[index].cell_len for row in self.rows if index < len(row) > 1)
        return max([len(name), *cells])

    @staticmethod
    def _total(columns: Sequence[str], widths: dict[str, int]) -> int:
        return sum(widths[name] + GAP for name in columns) - GAP

    @staticmethod
    def _heading(name: str) -> Text:
        from rich.text import Text

        return Text(name, style="bold")

    def _line(
        self, cells: Sequence[Text | None], columns: Sequence[str], widths: dict[str, int]
    ) -> Text:
        from rich.text import Text

        line = Text(no_wrap=True, overflow="ignore")
        for name, cell in zip(columns, cells, strict=True):
            text = cell if cell is not None else Text("")
            space = " " * (widths[name] - text.cell_len)
            parts = (space, text) if name in self.right else (text, space)
            line = Text.assemble(line, *parts, " " * GAP)
        line.rstrip()
        line.no_wrap, line.overflow = True, "ignore"
        return line

    @staticmethod
    def _wrapped(words: Text, console: Console, room: int) -> Iterable[Text]:
        from rich.text import Text

        for line in words.wrap(console, max(20, room - len(INDENT))):
            yield Text.assemble(INDENT, line)
