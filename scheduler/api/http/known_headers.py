"""The headers of a request, found by one look-up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, overload

from starlette.datastructures import Headers
from starlette.types import Scope

Default = TypeVar("Default")


class KnownHeaders(Headers):
    """As Starlette's, which goes through all headers for each question: of several of one name the
    first counts."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(raw=scope["headers"])
        self._first: Mapping[bytes, bytes] = dict(reversed(self._list))

    @overload
    def get(self, key: str, /) -> str | None: ...
    @overload
    def get(self, key: str, /, default: str | Default) -> str | Default: ...
    def get(self, key: str, /, default: object = None) -> object:
        found = self._first.get(key.lower().encode("latin-1"))
        return default if found is None else found.decode("latin-1")

    def __getitem__(self, key: str) -> str:
        return self._first[key.lower().encode("latin-1")].decode("latin-1")

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.lower().encode("latin-1") in self._first
