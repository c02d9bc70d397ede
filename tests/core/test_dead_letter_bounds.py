"""The newest dead letters of a source are kept, up to a number and a size."""

from __future__ import annotations

from core.changes import DeadLetter
from core.dead_letter_bounds import BYTES_MAX, ROWS_MAX, beyond_bounds
from tests.builders import at


def letter(number: int, size: int = 1, source: str = "heartbeats") -> DeadLetter:
    """One that came in that second."""
    return DeadLetter(f"m{number}", source, b"x" * size, {}, "garbage", at(number))


def test_few_are_kept() -> None:
    """All of them, up to the bound."""
    assert beyond_bounds([]) == []
    assert beyond_bounds([letter(n) for n in range(ROWS_MAX)]) == []


def test_oldest_go_first() -> None:
    """By number and by size, whatever order they come in; attributes count."""
    assert beyond_bounds([letter(n) for n in range(ROWS_MAX + 2)]) == [letter(1), letter(0)]
    half = BYTES_MAX // 2
    assert beyond_bounds([letter(3, half), letter(1, half), letter(2, half)]) == [letter(1, half)]
    wordy = DeadLetter("m0", "heartbeats", b"", {"k": "v" * BYTES_MAX}, "", at(0))
    assert beyond_bounds([letter(1), wordy]) == [wordy]


def test_newest_is_kept_whatever_its_size() -> None:
    """A message that alone is larger than the bound can still be read."""
    assert beyond_bounds([letter(2, BYTES_MAX + 1), letter(1)]) == [letter(1)]


def test_sources_are_apart() -> None:
    """A flood on one topic costs no letter of another."""
    flood = [letter(n + 1) for n in range(ROWS_MAX)]
    assert beyond_bounds([letter(0, source="submit"), *flood]) == []
