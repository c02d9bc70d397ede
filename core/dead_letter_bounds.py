"""How many dead letters of one source are kept. The newest are: they tell what goes wrong now, and
a flood of garbage cannot keep later ones out. The price: a flood drops older ones that nobody has
looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from core.changes import DeadLetter

ROWS_MAX: Final = 5_000
BYTES_MAX: Final = 16 * 1024 * 1024
"""The newest is kept whatever its size: no message of the bus is larger than this."""


def size_of(letter: DeadLetter) -> int:
    """Bytes of what came."""
    words = sum(len(key) + len(value) for key, value in letter.attributes.items())
    return len(letter.body) + words


def beyond_bounds(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """The dead letters that are too many for their sources, oldest last."""
    by_source: defaultdict[str, list[DeadLetter]] = defaultdict(list)
    for letter in letters:
        by_source[letter.source].append(letter)
    return [letter for some in by_source.values() for letter in _too_many(some)]


def _too_many(letters: Sequence[DeadLetter]) -> Sequence[DeadLetter]:
    newest_first = sorted(letters, key=lambda it: (it.at, it.message_id), reverse=True)
    total = 0
    for rank, letter in enumerate(newest_first):
        total += size_of(letter)
        if rank >= ROWS_MAX or (total > BYTES_MAX and rank > 0):
            return newest_first[rank:]
    return ()
