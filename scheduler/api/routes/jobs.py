"""Jobs: submit, list, get, history, attempts, stop."""

from __future__ import annotations

import math
import re

from starlette.requests import Request
from starlette.responses import Response

from core.access import Right
from core.errors import BadInput, Fault
from core.job import JobStatus
from core.job_fields import FILTERS
from core.reads import JobFilter
from core.submission import json_schema, shown
from core.unified_job import KIND, PROGRAMS
from scheduler.access.claims import refuse_named_defaults
from scheduler.api.caller import ApiCaller
from scheduler.api.candidates import DryRunOut, dry_run_out
from scheduler.api.http.endpoint import Body, ResponseDoc, Routes, read_object, reply, route
from scheduler.api.http.params import Param, Query, filter_param
from scheduler.api.http.yaml_bodies import YAML, read_document
from scheduler.api.job_access import TENANT, USER, find_job, job_route
from scheduler.api.pending import jobs_out
from scheduler.api.resubmissions import WHOLE_ARRAY, SubmissionOut, submission_out
from scheduler.api.shapes import (
    AcceptedOut,
    AttemptsOut,
    EventsOut,
    JobOut,
    JobsOut,
    JobState,
    StoppedOut,
    WaitsOut,
    accepted_out,
    attempt_out,
    event_out,
    statuses_of,
    stopped_out,
    wait_out,
)
from scheduler.api.stop_requests import FIELDS, STOP_BODY, stop_of

REPEAT = "Zen-Repeat"
NEW_TENANT = "Zen-New-Tenant"
CONFIRMED = "confirmed_usd_per_hour"
DRY_RUN = "dry_run"
TAG = "jobs"
USD_MAX = 1e9
PAGE_SIZE = Param("page_size", "whole", "Rows per page.", 50, 1, 500)
PAGE_TOKEN = Param("page_token", "text", "`next_page_token` of the page before.", blank=True)
OFFSET_MAX = 100_000
"""Rows that are passed over are read all the same: tokens are for those who go further."""
_LABEL = re.compile(r"[^=\x00-\x1f\x7f-\x9f]{1,256}=[^\x00-\x1f\x7f-\x9f]{0,256}\Z")
LIST_PARAMS = (
    *(filter_param(known) for known in FILTERS),
    Param("state", "text", "Only in these states.", words=tuple(JobState), repeat=True),
    Param("status", "text", "Only in these statuses.", words=tuple(JobStatus), repeat=True),
    Param("cluster", "text", "Only of this cluster."),
    Param(
        "label",
        "text",
        "`key=value`: only with all of these labels.",
        repeat=True,
        form=_LABEL,
        expected="key=value, e.g. label=team=vision",
    ),
    PAGE_SIZE,
    PAGE_TOKEN,
    Param("limit", "whole", "Another word for `page_size`.", None, 1, 500),
    Param("offset", "whole", "Passes over so many; not with `page_token`.", 0, 0, OFFSET_MAX),
)


def submission_schema() -> dict[str, object]:
    """A submission, or a manifest of another system."""
    manifest = {
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"const": KIND},
            "metadata": {"type": "object", "required": ["name"]},
            "jobType": {"enum": list(PROGRAMS)},
            "spec": {"type": "object", "required": ["jobSpec"]},
        },
    }
    return {"anyOf": [json_schema(), manifest]}


AFTER = Param("after", "whole", "`next_after` of the page before.", 0, 0, 2**63 - 1)
SUBMIT_PARAMS = (
    Param(
        DRY_RUN,
        "flag",
        "Say where it could run, at what price and how soon; store and buy nothing.",
        default=False,
    ),
    Param(
        CONFIRMED,
        "text",
        "The price of the whole submission that the caller has seen and agrees to; "
        "needed above `confirm_above_usd_per_hour` of its tenant (409 says the price).",
    ),
)
STORED = ResponseDoc(
    "Stored; a repeat answers the same.",
    AcceptedOut,
    headers={
        REPEAT: "true: it was stored before, and nothing was written now.",
        NEW_TENANT: "true: its tenant was not set up before, and has no limits.",
    },
)
ENDED = {"status": "succeeded", "message": "already succeeded: exit code 0"}


