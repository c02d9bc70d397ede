"""A store in a bucket. Objects cannot be appended to, so a log is a row of segments, each named
by the offset of its first byte: a reader finds any offset by name, without an index."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from threading import local
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote, urlsplit

from core.errors import Forbidden
from stores.base import LogChunk, LogPath, StoredObject, StoreUnavailable, check_range, job_key
from stores.gcs_upload import upload

if TYPE_CHECKING:
    import requests

GOOGLE = "https://storage.googleapis.com"
STORAGE_OVERRIDE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE"
"""gcloud's own variable for another endpoint."""
SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
SEGMENT_MAX = 1024 * 1024
FLUSH_FIRST_S = 0.2
FLUSH_MAX_S = 5.0
FLUSH_GROWTH = 1.02
"""Live at the beginning, few objects in a long run: about 17,000 segments in a day."""
CALL_TIMEOUT_S = 20.0
TRIES = 6
RETRY_FIRST_S = 0.5
PAGE = 1000
_OFFSET_DIGITS = 15
_AGAIN = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Segment:
    """One object: the bytes [start, start + size) of a log."""

    name: str
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


def endpoint(environ: Mapping[str, str]) -> tuple[str, bool]:
    """Where the bucket is, and whether it asks who calls: emulators do not."""
    emulator = environ.get("STORAGE_EMULATOR_HOST", "")
    if emulator:
        return (emulator if "://" in emulator else f"http://{emulator}"), False
    parts = urlsplit(environ.get(STORAGE_OVERRIDE, ""))
    return (f"{parts.scheme}://{parts.netloc}" if parts.netloc else GOOGLE), True


