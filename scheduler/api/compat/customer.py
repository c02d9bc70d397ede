"""REST version 1, as the customer API of pipeline-zen calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct
from starlette.requests import Request

from core.access import Right
from core.client_statuses import WORDS
from core.errors import Ambiguous, BadInput, Conflict, Fault, NotFound, ZenError
from core.job import FINAL, Job, JobStatus
from core.names import JOB_ID
from core.reads import JobFilter, Milestones
from core.submission import shown
from scheduler.api.caller import caller_of
from scheduler.api.http.endpoint import Body, Routes, read_json, route
from scheduler.api.http.params import Query, checked_id, id_param, read_job_id
from scheduler.api.job_meta import told
from scheduler.api.manifests import StoredArtifacts
from scheduler.api.stop_requests import stop_of
from scheduler.submission.other_systems import (
    is_lum,
    names_cluster,
    native_of_lum,
    native_of_v1,
    taken,
    texts,
    v1_refusal,
)
from scheduler.submission.unstorable import refuse_unstorable

TAG = "compatible: v1"
IDS_MAX = 1000
FILES_SHOWN = 100
"""Of a job's artifacts; all of them are at their own address."""
LIVE = tuple(sorted(set(JobStatus) - FINAL))
STATUSES = (
    *("NEW", "WAIT_FOR_VM", "FOUND_VM", "DETACHED_VM", "RUNNING"),
    *("STOPPING", "STOPPED", "COMPLETED", "FAILED"),
)
"""No other word may ever appear on these routes."""


class NewJobOut(Struct, frozen=True):
    """A submission that is stored."""

    job_id: str
    status: str


class StoppingOut(Struct, frozen=True):
    """A stop that was taken."""

    status: str


class GcpOut(Struct, frozen=True):
    """Where the job is on Google Cloud."""

    keep_alive: bool
    cluster: str
    status: str
    vm_name: str | None
    region: str | None


class LumOut(Struct, frozen=True):
    """Where the job is in the Lumino protocol: nowhere, our clusters run it."""

    tx_hash: str | None = None
    lum_id: int | None = None


class TimestampsOut(Struct, frozen=True):
    """When the job last came to each status."""

    new: str | None
    wait_for_vm: str | None
    found_vm: str | None
    detached_vm: str | None
    running: str | None
    stopping: str | None
    stopped: str | None
    completed: str | None
    failed: str | None


class V1JobOut(Struct, frozen=True):
    """A job."""

    job_id: str
    user_id: str
    created_at: str
    updated_at: str
    workflow: str
    args: Mapping[str, Any]
    status: str
    provider: str
    lum: LumOut | None
    gcp: GcpOut | None
    timestamps: TimestampsOut
    artifacts: Mapping[str, Any]


def submit_body() -> Mapping[str, object]:
    """The JSON schema of a v1 submission."""
    text, maybe_text = {"type": "string"}, {"type": ["string", "null"]}
    return {
        "type": "object",
        "required": ["job_id", "workflow"],
        "properties": {
            "job_id": text,
            "user_id": {**maybe_text, "default": "0"},
            "workflow": text,
            "args": {"type": ["object", "null"]},
            "gpu_type": maybe_text,
            "num_gpus": {"type": ["integer", "null"], "default": 1},
            "cluster": {
                **maybe_text,
                "description": "Instead of gpu_type and num_gpus: 4xa100-40gb.",
            },
            "keep_alive": {"type": ["boolean", "null"], "default": False},
        },
    }


KEY = {"Idempotency-Key": "With it, the same job_id with the same content is answered again."}
_IDS: Mapping[str, object] = {"type": "array", "items": {"type": "string"}, "maxItems": IDS_MAX}
_QUESTION = {
    "type": "object",
    "required": ["job_ids"],
    "properties": {"user_id": {"type": ["string", "null"]}, "job_ids": _IDS},
}