class JobRoutes(Routes):
    """Jobs."""

    tag = TAG

    @route(
        "POST /api/v1/jobs",
        Right.JOBS_SUBMIT,
        {201: STORED, 200: ResponseDoc("With `dry_run`: nothing is stored.", DryRunOut)},
        params=SUBMIT_PARAMS,
        headers={
            "Idempotency-Key": "Used when the body has no job_id: the same key is the same job."
        },
        body=Body(submission_schema(), "submissions", content_types=YAML),
        errors=(403, 409),
    )
    async def submit(self, request: Request, query: Query, caller: ApiCaller) -> Response:
        """Submit a job."""
        data = await read_document(request)
        refuse_named_defaults(caller.principal, data)
        key = request.headers.get("idempotency-key")
        await self._services.submissions.refuse_past_deadline(data, key, caller)
        if query.flag(DRY_RUN):
            preview = await self._services.submissions.preview(data, caller)
            return reply(await dry_run_out(self._services, preview))
        accepted = await self._services.submissions.submit(
            data, idempotency_key=key, confirmed_usd_per_hour=_confirmed(query), by=caller
        )
        # Equal answers for equal submissions; only the headers know which one was the first.
        headers = {REPEAT: "true"} if accepted.repeated else {}
        if accepted.new_tenant:
            headers[NEW_TENANT] = "true"
        return reply(accepted_out(accepted), 201, headers)

    @route("GET /api/v1/jobs", Right.JOBS_READ, "A page of jobs.", params=LIST_PARAMS)
    async def list(self, query: Query, caller: ApiCaller) -> JobsOut:
        """List jobs, newest first."""
        where = JobFilter(
            {known.name: query.values[known.name] for known in FILTERS},
            statuses=_statuses(query.texts("state"), query.texts("status")),
            cluster=query.text("cluster"),
            labels=_labels(query.texts("label")),
        )
        token, offset = query.text("page_token"), query.whole("offset")
        if token is not None and offset:
            raise BadInput([Fault("offset", str(offset), "none beside page_token")])
        size = query.whole_or_none("limit") or query.whole("page_size")
        page = await self._services.bound_reads(caller).jobs(where, size, token, offset)
        if not page.total:
            self._services.refuse_unknown_place(where.cluster)
        rows = await jobs_out(self._services, page.rows)
        return JobsOut(rows, page.total, page.next_token, page.total_exact)

    @job_route("GET /api/v1/jobs/{job_id}", Right.JOBS_READ, "The job.")
    async def get(self, request: Request, query: Query) -> JobOut:
        """One job: where it is, why it waits, what it has cost."""
        row = await find_job(self._services.reads_of(request), request, query)
        (told,) = await jobs_out(self._services, [row])
        return told

    @job_route(
        "GET /api/v1/jobs/{job_id}/events",
        Right.JOBS_READ,
        "Part of the history.",
        params=(USER, TENANT, PAGE_SIZE, AFTER),
    )
    async def events(self, request: Request, query: Query) -> EventsOut:
        """The history of a job, oldest first."""
        reads = self._services.reads_of(request)
        size = query.whole("page_size")
        row = await find_job(reads, request, query)
        # One more than asked for tells whether there is a next page.
        rows = await reads.events(row, size + 1, query.whole("after"))
        events = tuple(event_out(event) for event in rows[:size])
        return EventsOut(events, events[-1].seq if len(rows) > size else None)

    @job_route(
        "GET /api/v1/jobs/{job_id}/waits", Right.JOBS_READ, "All; kept as long as the history."
    )
    async def waits(self, request: Request, query: Query) -> WaitsOut:
        """What a job met while it waited, folded, the first first."""
        reads = self._services.reads_of(request)
        rows = await reads.waits(await find_job(reads, request, query))
        return WaitsOut(tuple(wait_out(met) for met in rows))

    @job_route(
        "GET /api/v1/jobs/{job_id}/members", Right.JOBS_READ, "All; empty for a job on one VM."
    )
    async def members(self, request: Request, query: Query) -> JobsOut:
        """The members of a gang, by rank."""
        reads = self._services.reads_of(request)
        row = await find_job(reads, request, query)
        gang = row.job.gang
        found = await self._services.store.members(gang.uid) if gang is not None else []
        rows = await reads.members(row, found)
        told = await jobs_out(self._services, rows)
        return JobsOut(told, len(told), None)

    @job_route(
        "GET /api/v1/jobs/{job_id}/submission",
        Right.JOBS_READ,
        "The fields, without an id.",
        params=(USER, TENANT, WHOLE_ARRAY),
    )
    async def submission(self, request: Request, query: Query, caller: ApiCaller) -> SubmissionOut:
        """What to submit for the same job again, under another id.

        Secrets are references, as they were submitted. Values of the environment that the caller
        may not see are left out, and named in `hidden`."""
        row = await find_job(self._services.reads_of(request), request, query)
        return submission_out(row.job, caller, whole=query.flag(WHOLE_ARRAY.name))

    @job_route("GET /api/v1/jobs/{job_id}/attempts", Right.JOBS_READ, "The attempts, oldest first.")
    async def attempts(self, request: Request, query: Query) -> AttemptsOut:
        """Every try of a job on a VM."""
        reads = self._services.reads_of(request)
        row = await find_job(reads, request, query)
        rows = await reads.attempts(row)
        return AttemptsOut(tuple(attempt_out(attempt, row.job.spec) for attempt in rows))

    @job_route(
        "POST /api/v1/jobs/{job_id}/stop",
        Right.JOBS_OWN,
        {
            202: ResponseDoc("It is stopping, or was cancelled.", StoppedOut),
            200: ResponseDoc("It had ended before.", StoppedOut, ENDED),
        },
        body=STOP_BODY,
    )
    async def stop(self, request: Request, query: Query) -> Response:
        """Stop a job."""
        had_ended, stopped = await self._stop(request, query)
        return reply(stopped, 200 if had_ended else 202)

    @job_route(
        "DELETE /api/v1/jobs/{job_id}",
        Right.JOBS_OWN,
        "It is stopping, or has ended.",
        body=STOP_BODY,
    )
    async def delete(self, request: Request, query: Query) -> StoppedOut:
        """Stop a job.

        Always 200: clients of multi-tenant schedulers take 202 for a failure.
        """
        return (await self._stop(request, query))[1]

    async def _stop(self, request: Request, query: Query) -> tuple[bool, StoppedOut]:
        """(whether it had ended before, what became of it)."""
        services = self._services
        body = await read_object(request, FIELDS, optional=True)
        job = (await find_job(services.reads_of(request), request, query)).job
        stopped = await services.stop(job, stop_of(request, body, user_id=query.text("user_id")))
        return stopped.before is None and stopped.job.status.final, stopped_out(stopped)


def _confirmed(query: Query) -> float | None:
    word = query.text(CONFIRMED)
    if word is None:
        return None
    try:
        amount = float(word)
    except ValueError:
        amount = math.nan
    if not 0 <= amount <= USD_MAX:
        raise BadInput([Fault(CONFIRMED, shown(word), "USD per hour, e.g. 28.40")])
    return amount


def _statuses(states: tuple[str, ...], statuses: tuple[str, ...]) -> tuple[JobStatus, ...]:
    """Both filters hold; none is given: no restriction."""
    by_state = {s for state in states for s in statuses_of(JobState(state))} or set(JobStatus)
    by_status = {JobStatus(status) for status in statuses} or set(JobStatus)
    both = by_state & by_status
    if not both:
        expected = f"a status of state {' or '.join(states)}: {', '.join(sorted(by_state))}"
        raise BadInput([Fault("status", ", ".join(statuses), expected)])
    return tuple(sorted(both)) if states or statuses else ()


def _labels(pairs: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if found.setdefault(key, value) != value:
            raise BadInput([Fault("label", shown(pair), f"one value for {key}")])
    return found
