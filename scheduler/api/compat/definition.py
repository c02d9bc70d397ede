"""REST for clients that submit a `definition` and know executors.

They have no users and no tenants: they act as user 0 of the tenant `default`, and see no other
jobs than theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from core.access import Right
from core.client_statuses import WORDS, statuses_called
from core.errors import BadInput, NotFound
from core.job import LEASED, Job, JobStatus
from core.pages import Page
from core.reads import JobFilter, Milestones, VmRow
from core.vm import Vm
from scheduler.api.caller import ApiCaller, TenantReads, caller_of
from scheduler.api.compat.customer import KEY, CustomerRoutes, NewJobOut, submit_body
from scheduler.api.compat.definition_jobs import (
    DefinedJobOut,
    DefinedJobsOut,
    HealthyExecutorsOut,
    ResourcesOut,
    defined_job,
    healthy_executor,
    held_of,
    resources_of,
    shown_status,
)
from scheduler.api.compat.status import by_state
from scheduler.api.http.endpoint import Body, ResponseDoc, Routes, read_json, reply, route
from scheduler.api.http.params import Param, Query, read_job_id
from scheduler.api.http.problems import NothingToAbort
from scheduler.api.routes.jobs import PAGE_TOKEN
from scheduler.api.services import Services
from scheduler.api.shapes import Time, iso, iso_or_none
from scheduler.api.stop_requests import stop_of
from scheduler.submission.other_systems import definition_refusal, native_of_definition
from scheduler.submission.submit import SubmissionOptions

USER = "0"
EXECUTORS_MAX = 500
OPTIONS = SubmissionOptions(uuid_ids=True, waits_for_size=True)
HOLDING = tuple(sorted(LEASED - {JobStatus.STOPPING}))
STATES = tuple(dict.fromkeys(words.definition for words in WORDS.values()))
NEXT_PAGE, TOTAL = "X-Next-Page-Token", "X-Total-Count"


class ExecutorOut(Struct, frozen=True):
    """A VM."""

    id: str
    status: str
    region: str
    resources: ResourcesOut
    running_jobs: int
    last_heartbeat: Time | None


class JobCountsOut(Struct, frozen=True):
    """Jobs by state."""

    total: int
    pending: int
    assigned: int
    running: int
    succeeded: int
    failed: int
    aborted: int


class ExecutorCountsOut(Struct, frozen=True):
    """VMs that are not gone."""

    total: int
    online: int
    busy: int


class StatsOut(Struct, frozen=True):
    """Counts: jobs that the caller may see, and all VMs."""

    jobs: JobCountsOut
    executors: ExecutorCountsOut
    timestamp: Time


def _submit_body() -> Mapping[str, object]:
    text = {"type": "string"}
    words = {"type": "array", "items": text}
    resources = {
        "type": ["object", "null"],
        "properties": {
            "cpu_cores": {"type": ["number", "null"]},
            "memory_mb": {"type": ["integer", "null"]},
            "gpu_type": {"type": ["string", "null"]},
            "gpu_count": {"type": ["integer", "null"]},
        },
    }
    definition = {
        "type": "object",
        "required": ["name", "command"],
        "properties": {
            "name": text,
            "image": {"type": ["string", "null"]},
            "command": words,
            "resources": resources,
            "environment": {"type": ["object", "null"], "additionalProperties": text},
        },
    }
    wrapped = {
        "type": "object",
        "required": ["definition"],
        "properties": {"definition": definition},
    }
    return {"oneOf": [wrapped, dict(submit_body())]}


LIMIT = Param("limit", "whole", "Rows per page.", 100, 1, EXECUTORS_MAX)
PAGES = {TOTAL: "How many there are.", NEXT_PAGE: "`page_token` of the next page."}
SUBMIT_BODY = Body(_submit_body(), "v1 or definition")


class DefinitionRoutes(Routes):
    """Jobs with a `definition`, and executors."""

    tag = "compatible: definition"
    lenient = True

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._customer = CustomerRoutes(services)

    @route(
        "POST /jobs",
        Right.JOBS_SUBMIT,
        {
            200: ResponseDoc("v1: stored.", NewJobOut),
            201: ResponseDoc("definition: stored.", DefinedJobOut),
        },
        headers=KEY,
        body=SUBMIT_BODY,
        errors=(409,),
    )
    async def submit(self, request: Request) -> Response:
        """Submit a job, v1 or with a definition.

        Two families post here; a `definition` tells them apart.
        """
        body = await read_json(request)
        if not isinstance(body, Mapping) or "definition" not in body:
            return reply(await self._customer.take(request, body))
        key = request.headers.get("idempotency-key")
        native = native_of_definition(body)
        try:
            accepted = await self._services.submissions.submit(
                native, idempotency_key=key, options=OPTIONS, by=caller_of(request)
            )
        except BadInput as error:
            raise definition_refusal(error) from error
        reads = self._services.reads_of(request)
        job = await self._row(reads, accepted.job_id, caller_of(request))
        return reply(await self._shown(reads, job), 201)

    @route(
        "GET /jobs",
        Right.JOBS_READ,
        ResponseDoc("A page of jobs, newest first.", DefinedJobsOut, headers=PAGES),
        params=(
            Param("status_filter", "text", "Only in this state.", words=STATES),
            LIMIT,
            PAGE_TOKEN,
        ),
    )
    async def list(self, query: Query, caller: ApiCaller) -> Response:
        """List jobs."""
        word = query.text("status_filter")
        where = JobFilter(
            {"tenant_id": caller.home_tenant, "user_id": caller.principal.user_id},
            statuses=statuses_called(word) if word else (),
        )
        reads = self._services.bound_reads(caller)
        page = await reads.jobs(where, query.whole("limit"), query.text("page_token"))
        jobs = [row.job for row in page.rows]
        known = await reads.milestones(jobs)
        addresses = await self._addresses(jobs)
        found = (defined_job(job, known.get(job.uid, Milestones()), addresses) for job in jobs)
        return _page(DefinedJobsOut(tuple(found)), page)

    @route("GET /jobs/{job_id}", Right.JOBS_READ, "The job.", errors=(404,))
    async def get(self, request: Request) -> DefinedJobOut:
        """One job."""
        reads = self._services.reads_of(request)
        job = await self._row(reads, read_job_id(request), caller_of(request))
        return await self._shown(reads, job)

    @route("POST /jobs/{job_id}/abort", Right.JOBS_OWN, {202: "As it is now."}, errors=(409, 500))
    async def abort(self, request: Request) -> DefinedJobOut:
        """Abort a job."""
        reads = self._services.reads_of(request)
        try:
            job = await self._row(reads, read_job_id(request), caller_of(request))
        except NotFound as error:
            raise NothingToAbort(str(error)) from error
        stopped = await self._services.stop(job, stop_of(request, {}, verb="aborted"))
        return await self._shown(reads, stopped.job)

    async def _row(self, reads: TenantReads, job_id: str, caller: ApiCaller) -> Job:
        row = await reads.job(job_id, caller.principal.user_id)
        if row.job.spec.tenant_id != caller.home_tenant:
            raise NotFound(f"there is no job {job_id}")
        return row.job

    async def _shown(self, reads: TenantReads, job: Job) -> DefinedJobOut:
        """One job, no state of which is passed over."""
        found = await reads.milestones([job])
        known = found.get(job.uid, Milestones())
        status = shown_status(job, known, self._services.clock.now())
        return defined_job(job, known, await self._addresses([job]), status)

    async def _addresses(self, jobs: Sequence[Job]) -> Mapping[str, str]:
        """VM → its address, of the VMs that these jobs are on."""
        if not any(job.lease for job in jobs):
            return {}
        page = await self._services.reads.vms(None, None, False, EXECUTORS_MAX, None)
        return {row.vm.name: row.vm.address for row in page.rows}

    @route(
        "GET /executors",
        Right.FLEET_READ,
        ResponseDoc("A page of VMs.", ExecutorOut, headers=PAGES, many=True),
        params=(LIMIT, PAGE_TOKEN),
    )
    async def executors(self, query: Query, caller: ApiCaller) -> Response:
        """VMs, with the number of jobs on them that the caller may see."""
        page = await self._vms(query)
        clusters = {cluster.name: cluster for cluster in self._services.clusters()}
        vms = [row.vm for row in page.rows]
        jobs = await self._services.bound_reads(caller).counts_on(vms)
        found = (
            _executor(vm, resources_of(vm, clusters.get(vm.cluster)), jobs.get(vm.uid, 0))
            for vm in vms
        )
        return _page(list(found), page)

    async def _vms(self, query: Query) -> Page[VmRow]:
        limit, token = query.whole("limit"), query.text("page_token")
        return await self._services.reads.vms(None, None, False, limit, token)

    @route("GET /executors/healthy", Right.FLEET_READ, "A page of VMs.", params=(LIMIT, PAGE_TOKEN))
    async def healthy(self, query: Query, caller: ApiCaller) -> HealthyExecutorsOut:
        """VMs that take jobs or run one, and what is left of each."""
        ready = [row.vm for row in (await self._vms(query)).rows if row.vm.state.ready]
        clusters = {cluster.name: cluster for cluster in self._services.clusters()}
        jobs = await self._at_work(caller) if any(vm.leases for vm in ready) else {}
        counts = await self._services.bound_reads(caller).counts_on(ready)
        found = []
        for vm in ready:
            spec = clusters.get(vm.cluster)
            has = resources_of(vm, spec)
            shared = spec is not None and spec.share
            held = held_of(has, vm, jobs, shared=shared)
            found.append(healthy_executor(vm, has, counts.get(vm.uid, 0), held))
        return HealthyExecutorsOut(tuple(found))

    async def _at_work(self, caller: ApiCaller) -> Mapping[str, Job]:
        """Lease → job, of the caller's jobs that hold a VM and were not told to end."""
        reads = self._services.bound_reads(caller)
        page = await reads.jobs(JobFilter(statuses=HOLDING), EXECUTORS_MAX, None)
        return {row.job.lease.lease_id: row.job for row in page.rows if row.job.lease}

    @route("GET /stats", Right.FLEET_READ, "Counts.")
    async def stats(self, caller: ApiCaller) -> StatsOut:
        """VMs and the jobs that the caller may see, counted."""
        summary = await self._services.summary_of(caller)
        up = [row for row in summary.vms if row.state.ready]
        executors = ExecutorCountsOut(
            total=sum(row.count for row in summary.vms),
            online=sum(row.count for row in up),
            busy=sum(row.count for row in up if row.busy),
        )
        counts = by_state(summary)
        jobs = JobCountsOut(total=sum(counts.values()), **counts)
        return StatsOut(jobs, executors, iso(summary.now))


def _page(value: object, page: Page[Any]) -> Response:
    more = {NEXT_PAGE: page.next_token} if page.next_token is not None else {}
    return reply(value, headers={TOTAL: str(page.total), **more})


def _executor(vm: Vm, has: ResourcesOut, jobs: int) -> ExecutorOut:
    up = "online" if vm.state.ready else "draining"
    return ExecutorOut(
        id=vm.name,
        status=up if vm.state.up else "offline",
        region=vm.region,
        resources=has,
        running_jobs=jobs,
        last_heartbeat=iso_or_none(vm.last_beat_at),
    )
