"""Copies of large records, for places that make thousands of them."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Changer(Generic[T]):
    """dataclasses.replace() for one frozen class with slots and without __post_init__, at a third
    of its price: slots are copied, and no __init__ with dozens of arguments is called."""

    def __init__(self, kind: type[T]) -> None:
        assert not hasattr(kind, "__post_init__"), f"{kind.__name__} checks itself when it is made"
        names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        self._kind = kind
        self._values = attrgetter(*names)
        self._setters = tuple(getattr(kind, name).__set__ for name in names)
        self._places = {name: place for place, name in enumerate(names)}

    def __call__(self, record: T, **changes: Any) -> T:
        """The record with these fields changed; KeyError for one that it does not have."""
        values = [*self._values(record)]
        for name, value in changes.items():
            values[self._places[name]] = value
        made = object.__new__(self._kind)
        for set_value, value in zip(self._setters, values, strict=True):
            set_value(made, value)
        return made
