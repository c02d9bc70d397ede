"""Text with colours, as tables hold it: its width on a terminal, and the bytes that draw it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_CODES = {
    "bold": "1",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
Part = tuple[str, str]
"""Words and their style: words of _CODES, or nothing."""


class Cell:
    """A piece of one line; each part has its style."""

    __slots__ = ("parts",)

    def __init__(self, text: str = "", style: str = "") -> None:
        self.parts: list[Part] = [(text, style)] if text else []

    @classmethod
    def joined(cls, *pieces: Cell | str) -> Cell:
        made = cls()
        for piece in pieces:
            made.parts += piece.parts if isinstance(piece, Cell) else [(piece, "")]
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(tuple(self.parts))

    @property
    def plain(self) -> str:
        return "".join(text for text, _ in self.parts)

    @property
    def width(self) -> int:
        """Columns on a terminal."""
        return width_of(self.plain)

    def stripped(self) -> Cell:
        """Without the blanks at its end."""
        keep = len(self.plain.rstrip())
        return self.cut(keep)[0]

    def cut(self, at: int) -> tuple[Cell, Cell]:
        """The first `at` characters, and the rest."""
        first, rest = Cell(), Cell()
        for text, style in self.parts:
            here, beyond = text[: max(0, at)], text[max(0, at) :]
            at -= len(text)
            first.parts += [(here, style)] if here else []
            rest.parts += [(beyond, style)] if beyond else []
        return first, rest

    def drawn(self, colours: bool) -> str:
        """For a terminal; without colours the plain words."""
        if not colours:
            return self.plain
        return "".join(_drawn(text, style) for text, style in self.parts)


def _drawn(text: str, style: str) -> str:
    codes = ";".join(_CODES[word] for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text


def width_of(text: str) -> int:
    """Columns on a terminal: letters of Asian scripts and emoji take two, accents none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text
    )


def shows_colours(terminal: bool, environment: Mapping[str, str]) -> bool:
    """Whether the reader of our output can see them and wants to."""
    if environment.get("NO_COLOR") or environment.get("TERM", "") in ("dumb", "unknown"):
        return False
    return terminal or bool(environment.get("FORCE_COLOR"))


def drawn_lines(lines: Iterable[Cell], colours: bool) -> str:
    return "".join(f"{line.drawn(colours)}\n" for line in lines)