class CustomerRoutes(Routes):
    """Jobs of REST version 1. `POST /jobs` belongs to two families: see definition.py."""

    tag = TAG
    lenient = True

    @route(
        "POST /jobs/gcp", Right.JOBS_SUBMIT, "Stored.", headers=KEY, body=Body(submit_body(), "v1")
    )
    async def submit(self, request: Request) -> NewJobOut:
        """Submit a job (v1)."""
        return await self.take(request, await read_json(request))

    @route(
        "POST /jobs/lum", Right.JOBS_SUBMIT, "Stored.", headers=KEY, body=Body(submit_body(), "lum")
    )
    async def submit_lum(self, request: Request) -> NewJobOut:
        """Submit a job of the Lumino protocol (v1).

        There is no chain here: our clusters run it.
        """
        body = await read_json(request)
        return await self._take(request, native_of_lum(body), names_cluster(body))

    async def take(self, request: Request, body: object) -> NewJobOut:
        """Stores a v1 body."""
        return await self._take(request, native_of_v1(body), names_cluster(body))

    async def _take(
        self, request: Request, native: Mapping[str, object], by_cluster: bool
    ) -> NewJobOut:
        """Answered with 200 and not 201: that client reads 201 as failure."""
        key = request.headers.get("idempotency-key")
        try:
            accepted = await self._services.submissions.submit(
                native, idempotency_key=key, by=caller_of(request)
            )
        except BadInput as error:
            raise v1_refusal(error, by_cluster) from error
        except Conflict as error:
            raise taken(str(native["job_id"]), str(native["user_id"])) from error
        if accepted.repeated and key is None:
            raise taken(accepted.job_id, accepted.user_id)
        return NewJobOut(accepted.job_id, "new")

    @route(
        "POST /jobs/gcp/stop/{job_id}/{user_id}",
        Right.JOBS_OWN,
        "It will be stopped.",
        errors=(404, 409),
    )
    async def stop_of_user(self, request: Request) -> StoppingOut:
        """Stop a user's job (v1)."""
        return await self._stop(request, read_job_id(request, "user_id"))

    @route(
        "POST /jobs/{job_id}/stop",
        Right.JOBS_OWN,
        "It will be stopped.",
        params=(id_param("user_id", "Whose, if several users have a live one."),),
        errors=(404, 409),
    )
    async def stop(self, request: Request, query: Query) -> StoppingOut:
        """Stop a job (v1)."""
        return await self._stop(request, query.text("user_id"))

    async def _stop(self, request: Request, user_id: str | None) -> StoppingOut:
        """Only a live job can be stopped, and it must be clear which one is meant: ended ones of
        other users do not count."""
        services, job_id = self._services, read_job_id(request)
        where = JobFilter({"user_id": user_id}, job_ids=(job_id,), statuses=LIVE)
        reads = services.reads_of(request)
        rows = (await reads.jobs(where, 2, None)).rows
        if len(rows) > 1:
            home = {"user_id": user_id, "tenant_id": caller_of(request).home_tenant}
            rows = (await reads.jobs(replace(where, fields=home), 2, None)).rows or rows
        if len(rows) > 1:
            raise Ambiguous(f"several users have a live job {job_id}: say which user_id")
        if rows:
            stopped = await services.stop(rows[0].job, stop_of(request, {}, user_id=user_id))
            if stopped.before is not None or not stopped.job.status.final:
                return StoppingOut("stopping")
        raise NotFound(f"job {job_id} not found or not running")

    @route(
        "POST /jobs/get_by_user_and_ids",
        Right.JOBS_READ,
        "The jobs that exist.",
        body=Body(_QUESTION, "v1 jobs"),
    )
    async def by_user_and_ids(self, request: Request) -> list[V1JobOut]:
        """A user's jobs by their ids (v1)."""
        user_id, job_ids = _question(await read_json(request))
        if not job_ids:
            return []
        reads = self._services.reads_of(request)
        page = await reads.jobs(JobFilter({"user_id": user_id}, job_ids=job_ids), IDS_MAX, None)
        home = caller_of(request).home_tenant
        own_last = sorted(page.rows, key=lambda row: row.job.spec.tenant_id == home)
        jobs = {row.job.spec.job_id: row.job for row in own_last}
        known = await reads.milestones(jobs.values())
        found = [jobs[job_id] for job_id in dict.fromkeys(job_ids) if job_id in jobs]
        whens = [known.get(job.uid, Milestones()) for job in found]
        stored = await asyncio.gather(*map(self._artifacts, found, whens))
        return list(map(v1_job, found, whens, stored))

    async def _artifacts(self, job: Job, known: Milestones) -> Mapping[str, Any]:
        """What the job's job-meta.json says, beside the list of what it stored."""
        services = self._services
        region = job.lease.region if job.lease else known.region
        v1 = job.cluster in services.settings.current.rules.v1_clusters
        files = {} if v1 else await self._files(job)
        return {**files, **await told(services.metas, job, region, v1)}

    async def _files(self, job: Job) -> Mapping[str, Any]:
        """Of jobs that have ended: clients ask for many jobs often, and an end is read only once.
        A store that does not answer must not hide the jobs."""
        shelf = self._services.shelf
        if shelf is None or not job.status.final:
            return {}
        try:
            stored = await shelf.newest(job)
        except ZenError as error:
            return {"unavailable": str(error)}
        return {} if stored is None else v1_artifacts(job, stored)


