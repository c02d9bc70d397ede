"""The job's own output, in pieces, with a long poll for followers."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from core.access import Right
from core.errors import BadInput, Fault, NotFound
from core.job import Job
from scheduler.api.http.endpoint import ResponseDoc, Routes
from scheduler.api.http.params import Param, Query
from scheduler.api.job_access import TENANT, USER, find_job, job_route
from scheduler.api.routes.jobs import TAG
from stores.base import LogChunk, LogPath, LogStore

LIMIT = 64 * 1024
LIMIT_MAX = 1024 * 1024
WAIT_MAX_S = 20
_PAUSE_MAX_S = 1.0
PARAMS = (
    USER,
    TENANT,
    Param("attempt", "whole", "Which try; the newest if left out.", low=1),
    Param("offset", "whole", "First byte.", 0, 0, 2**53),
    Param("limit", "whole", "Most bytes.", LIMIT, 1, LIMIT_MAX),
    Param("wait_s", "number", "Wait this long for bytes, or for the job to move on.", 0, 0, 20),
)
HEADERS = {
    "Zen-Attempt": "The attempt this is from; 0 if the job has not started yet.",
    "Zen-Offset": "Of the first byte.",
    "Zen-Next-Offset": "Where to read on.",
    "Zen-Done": "true: the attempt has ended and this was the last of it.",
    "Zen-Final": "true: the job has ended.",
}


class LogRoutes(Routes):
    """Logs."""

    tag = TAG

    @job_route(
        "GET /api/v1/jobs/{job_id}/logs",
        Right.JOBS_READ,
        ResponseDoc(
            "Raw bytes.",
            text="epoch 1 loss 0.42\n",
            content_type="text/plain; charset=utf-8",
            headers=HEADERS,
        ),
        params=PARAMS,
    )
    async def read(self, request: Request, query: Query) -> Response:
        """The job's own output."""
        logs = self._services.logs
        if logs is None:
            raise NotFound("this deployment keeps no logs: no log store is configured")
        clock = self._services.clock
        until = clock.monotonic() + query.number("wait_s")
        pause_s = self._services.log_poll_s
        job = await self._job(request, query)
        attempt = _attempt(job, query.whole_or_none("attempt"))
        first = job.version
        while True:
            chunk = await _read(logs, job, attempt, query)
            left_s = until - clock.monotonic()
            if chunk.data or job.version != first or _ended(job, attempt) or left_s <= 0:
                return _answer(job, attempt, chunk, query)
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, _PAUSE_MAX_S)
            # Before the log: an end that is seen here came after every byte read next.
            job = await self._job(request, query)
            if query.whole_or_none("attempt") is None and attempt == 0:
                attempt = job.attempt

    async def _job(self, request: Request, query: Query) -> Job:
        return (await find_job(self._services.reads_of(request), request, query)).job


def _attempt(job: Job, asked: int | None) -> int:
    if asked is None:
        return job.attempt
    if asked > job.attempt:
        expected = f"1 to {job.attempt}" if job.attempt else "none: the job has not started yet"
        raise BadInput([Fault("attempt", str(asked), expected)])
    return asked


async def _read(logs: LogStore, job: Job, attempt: int, query: Query) -> LogChunk:
    offset = query.whole("offset")
    if attempt == 0:
        return LogChunk(b"", offset)
    path = LogPath(job.spec.tenant_id, job.spec.user_id, job.spec.job_id, attempt)
    return await logs.read(path, offset, query.whole("limit"))


def _ended(job: Job, attempt: int) -> bool:
    """Nobody writes this log any more (before the first attempt: nobody ever will)."""
    if attempt == 0:
        return job.status.final
    return attempt < job.attempt or job.lease is None


def _answer(job: Job, attempt: int, chunk: LogChunk, query: Query) -> Response:
    # Fewer bytes than asked for: the store had no more when the attempt was over already.
    done = _ended(job, attempt) and len(chunk.data) < query.whole("limit")
    headers = {
        "Zen-Attempt": str(attempt),
        "Zen-Offset": str(query.whole("offset")),
        "Zen-Next-Offset": str(chunk.next_offset),
        "Zen-Done": str(done).lower(),
        "Zen-Final": str(job.status.final).lower(),
    }
    return Response(chunk.data, 200, headers, "text/plain; charset=utf-8")
