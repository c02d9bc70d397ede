"""A table that fits the terminal without cutting a cell: columns without a value and columns that
are named droppable go, a message gets lines of its own, and what is still too wide is written as
one block for each row."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

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
    rows: Sequence[Sequence[Text]]
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

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        room = options.max_width
        head, blocks = self._layout(room)
        foot = [Text(line) for words in self.foot for line in _wrapped(words, room, "")]
        if self.height is None:
            lines: Iterable[Text] = (*head, *(line for block in blocks for line in block), *foot)
        else:
            lines = self._cut_to_height(head, blocks, foot, room)
        for line in lines:
            line.no_wrap, line.overflow = True, "ignore"
            yield line

    def _layout(self, room: int) -> tuple[list[Text], list[list[Text]]]:
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
        self, head: list[Text], blocks: list[list[Text]], foot: list[Text], room: int
    ) -> list[Text]:
        """Whole rows only; the last line then says how many are not shown."""
        from rich.text import Text

        assert self.height is not None
        blocks = [_folded(block, room) for block in blocks]
        left = self.height - len(head) - len(foot)
        if sum(map(len, blocks)) <= left:
            shown = blocks
        else:
            shown = list(islice(blocks, _that_fit(blocks, left - 1)))
        more = len(blocks) - len(shown)
        said = [Text(f"… {more} more")] if more else []
        return [*_folded(head, room), *(line for block in shown for line in block), *said, *foot]

    def _row(
        self, row: Sequence[Text], columns: Sequence[str], widths: dict[str, int], room: int
    ) -> Iterator[Text]:
        from rich.text import Text

        cells = dict(zip(self.headings, row, strict=True))
        yield self._line([cells[name] for name in columns], columns, widths)
        if self.below and self.below not in columns and cells[self.below].plain not in EMPTY:
            for line in _wrapped(cells[self.below].plain, room, " " * INDENT):
                yield Text(line)

    def _block(self, row: Sequence[Text], room: int) -> Iterator[Text]:
        """The first cell on a line, then every other one behind its heading."""
        from rich.text import Text

        first, *others = zip(self.headings, row, strict=True)
        yield Text.assemble(_heading(first[0]), " ", first[1])
        line = Text(" " * INDENT)
        for name, cell in others:
            if cell.plain.strip() in EMPTY:
                continue
            item = Text.assemble(_heading(name), " ", cell)
            if line.cell_len + item.cell_len <= room:
                line = Text.assemble(line, item, " " * GAP)
                continue
            if line.plain.strip():
                yield _trimmed(line)
            line = Text(" " * INDENT)
            if INDENT + item.cell_len <= room or " " not in cell.plain:
                line = Text.assemble(line, item, " " * GAP)
                continue
            words, *more = _wrapped(f"{name} {cell.plain}", room, " " * INDENT)
            yield Text.assemble(" " * INDENT, _heading(name), words[INDENT + len(name) :])
            yield from (Text(words) for words in more)
        if line.plain.strip():
            yield _trimmed(line)

    def _is_empty(self, name: str) -> bool:
        index = list(self.headings).index(name)
        return bool(self.rows) and all(row[index].plain in EMPTY for row in self.rows)

    def _width(self, name: str) -> int:
        index = list(self.headings).index(name)
        return max([len(name), *(row[index].cell_len for row in self.rows)])

    def _line(self, cells: Sequence[Text], columns: Sequence[str], widths: dict[str, int]) -> Text:
        from rich.text import Text

        parts: list[Text | str] = []
        for name, cell in zip(columns, cells, strict=True):
            space = " " * (widths[name] - cell.cell_len)
            parts += [space, cell] if name in self.right else [cell, space]
            parts.append(" " * GAP)
        return _trimmed(Text.assemble(*parts))


def _total(columns: Sequence[str], widths: dict[str, int]) -> int:
    return sum(widths[name] + GAP for name in columns) - GAP


def _that_fit(blocks: Sequence[Sequence[Text]], left: int) -> int:
    """How many of the first rows fit into so many lines; one at least."""
    used = 0
    for index, block in enumerate(blocks):
        used += len(block)
        if used > left:
            return max(1, index)
    return len(blocks)


def _heading(name: str) -> Text:
    from rich.text import Text

    return Text(name, style="bold")


def _trimmed(line: Text) -> Text:
    line.rstrip()
    return line


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


def _folded(lines: Iterable[Text], room: int) -> list[Text]:
    """No line longer than the screen: the rest goes on in the next one."""
    found: list[Text] = []
    for line in lines:
        rest = line
        while rest.cell_len > room > 0:
            # A character may be two columns wide: then the last one goes to the next line.
            cut = room if rest[:room].cell_len <= room else max(1, room // 2)
            first, rest = rest.divide([cut])
            found.append(first)
        found.append(rest)
    return found
