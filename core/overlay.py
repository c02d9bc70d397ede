"""A mapping with changes of its own over one that it leaves as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, ValuesView
from itertools import chain
from typing import Generic, TypeVar

T = TypeVar("T")


class Layer(Mapping[str, T], Generic[T]):
    """Costs what is changed, not what is below."""

    def __init__(self, below: Mapping[str, T], news: Mapping[str, T] | None = None) -> None:
        self._below = below
        self.news: dict[str, T] = dict(news or {})
        """What was put, in its order."""
        self.puts = 0
        """How often something was: as long as it stays, so does all else."""

    def __getitem__(self, key: str) -> T:
        news = self.news
        return news[key] if key in news else self._below[key]

    def __setitem__(self, key: str, value: T) -> None:
        self.news[key] = value
        self.puts += 1

    def __contains__(self, key: object) -> bool:
        return key in self.news or key in self._below

    def __iter__(self) -> Iterator[str]:
        below = self._below
        return chain(below, (key for key in self.news if key not in below))

    def __len__(self) -> int:
        return len(self._below) + sum(key not in self._below for key in self.news)

    def values(self) -> ValuesView[T]:
        return {**self._below, **self.news}.values()
