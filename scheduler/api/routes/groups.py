"""Groups: jobs that are watched and stopped as one. An array is the group of its id."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from core.job import JobStatus
from scheduler.api import examples
from scheduler.api.http.endpoint import PREFIX, Endpoint, ResponseDoc, read_optional_object, reply
from scheduler.api.http.params import Param, Query, read_group
from scheduler.api.services import Services
from scheduler.api.stop_requests import FIELDS, STOP_BODY, stop_of
from scheduler.operations.stop import stop_group

TAG = "groups"
USER = Param("user_id", "text", "Whose group; needed only if several users have one of that name.")


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


class GroupRoutes:
    """The handlers."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def get(self, request: Request, query: Query) -> Response:
        row = await self._services.reads.group(read_group(request), query.text("user_id"))
        counts = {status: row.counts[status] for status in JobStatus if row.counts.get(status)}
        total = sum(counts.values())
        return reply(
            GroupOut(
                group=row.group,
                user_id=row.user_id,
                total=total,
                done=all(status.final for status in counts),
                succeeded=counts.get(JobStatus.SUCCEEDED) == total,
                counts=counts,
                message=row.words,
            )
        )

    async def stop(self, request: Request, query: Query) -> Response:
        services, group = self._services, read_group(request)
        body = await read_optional_object(request, FIELDS)
        stop = stop_of(request, body, user_id=query.text("user_id"))
        asked = services.stop_request(stop.reason, stop.by)
        stopped = await stop_group(services.store, group, query.text("user_id"), asked)
        for before, after in stopped.moved:
            services.metrics.job_moved(before, after)
        words = f"{stopped.cancelled} cancelled, {stopped.stopping} stopping"
        if not stopped.moved:
            words = "nothing to stop: its jobs have ended, or are being stopped already"
        out = GroupStoppedOut(group, stopped.user_id, stopped.cancelled, stopped.stopping, words)
        return reply(out, 202 if stopped.moved else 200)


def endpoints(services: Services) -> list[Endpoint]:
    """What this file serves."""
    on = GroupRoutes(services)
    group = f"{PREFIX}/groups/{{group}}"
    return [
        Endpoint(
            method="GET",
            path=group,
            summary="A group's jobs, counted by status",
            tag=TAG,
            handle=on.get,
            answers={200: ResponseDoc("The counts.", GroupOut, examples.GROUP)},
            params=(USER,),
            errors=(404, 409, 422, 503),
        ),
        Endpoint(
            method="POST",
            path=f"{group}/stop",
            summary="Stop all jobs of a group",
            tag=TAG,
            handle=on.stop,
            answers={
                202: ResponseDoc("They are stopping.", GroupStoppedOut, examples.GROUP_STOPPED),
                200: ResponseDoc("All had ended before.", GroupStoppedOut, examples.GROUP_ENDED),
            },
            params=(USER,),
            body=STOP_BODY,
            errors=(400, 404, 409, 413, 415, 422, 503),
        ),
    ]