class GcsStore:
    """The JSON API, called from threads. Retries live here and nowhere above."""

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        retry_first_s: float = RETRY_FIRST_S,
        caller: _Caller | None = None,
    ) -> None:
        self._host, authorized = endpoint(os.environ)
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._retry_first_s = retry_first_s
        self._caller = caller or _Caller(_Sessions(authorized))
        self._anonymous = _Sessions(authorized=False)

    # --- logs ---------------------------------------------------------------------------

    @asynccontextmanager
    async def writer(self, path: LogPath) -> AsyncIterator[GcsWriter]:
        writer = GcsWriter(self, self._folder(path), await self.size(path))
        try:
            yield writer
        finally:
            await writer.close()

    async def read(self, path: LogPath, offset: int, limit: int) -> LogChunk:
        limit = check_range(offset, limit)
        data = b""
        for segment in await self._segments_from(self._folder(path), offset, limit):
            at = offset + len(data)
            if not segment.start <= at < segment.end or len(data) == limit:
                break
            last = min(segment.end, offset + limit) - 1
            data += await self._download(segment, at - segment.start, last - segment.start)
        return LogChunk(data, offset + len(data))

    async def size(self, path: LogPath) -> int:
        last: Segment | None = None
        async for page in self._pages(self._folder(path), 0):
            last = page[-1] if page else last
        return last.end if last else 0

    async def attempts(self, tenant_id: str, user_id: str, job_id: str) -> Sequence[int]:
        return await self.numbers(job_key("logs", tenant_id, user_id, job_id))

    # --- whole files --------------------------------------------------------------------

    async def save(self, key: str, source: BinaryIO) -> StoredObject:
        return await upload(self.call, self._uploads, f"{self._prefix}{key}", source)

    async def put(self, key: str, data: bytes) -> None:
        await self.save(key, io.BytesIO(data))

    async def get(self, key: str, offset: int, limit: int) -> bytes | None:
        last = offset + check_range(offset, limit) - 1
        answer = await self.call(
            "GET",
            self._object(self._prefix + key),
            {"alt": "media"},
            headers={"Range": f"bytes={offset}-{last}"},
            accept=(200, 206, 404, 416),
        )
        if answer.status_code == 404:
            return None
        return b"" if answer.status_code == 416 else answer.content

    async def delete(self, key: str) -> None:
        await self.call("DELETE", self._object(self._prefix + key), {}, accept=(200, 204, 404))

    async def numbers(self, key: str) -> Sequence[int]:
        folder = f"{self._prefix}{key}/"
        found: list[int] = []
        async for prefixes in self._list("prefixes", prefix=folder, delimiter="/"):
            names = [str(name).removeprefix(folder).rstrip("/") for name in prefixes]
            found += [int(name) for name in names if name.isascii() and name.isdigit()]
        return sorted(found)

    def directory(self, key: str) -> None:
        """A bucket is not a file system."""

    def scoped(self, token: Callable[[], str]) -> GcsStore:
        """Calls carry that token alone; connections are shared."""
        caller = _Caller(self._anonymous, token)
        prefix, first_s = self._prefix.removesuffix("/"), self._retry_first_s
        return GcsStore(self._bucket, prefix, retry_first_s=first_s, caller=caller)

    async def close(self) -> None:
        self._caller.sessions.close()
        self._anonymous.close()

    # --- segments -----------------------------------------------------------------------

    async def put_segment(self, folder: str, start: int, data: bytes) -> None:
        """Create one segment. Never over another: if it exists, an earlier try has succeeded."""
        query = {
            "uploadType": "media",
            "name": f"{folder}{start:0{_OFFSET_DIGITS}d}",
            "ifGenerationMatch": "0",
        }
        await self.call("POST", self._uploads, query, data=data, accept=(200, 412))

    def _object(self, name: str) -> str:
        return f"{self._host}/storage/v1/b/{self._bucket}/o/{quote(name, safe='')}"

    @property
    def _uploads(self) -> str:
        return f"{self._host}/upload/storage/v1/b/{self._bucket}/o"

    def _folder(self, path: LogPath) -> str:
        return f"{self._prefix}{path.key}/"

    async def _segments_from(self, folder: str, offset: int, limit: int) -> list[Segment]:
        """The segments that cover [offset, offset + limit), as far as they exist."""
        # A follower asks where a segment begins. Otherwise the one that covers the offset begins
        # at most SEGMENT_MAX before it.
        found = await self._covering(folder, offset, offset, limit)
        if not found or found[0].start != offset:
            found = await self._covering(folder, max(0, offset - SEGMENT_MAX), offset, limit)
        return found

    async def _covering(self, folder: str, begin: int, offset: int, limit: int) -> list[Segment]:
        found: list[Segment] = []
        async for page in self._pages(folder, begin):
            found += [segment for segment in page if segment.end > offset]
            if found and found[-1].end >= offset + limit:
                break
        return found

    async def _pages(self, folder: str, begin: int) -> AsyncIterator[list[Segment]]:
        start = f"{folder}{begin:0{_OFFSET_DIGITS}d}"
        async for items in self._list(
            "items", prefix=folder, startOffset=start, maxResults=str(PAGE)
        ):
            yield [
                Segment(item["name"], int(item["name"].removeprefix(folder)), int(item["size"]))
                for item in items
            ]

    async def _download(self, segment: Segment, first: int, last: int) -> bytes:
        url, headers = self._object(segment.name), {"Range": f"bytes={first}-{last}"}
        answer = await self.call("GET", url, {"alt": "media"}, headers=headers, accept=(200, 206))
        return answer.content

    async def _list(self, what: str, **query: str) -> AsyncIterator[list[Any]]:
        """Page by page."""
        url = f"{self._host}/storage/v1/b/{self._bucket}/o"
        while True:
            found = (await self.call("GET", url, query, accept=(200,))).json()
            rows = found.get(what, [])
            assert isinstance(rows, list), f"{what} is a list in the JSON API"
            yield rows
            if not (token := found.get("nextPageToken")):
                return
            query["pageToken"] = str(token)

    # --- calls --------------------------------------------------------------------------

    async def call(
        self,
        method: str,
        url: str,
        query: Mapping[str, str],
        *,
        accept: tuple[int, ...],
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """The answer; StoreUnavailable after some tries, Forbidden at once."""

        def once() -> requests.Response:
            return self._caller.sessions.one().request(
                method,
                url,
                params=dict(query),
                data=data,
                headers={**(headers or {}), **self._caller.headers()},
                timeout=CALL_TIMEOUT_S,
            )

        reason, pause_s = "", self._retry_first_s
        for left in reversed(range(TRIES)):
            answer, reason = await asyncio.to_thread(_attempt, once)
            if answer is not None and answer.status_code in accept:
                return answer
            status = answer.status_code if answer is not None else 503
            # A token that has ended is renewed from outside: until then the bucket is away.
            ended = status == 401 and self._caller.token is not None
            if status in (401, 403) and not ended:
                raise Forbidden(f"gs://{self._bucket}: {reason}")
            if not left or (status not in _AGAIN and not ended):
                break
            await asyncio.sleep(pause_s)
            pause_s *= 2
        raise StoreUnavailable(f"gs://{self._bucket}: {reason}")


class _Sessions:
    """One per thread: sessions are not safe to share."""

    def __init__(self, authorized: bool) -> None:
        self._authorized = authorized
        self._local = local()
        self._opened: list[requests.Session] = []

    def one(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = _open_session(self._authorized)
            self._opened.append(session)
        return session

    def close(self) -> None:
        for session in self._opened:
            session.close()


@dataclass(frozen=True, slots=True)
class _Caller:
    """As whom the bucket is used."""

    sessions: _Sessions
    token: Callable[[], str] | None = None
    """None: as the sessions say."""

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token()}"} if self.token is not None else {}


class GcsWriter:
    """Gathers bytes into segments: full ones at once, the rest after a moment."""

    def __init__(self, store: GcsStore, folder: str, start: int) -> None:
        self._store, self._folder, self._start = store, folder, start
        self._buffer = bytearray()
        self._lock = asyncio.Lock()
        self._flusher: asyncio.Task[None] | None = None
        self._pause_s = FLUSH_FIRST_S
        self._failure: StoreUnavailable | Forbidden | None = None

    async def write(self, data: bytes) -> None:
        """Waits for the store when a segment is full, so memory stays bounded."""
        self._raise_failure()
        async with self._lock:
            self._buffer += data
            while len(self._buffer) >= SEGMENT_MAX:
                await self._put(SEGMENT_MAX)
        if self._buffer and self._flusher is None:
            self._flusher = asyncio.create_task(self._flush_soon())

    async def close(self) -> None:
        """Stores the rest."""
        # With the lock in hand the flusher sleeps or waits, so cancelling it cuts no call short:
        # a segment that was stored behind our back would be taken for a longer one.
        async with self._lock:
            if self._flusher is not None:
                self._flusher.cancel()
            self._raise_failure()
            while self._buffer:
                await self._put(min(SEGMENT_MAX, len(self._buffer)))

    async def _flush_soon(self) -> None:
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(FLUSH_MAX_S, self._pause_s * FLUSH_GROWTH)
        async with self._lock:
            self._flusher = None
            if self._buffer and self._failure is None:
                with suppress(StoreUnavailable):  # the next write() raises it
                    await self._put(len(self._buffer))

    async def _put(self, size: int) -> None:
        data = bytes(self._buffer[:size])
        try:
            await self._store.put_segment(self._folder, self._start, data)
        except (StoreUnavailable, Forbidden) as error:
            self._failure = error
            self._raise_failure()
        # Only now: a cancelled call leaves the bytes here to be sent again.
        del self._buffer[:size]
        self._start += size

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise StoreUnavailable(str(self._failure)) from self._failure


def _attempt(once: Callable[[], requests.Response]) -> tuple[requests.Response | None, str]:
    import requests  # noqa: PLC0415  # see _open_session
    from google.auth import exceptions as auth_errors  # noqa: PLC0415

    try:
        answer = once()
    except (requests.RequestException, auth_errors.GoogleAuthError) as error:
        return None, f"{type(error).__name__}: {error}"
    words = "" if answer.ok else answer.content[:200].decode(errors="replace")
    return answer, f"HTTP {answer.status_code}: {words}"


def _open_session(authorized: bool) -> requests.Session:
    import requests  # noqa: PLC0415  # 20 MB that only users of gs:// pay

    if not authorized:
        return requests.Session()
    import google.auth  # noqa: PLC0415
    from google.auth.transport.requests import AuthorizedSession  # noqa: PLC0415

    credentials, _ = google.auth.default(scopes=[SCOPE])
    return AuthorizedSession(credentials)  # type: ignore[no-untyped-call]  # google-auth's
