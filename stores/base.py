"""What a store guarantees, and the one place that turns ids into paths."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar, Protocol
from urllib.parse import quote, unquote, urlsplit

from core.errors import BadInput, Fault, ZenError

READ_MAX = 8 * 1024 * 1024
"""The most that one read returns, whatever the caller asks for."""
_PART_BYTES_MAX = 200


class StoreUnavailable(ZenError):
    """The store does not answer: try again later."""

    code = "store_unavailable"


class OversizedObject(ZenError):
    """The store holds something else under that name; a human has to look."""

    code = "oversized_object"


@dataclass(frozen=True, slots=True)
class AttemptPath:
    """Where one kind of files of one attempt lies."""

    tenant_id: str
    user_id: str
    job_id: str
    attempt: int
    kind: ClassVar[str]

    @property
    def key(self) -> str:
        """Its directory below the root of the store."""
        return f"{job_key(self.kind, self.tenant_id, self.user_id, self.job_id)}/{self.attempt}"


class LogPath(AttemptPath):
    """The output of one attempt."""

    kind = "logs"


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Some bytes, and where to read on. No bytes: nothing has been written beyond."""

    data: bytes
    next_offset: int


class LogWriter(Protocol):
    """Appends to one log. Bounded memory: write() waits when the store is slow."""

    async def write(self, data: bytes) -> None:
        """StoreUnavailable if the store has refused for too long; the bytes are then lost."""
        ...


class LogStore(Protocol):
    """Logs of attempts."""

    def writer(self, path: LogPath) -> AbstractAsyncContextManager[LogWriter]:
        """One writer at a time per path. What was written is stored at the latest on leaving;
        readers see it a moment after it was written. An existing log is continued."""
        ...

    async def read(self, path: LogPath, offset: int, limit: int) -> LogChunk:
        """Up to `limit` bytes (never more than READ_MAX) from `offset`. A log that does not
        exist, or not yet, reads as empty."""
        ...

    async def size(self, path: LogPath) -> int:
        """How many bytes are stored; 0 if there is no log."""
        ...

    async def attempts(self, tenant_id: str, user_id: str, job_id: str) -> Sequence[int]:
        """Attempts that have a log, in order."""
        ...


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What has been stored."""

    size: int
    sha256: str


class ObjectStore(Protocol):
    """Whole files by key. A key has one writer; a repeat by it replaces what was there."""

    async def save(self, key: str, source: BinaryIO) -> StoredObject:
        """All of the file, from its beginning. When it returns the bytes are safe: on the disk, or
        confirmed by the bucket. StoreUnavailable or Forbidden if not; an OSError of the source
        stays what it is. Bounded memory, whatever its size."""
        ...

    async def put(self, key: str, data: bytes) -> None:
        """The same for bytes in memory."""
        ...

    async def get(self, key: str, offset: int, limit: int) -> bytes | None:
        """Up to `limit` bytes (never more than READ_MAX) from `offset`, none at the end; None if
        there is nothing under that key."""
        ...

    async def delete(self, key: str) -> None:
        """Nothing is under that key afterwards. Nothing happens if there was nothing."""
        ...

    async def numbers(self, key: str) -> Sequence[int]:
        """The numbers among the names directly below the key, in order."""
        ...


class FileStore(LogStore, ObjectStore, Protocol):
    """Everything, and perhaps directories on a file system."""

    def directory(self, key: str) -> Path | None:
        """A durable local directory for that key; None if the store is not a file system."""
        ...

    def scoped(self, token: Callable[[], str]) -> FileStore:
        """The same store, used with the token that the call gives, and with no other account. A
        file system knows no tokens: it stays as it is. Closed with this one."""
        ...

    async def close(self) -> None: ...


def open_store(url: str) -> FileStore:
    """file:///absolute/path or gs://bucket/prefix."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        from stores.local import LocalStore  # noqa: PLC0415  # a VM loads only the store it uses

        return LocalStore(Path(unquote(parts.path)))
    if parts.scheme == "gs" and parts.netloc:
        from stores.gcs import GcsStore  # noqa: PLC0415  # brings google.auth and requests

        return GcsStore(parts.netloc, parts.path.strip("/"))
    raise BadInput([Fault("store", repr(url), "file:///absolute/path or gs://bucket/prefix")])


def job_key(kind: str, tenant_id: str, user_id: str, job_id: str) -> str:
    """The directory of one job for one kind of files: logs, checkpoints, artifacts."""
    return "/".join((kind, quoted(tenant_id), quoted(user_id), quoted(job_id)))


def quoted(part: str) -> str:
    """An id as one harmless path part; different ids stay different."""
    if part in ("", ".", ".."):
        return "%" + "".join(f"{ord(dot):02X}" for dot in part)
    text = quote(part, safe="", errors="surrogatepass")
    if len(text) <= _PART_BYTES_MAX:
        return text
    # File systems allow 255 bytes. "%~" cannot come out of quote(), so no other id lands here.
    digest = hashlib.sha256(part.encode(errors="surrogatepass")).hexdigest()
    return f"{text[:100]}%~{digest}"


async def read_document(store: ObjectStore, key: str, bytes_max: int) -> bytes | None:
    """A whole object; None if there is none. OversizedObject if it is larger than it may be."""
    data = b""
    while chunk := await store.get(key, len(data), bytes_max):
        data += chunk
        if len(data) > bytes_max:
            raise OversizedObject(f"{key} has more than {bytes_max} bytes")
    return None if chunk is None else data


def check_range(offset: int, limit: int) -> int:
    """The limit to use, or BadInput."""
    faults = []
    if offset < 0:
        faults.append(Fault("offset", str(offset), "0 or more"))
    if limit <= 0:
        faults.append(Fault("limit", str(limit), "1 or more"))
    if faults:
        raise BadInput(faults)
    return min(limit, READ_MAX)
