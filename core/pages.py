"""Page tokens: opaque to callers, bound to the question they came from."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from core.errors import BadInput, Fault

_DIGEST = 8


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page ended: the next one begins after this row."""

    at: datetime
    uid: str


def token_for(question: object, at: datetime, uid: str) -> str:
    """A token for what follows this row in the answer to this question."""
    body = json.dumps([at.isoformat(), uid]).encode()
    return base64.urlsafe_b64encode(_digest(question, body) + body).decode().rstrip("=")


def place_of(
    question: object, token: str | None, form: Callable[[str], object] = UUID
) -> Place | None:
    """BadInput for a token that is not ours, or that belongs to another question. `form` raises
    ValueError for what cannot be the id of a row."""
    if token is None:
        return None
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        digest, body = raw[:_DIGEST], raw[_DIGEST:]
        if digest == _digest(question, body):
            at, uid = json.loads(body)
            form(uid)
            return Place(datetime.fromisoformat(at), uid)
    except (binascii.Error, ValueError):
        pass  # falls through to the one answer for every kind of foreign token
    expected = "the next_page_token of a page of this very list, with the same filters"
    raise BadInput([Fault("page_token", repr(token[:40]), expected)])


def _digest(question: object, body: bytes) -> bytes:
    """Recognises, does not protect: a token gives access to nothing that the caller may not see."""
    return hashlib.blake2b(repr(question).encode() + body, digest_size=_DIGEST).digest()
