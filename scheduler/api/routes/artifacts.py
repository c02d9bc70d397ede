"""Stored outputs of jobs: a list in pages, and each file as a stream. A caller who may see the job
may see them, nobody else; a file is found by its name in the manifest, never by a path."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import quote

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from core.access import Right
from core.errors import BadInput, Fault, NotFound
from core.job import Job
from scheduler.api.http.endpoint import ResponseDoc, Routes
from scheduler.api.http.params import Param, Query
from scheduler.api.http.problems import BadRange
from scheduler.api.job_access import TENANT, USER, find_job, job_route
from scheduler.api.manifests import ManifestCache, StoredArtifacts
from scheduler.api.routes.jobs import PAGE_TOKEN, TAG
from scheduler.api.shapes import shaped
from stores.artifacts import PATH_CHARS_MAX, File

LIMIT, LIMIT_MAX = 1000, 10_000
CHUNK = 1024 * 1024
BINARY = "application/octet-stream"
ATTEMPT = Param(
    "attempt", "whole", "Which try; the newest that stored something if left out.", low=1
)
PATH = Param("path", "text", f"As the list has it (at most {PATH_CHARS_MAX} letters).")
PAGE_FILES = Param("limit", "whole", "Files per page.", LIMIT, 1, LIMIT_MAX)
HEADERS = {
    "Content-Length": "Its size.",
    "Zen-Sha256": "Its checksum, as the worker counted it.",
    "Zen-Attempt": "Whose output it is.",
}
FILE = ResponseDoc("", text="…", content_type=BINARY, headers=HEADERS)
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})\Z")


class ArtifactOut(Struct, frozen=True):
    """One stored file."""

    path: str
    size: int
    sha256: str


class SkippedOut(Struct, frozen=True):
    """Something in the output directory that was not stored."""

    path: str
    why: str


class ArtifactsOut(Struct, frozen=True):
    """A page of the files of one attempt, by path."""

    job_id: str
    attempt: int | None
    """None: nothing is stored."""
    total: int
    bytes: int
    artifacts: tuple[ArtifactOut, ...]
    skipped: tuple[SkippedOut, ...]
    next_page_token: str | None


class ArtifactRoutes(Routes):
    """Stored outputs."""

    tag = TAG

    @job_route(
        "GET /api/v1/jobs/{job_id}/artifacts",
        Right.JOBS_READ,
        "A page, by path.",
        params=(USER, TENANT, ATTEMPT, PAGE_FILES, PAGE_TOKEN),
    )
    async def list(self, request: Request, query: Query) -> ArtifactsOut:
        """The job's stored outputs."""
        job, stored = await self._find(request, query)
        if stored is None:
            return ArtifactsOut(job.spec.job_id, None, 0, 0, (), (), None)
        files, limit = stored.manifest.files, query.whole("limit")
        # The token is the last path of the page before: the list is sorted and does not change.
        after = query.text("page_token")
        start = bisect_right(files, after, key=_path_of) if after else 0
        page = files[start : start + limit]
        more = start + limit < len(files)
        return ArtifactsOut(
            job_id=job.spec.job_id,
            attempt=stored.path.attempt,
            total=len(files),
            bytes=stored.manifest.size,
            artifacts=tuple(shaped(ArtifactOut, file) for file in page),
            skipped=tuple(shaped(SkippedOut, entry) for entry in stored.manifest.skipped),
            next_page_token=page[-1].path if more else None,
        )

    @job_route(
        "GET /api/v1/jobs/{job_id}/artifacts/file",
        Right.JOBS_READ,
        {
            200: replace(FILE, doc="The file, as a stream."),
            206: replace(FILE, doc="The range that was asked for."),
        },
        params=(USER, TENANT, ATTEMPT, PATH),
        headers={"Range": "One range of bytes, to go on after a break."},
        errors=(404, 409, 416),
    )
    async def fetch(self, request: Request, query: Query) -> Response:
        """One stored output."""
        job, stored = await self._find(request, query)
        path = query.text("path")
        if path is None:
            raise BadInput([Fault("path", "nothing", "the path of a file, as the list has it")])
        file = _file(stored, path)
        if stored is None or file is None:
            raise NotFound(f"job {job.spec.job_id} has stored no file {path}")
        first, last = read_range(request.headers.get("range"), file.size)
        whole = (first, last) == (0, file.size - 1)
        headers = {
            "Content-Length": str(last - first + 1),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(_name(path), safe='')}",
            "Cache-Control": "private",
            "ETag": f'"{file.sha256}"',
            "Accept-Ranges": "bytes",
            "Zen-Sha256": file.sha256,
            "Zen-Attempt": str(stored.path.attempt),
        }
        if not whole and file.size:
            headers["Content-Range"] = f"bytes {first}-{last}/{file.size}"
        stream = self._stream(stored, file, first, last)
        status = 200 if whole or not file.size else 206
        return StreamingResponse(stream, status, headers, media_type=BINARY)

    async def _stream(
        self, stored: StoredArtifacts, file: File, first: int, last: int
    ) -> AsyncIterator[bytes]:
        """An error breaks the connection: the length that was told does not come."""
        store, key, at = self._shelf().store, stored.path.file(file.path), first
        while at <= last:
            data = await store.get(key, at, min(CHUNK, last + 1 - at))
            if not data:
                raise NotFound(f"{key} is shorter than its manifest says")
            yield data
            at += len(data)

    async def _find(self, request: Request, query: Query) -> tuple[Job, StoredArtifacts | None]:
        job = (await find_job(self._services.reads_of(request), request, query)).job
        attempt = query.whole_or_none("attempt")
        if attempt is None:
            return job, await self._shelf().newest(job)
        if attempt > job.attempt:
            expected = f"1 to {job.attempt}" if job.attempt else "none: it has not started yet"
            raise BadInput([Fault("attempt", str(attempt), expected)])
        return job, await self._shelf().of_attempt(job, attempt)

    def _shelf(self) -> ManifestCache:
        if self._services.shelf is None:
            raise NotFound("this deployment keeps no artifacts: no store is configured")
        return self._services.shelf


def read_range(header: str | None, size: int) -> tuple[int, int]:
    """(first, last) byte. What is no single range is as if nothing were said, as HTTP has it."""
    found = _RANGE.match(header) if header else None
    if found is None or not (found[1] or found[2]):
        return 0, size - 1
    if not found[1]:
        first, last = max(0, size - int(found[2])), size - 1
    else:
        first, last = int(found[1]), min(int(found[2] or size - 1), size - 1)
    if first > last or first >= size:
        raise BadRange(f"Range: got {header}, expected bytes of 0-{size - 1}", size)
    return first, last


def _file(stored: StoredArtifacts | None, path: str) -> File | None:
    if stored is None:
        return None
    files = stored.manifest.files
    at = bisect_left(files, path, key=_path_of)
    return files[at] if at < len(files) and files[at].path == path else None


def _path_of(file: File) -> str:
    return file.path


def _name(path: str) -> str:
    return path.rpartition("/")[2]
