"""A bounded memory: the newest entries stay."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """The last `most` that were put."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: OrderedDict[object, V] = OrderedDict()

    def get(self, key: object) -> V | None:
        return self._items.get(key)

    def put(self, key: object, value: V) -> V:
        self._items[key] = value
        self._items.move_to_end(key)
        while len(self._items) > self._most:
            self._items.popitem(last=False)
        return value
