"""Pages of long lists, newest first. Their tokens are opaque to callers and bound to the question
that they came from."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

from core.errors import BadInput, Fault

PAGE_MAX = 1000
COUNTED_MAX = 10_000
"""Where no count is kept, no further than this is counted for a total."""
_DIGEST = 8
Item = TypeVar("Item")
Shown = TypeVar("Shown")


@dataclass(frozen=True, slots=True, order=True)
class PageCursor:
    """Where a page ended: the next one begins after this row."""

    at: datetime
    uid: str


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some rows of a list, newest first."""

    rows: tuple[Item, ...]
    total: int
    next_token: str | None
    total_exact: bool = True
    """False: there are more than `total`, and nobody counted them."""

    def shown_as(self, show: Callable[[Item], Shown]) -> Page[Shown]:
        return Page(tuple(map(show, self.rows)), self.total, self.next_token, self.total_exact)

    def bounded(self) -> Page[Item]:
        """Of a total that was counted up to one more than COUNTED_MAX."""
        most = COUNTED_MAX
        return replace(self, total=most, total_exact=False) if self.total > most else self


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which page of the answer to a question."""

    question: object
    size: int
    after: PageCursor | None

    @staticmethod
    def of(
        question: object, size: int, token: str | None, form: Callable[[str], object] = UUID
    ) -> PageRequest:
        """BadInput for a token that is not ours, see `place_of`."""
        return PageRequest(question, bounded(size), place_of(question, token, form))

    def page(
        self, rows: Sequence[Item], total: int, place: Callable[[Item], PageCursor]
    ) -> Page[Item]:
        """Of rows behind the place, in order; one more than fits says that there is more."""
        shown = tuple(rows[: self.size])
        more = len(rows) > len(shown)
        return Page(shown, total, token_for(self.question, place(shown[-1])) if more else None)


def bounded(size: int) -> int:
    return max(1, min(size, PAGE_MAX))


def token_for(question: object, place: PageCursor) -> str:
    """A token for what follows this place in the answer to this question."""
    body = json.dumps([place.at.isoformat(), place.uid]).encode()
    return base64.urlsafe_b64encode(_digest(question, body) + body).decode().rstrip("=")


def place_of(
    question: object, token: str | None, form: Callable[[str], object] = UUID
) -> PageCursor | None:
    """BadInput for a token that is not ours, or that belongs to another question. `form` raises
    ValueError for what cannot be the id of a row."""
    if token is None:
        return None
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        digest, body = raw[:_DIGEST], raw[_DIGEST:]
        if digest == _digest(question, body):
            at, uid = map(str, json.loads(body))
            form(uid)
            return PageCursor(datetime.fromisoformat(at), uid)
    except (binascii.Error, TypeError, ValueError):
        pass  # falls through to the one answer for every kind of foreign token
    expected = "the next_page_token of a page of this very list, with the same filters"
    raise BadInput([Fault("page_token", repr(token[:40]), expected)])


def _digest(question: object, body: bytes) -> bytes:
    """Recognises, does not protect: a token gives access to nothing that the caller may not see."""
    return hashlib.blake2b(repr(question).encode() + body, digest_size=_DIGEST).digest()
