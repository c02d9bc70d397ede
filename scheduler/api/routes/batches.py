"""Many different jobs in one request."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from msgspec import Struct
from starlette.requests import Request

from core.access import Right
from core.errors import BadInput, Fault, StoreDown, ZenError
from core.submission import shown
from scheduler.access.claims import refuse_named_defaults
from scheduler.api.caller import ApiCaller
from scheduler.api.http.endpoint import Body, Routes, decode, read_json, refuse_encodings, route
from scheduler.api.http.problems import BadJson, FaultOut, internal, problem_of
from scheduler.api.routes.jobs import TAG
from scheduler.submission.quotes import price_fields
from scheduler.submission.submission_batch import submit_together
from scheduler.submission.submit import Accepted

_log = structlog.get_logger(__name__)
JOBS_MAX = 1000
NDJSON = ("application/x-ndjson", "application/jsonl")
SCHEMA = {
    "type": "object",
    "required": ["jobs"],
    "additionalProperties": False,
    "properties": {
        "jobs": {
            "type": "array",
            "minItems": 1,
            "maxItems": JOBS_MAX,
            "items": {},
            "description": "Submissions, as in POST /api/v1/jobs; each is judged by itself.",
        }
    },
}


class BatchResultOut(Struct, frozen=True, omit_defaults=True):
    """What became of one job."""

    status: str
    """submitted or refused."""
    job_id: str | None = None
    user_id: str | None = None
    cluster: str | None = None
    message: str | None = None
    jobs: int | None = None
    code: str | None = None
    """Of a refusal, as `error` and `faults`: what a POST of this job alone would say."""
    error: str | None = None
    faults: tuple[FaultOut, ...] = ()
    total_usd_per_hour: float | None = None
    """At most, for all its VMs. Of `price_not_confirmed`: submit this job alone to confirm it."""
    tenant_id: str | None = None
    usd_per_hour: float | None = None
    """One VM (of a shared one: the job's part) in the cheapest region that the job allows."""


class BatchOut(Struct, frozen=True):
    """One result for each job, in the order of the request."""

    submitted: int
    refused: int
    results: tuple[BatchResultOut, ...]


class BatchRoutes(Routes):
    """Batches."""

    tag = TAG

    @route(
        "POST /api/v1/jobs:batch",
        Right.JOBS_SUBMIT,
        "One result for each job. Each is stored by itself: a refusal stops no other.",
        headers={
            "Idempotency-Key": "The n-th job (from 0) that has no job_id gets the key `<key>/n`."
        },
        body=Body(SCHEMA, "batch"),
    )
    async def submit(self, request: Request, caller: ApiCaller) -> BatchOut:
        """Submit up to 1000 different jobs: `{"jobs": […]}`, or one JSON object per line with the
        content type `application/x-ndjson`.

        They are checked as if each came alone, and stored together where they can be."""
        jobs = await _read_jobs(request)
        key = request.headers.get("idempotency-key")
        submissions = self._services.submissions

        async def submit_one(number: int) -> Accepted:
            data, own_key = jobs[number], None if key is None else f"{key}/{number}"
            if isinstance(data, BadJson):
                raise data
            refuse_named_defaults(caller.principal, data)
            await submissions.refuse_past_deadline(data, own_key, caller)
            return await submissions.submit(data, idempotency_key=own_key, by=caller)

        found = await submit_together(jobs, submit_one)
        if found and all(isinstance(one, StoreDown) for one in found):
            raise StoreDown(str(found[0]))
        results = tuple(_result(one, caller.request_id) for one in found)
        stored = sum(isinstance(one, Accepted) for one in found)
        return BatchOut(stored, len(results) - stored, results)


async def _read_jobs(request: Request) -> Sequence[object]:
    """The jobs as plain values; BadJson in place of a line that cannot be read."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in NDJSON:
        refuse_encodings(request)
        lines = [line for line in (await request.body()).splitlines() if line.strip()]
        _refuse_many(len(lines))
        return [_line(line) for line in lines]
    data = await read_json(request)
    jobs = data.get("jobs") if isinstance(data, dict) and len(data) == 1 else None
    if not isinstance(jobs, list):
        raise BadInput([Fault("jobs", shown(data), 'a list of jobs: {"jobs": […]}')])
    _refuse_many(len(jobs))
    return jobs


def _refuse_many(count: int) -> None:
    if not 1 <= count <= JOBS_MAX:
        raise BadInput([Fault("jobs", f"{count} jobs", f"1 to {JOBS_MAX} in one request")])


def _line(line: bytes) -> object:
    try:
        return decode(line)
    except BadJson as error:
        return error


def _result(found: Accepted | Exception, request_id: str) -> BatchResultOut:
    if isinstance(found, Accepted):
        prices = price_fields(found.quote)
        return BatchResultOut(
            "submitted",
            found.job_id,
            found.user_id,
            found.cluster,
            found.message,
            found.jobs,
            total_usd_per_hour=prices.get("total_usd_per_hour"),
            tenant_id=found.tenant_id,
            usd_per_hour=prices.get("usd_per_hour"),
        )
    problem = problem_of(found) if isinstance(found, ZenError) else None
    if problem is None:
        _log.error("a job of a batch failed", request_id=request_id, exc_info=found)
        problem = internal(request_id)
    return BatchResultOut(
        "refused",
        code=problem.code,
        error=problem.text,
        faults=tuple(map(FaultOut.of, problem.faults)),
        total_usd_per_hour=problem.usd_per_hour,
    )
