"""Groups: jobs that are watched and stopped as one. An array is the group of its id."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from core.access import Right
from core.job import JobStatus
from scheduler.api.caller import ApiCaller
from scheduler.api.http.endpoint import ResponseDoc, Routes, read_object, reply, route
from scheduler.api.http.params import Query, id_param, read_job_id
from scheduler.api.job_access import TENANT
from scheduler.api.stop_requests import FIELDS, STOP_BODY, stop_of
from scheduler.operations.stop import stop_group

USER = id_param("user_id", "Whose group; needed only if several users have one of that name.")
NOTHING_TO_STOP = "nothing to stop: its jobs have ended, or are being stopped already"


class GroupOut(Struct, frozen=True):
    """The jobs of a group, counted by status."""

    group: str
    user_id: str
    total: int
    done: bool
    succeeded: bool
    counts: Mapping[JobStatus, int]
    message: str


class GroupStoppedOut(Struct, frozen=True):
    """What a request to stop a group did."""

    group: str
    user_id: str
    cancelled: int
    stopping: int
    message: str


class GroupRoutes(Routes):
    """Groups of jobs."""

    tag = "groups"

    @route(
        "GET /api/v1/groups/{group}",
        Right.JOBS_READ,
        "The counts.",
        params=(USER, TENANT),
        errors=(404, 409),
    )
    async def get(self, request: Request, query: Query) -> GroupOut:
        """A group's jobs, counted by status."""
        reads = self._services.reads_of(request)
        row = await reads.group(
            read_job_id(request, "group"), query.text("user_id"), query.text("tenant_id")
        )
        counts = {status: row.counts[status] for status in JobStatus if row.counts.get(status)}
        total = sum(counts.values())
        return GroupOut(
            group=row.key.group,
            user_id=row.key.user_id,
            total=total,
            done=all(status.final for status in counts),
            succeeded=counts.get(JobStatus.SUCCEEDED) == total,
            counts=counts,
            message=row.words,
        )

    @route(
        "POST /api/v1/groups/{group}/stop",
        Right.JOBS_OWN,
        {
            202: ResponseDoc("They are stopping.", GroupStoppedOut),
            200: ResponseDoc(
                "All had ended before.",
                GroupStoppedOut,
                {"cancelled": 0, "stopping": 0, "message": NOTHING_TO_STOP},
            ),
        },
        params=(USER, TENANT),
        body=STOP_BODY,
        errors=(404, 409),
    )
    async def stop(self, request: Request, query: Query, caller: ApiCaller) -> Response:
        """Stop all jobs of a group."""
        services, group = self._services, read_job_id(request, "group")
        body = await read_object(request, FIELDS, optional=True)
        asked = services.stop_request(stop_of(request, body, user_id=query.text("user_id")))
        found = await services.bound_reads(caller).group(
            group, query.text("user_id"), query.text("tenant_id")
        )
        stopped = await stop_group(services.store, found.key, asked, caller.check_owns)
        for before, after in stopped.moved:
            services.metrics.job_moved(before, after)
        words = f"{stopped.cancelled} cancelled, {stopped.stopping} stopping"
        words = words if stopped.moved else NOTHING_TO_STOP
        out = GroupStoppedOut(group, stopped.user_id, stopped.cancelled, stopped.stopping, words)
        return reply(out, 202 if stopped.moved else 200)
