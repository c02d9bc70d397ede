"""Files into a bucket: small ones in one call, large ones in pieces that can be sent again."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, BinaryIO

from stores.base import StoredObject, StoreUnavailable

if TYPE_CHECKING:
    import requests

PIECE = 8 * 1024 * 1024
"""A multiple of 256 KiB, as the protocol wants it; also the size up to which one call does."""


Call = Callable[..., Awaitable["requests.Response"]]
"""One request with the store's own retries: GcsStore.call."""


async def upload(call: Call, url: str, name: str, source: BinaryIO) -> StoredObject:
    """The bucket's own checksum has to agree before it counts."""
    source.seek(0)
    sums = _Sums()
    first = await asyncio.to_thread(source.read, PIECE)
    sums.add(first)
    if len(first) < PIECE:
        query = {"uploadType": "media", "name": name}
        answer = await call("POST", url, query, data=first, accept=(200,))
    else:
        answer = await _in_pieces(call, url, name, source, first, sums)
    _compare(answer, sums, name)
    return StoredObject(sums.size, sums.sha256.hexdigest())


class _Sums:
    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()
        self.md5 = hashlib.md5(usedforsecurity=False)
        self.size = 0

    def add(self, data: bytes) -> None:
        self.sha256.update(data)
        self.md5.update(data)
        self.size += len(data)


async def _in_pieces(
    call: Call, url: str, name: str, source: BinaryIO, piece: bytes, sums: _Sums
) -> requests.Response:
    query = {"uploadType": "resumable", "name": name}
    begun = await call("POST", url, query, data=b"", accept=(200, 201))
    session = begun.headers.get("Location", "")
    if not session:
        raise StoreUnavailable(f"{name}: the bucket began an upload without an address for it")
    start = 0
    while True:
        ahead = await asyncio.to_thread(source.read, PIECE)
        sums.add(ahead)
        end = start + len(piece)
        total = str(end) if not ahead else "*"
        answer = await _send(call, session, piece, start, total)
        if not ahead:
            return answer
        start, piece = end, ahead


async def _send(
    call: Call, session: str, piece: bytes, start: int, total: str
) -> requests.Response:
    """One piece, wholly: the bucket may take less of it and says how much. Bytes that it has are
    ignored by it, so a piece whose answer was lost is sent again."""
    end = start + len(piece)
    at = start
    while True:
        headers = {"Content-Range": f"bytes {at}-{end - 1}/{total}"}
        answer = await call(
            "PUT", session, {}, data=piece[at - start :], headers=headers, accept=(200, 201, 308)
        )
        if answer.status_code != 308:
            return answer
        has = _has(answer)
        if has >= end and total == "*":
            return answer
        if has <= at:
            raise StoreUnavailable(f"the bucket took nothing of bytes {at}-{end - 1}")
        at = has


def _has(answer: requests.Response) -> int:
    """How many bytes it has, from the beginning."""
    last = answer.headers.get("Range", "").rpartition("-")[2]
    return int(last) + 1 if last.isascii() and last.isdigit() else 0


def _compare(answer: requests.Response, sums: _Sums, name: str) -> None:
    said = answer.json()
    wanted = base64.b64encode(sums.md5.digest()).decode()
    if not isinstance(said, dict) or said.get("md5Hash", wanted) != wanted:
        raise StoreUnavailable(f"{name}: the bucket holds other bytes than were sent")
    if int(said.get("size", sums.size)) != sums.size:
        raise StoreUnavailable(f"{name}: the bucket holds {said['size']} of {sums.size} bytes")