def v1_artifacts(job: Job, stored: StoredArtifacts) -> Mapping[str, Any]:
    """The first of the files, and where all of them are."""
    spec, files = job.spec, stored.manifest.files
    where = f"/api/v1/jobs/{quote(spec.job_id)}/artifacts"
    return {
        "attempt": stored.path.attempt,
        "total": len(files),
        "bytes": stored.manifest.size,
        "url": f"{where}?{urlencode({'user_id': spec.user_id})}",
        "files": [
            {
                "path": file.path,
                "size": file.size,
                "sha256": file.sha256,
                "url": f"{where}/file?{urlencode({'path': file.path, 'user_id': spec.user_id})}",
            }
            for file in files[:FILES_SHOWN]
        ],
    }


def v1_job(job: Job, known: Milestones, artifacts: Mapping[str, Any]) -> V1JobOut:
    """The v1 job object."""
    status = WORDS[job.status].v1
    lease, spec = job.lease, job.spec
    lum = is_lum(spec.labels)
    gcp = GcpOut(
        keep_alive=spec.keep_alive,
        cluster=job.cluster,
        status=status,
        vm_name=lease.vm_name if lease else known.vm_name,
        region=lease.region if lease else known.region,
    )
    return V1JobOut(
        job_id=spec.job_id,
        user_id=spec.user_id,
        created_at=v1_time(job.submitted_at),
        updated_at=v1_time(job.status_since),
        workflow=spec.workflow,
        args=spec.workflow_args,
        status=status,
        provider="LUM" if lum else "GCP",
        lum=LumOut() if lum else None,
        gcp=None if lum else gcp,
        timestamps=_timestamps(job, known.at),
        artifacts=artifacts,
    )


def _timestamps(job: Job, came: Mapping[JobStatus, datetime]) -> TimestampsOut:
    # What the job's own row knows outlives its history, which is pruned some day.
    known = {**came, job.status: job.status_since, JobStatus.QUEUED: job.submitted_at}
    if job.started_at is not None:
        known.setdefault(JobStatus.RUNNING, job.started_at)
    times = {
        WORDS[status].v1.lower(): v1_time(known[status])
        for status in JobStatus
        # Preempted, it still runs: it came to RUNNING before.
        if status in known and status is not JobStatus.PREEMPTING
    }
    return TimestampsOut(**{name: times.get(name) for name in TimestampsOut.__struct_fields__})


def v1_time(at: datetime) -> str:
    """Whole seconds, UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _question(body: object) -> tuple[str, tuple[str, ...]]:
    refuse_unstorable(body)
    if not isinstance(body, Mapping):
        raise BadInput([Fault("body", shown(body), "an object with user_id and job_ids")])
    user_id = body.get("user_id")
    job_ids = texts(body.get("job_ids"), "job_ids", IDS_MAX)
    user_id = checked_id("0" if user_id is None else user_id, "user_id")
    return user_id, tuple(filter(JOB_ID.match, job_ids))
