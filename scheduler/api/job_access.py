"""Which job a request means, and whether the caller may know of it."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request

from core.errors import Ambiguous, NotFound
from core.reads import JobFilter, JobRow
from scheduler.api.caller import TenantReads
from scheduler.api.http.endpoint import route
from scheduler.api.http.params import Query, id_param, read_job_id

USER = id_param("user_id", "Whose job; needed only if several users have that job id.")
TENANT = id_param("tenant_id", "Which tenant asks: jobs of others are not there for it.")
job_route = partial(route, params=(USER, TENANT), errors=(404, 409))
"""A route about one job."""


async def find_job(reads: TenantReads, request: Request, query: Query) -> JobRow:
    """NotFound also for another tenant's job: not even that it exists is told."""
    job_id, user_id = read_job_id(request), query.text("user_id")
    tenant_id = query.text("tenant_id")
    if tenant_id is None:
        return await reads.job(job_id, user_id)
    where = JobFilter({"tenant_id": tenant_id, "user_id": user_id}, job_ids=(job_id,))
    rows = (await reads.jobs(where, 2, None)).rows
    if not rows:
        raise NotFound(f"tenant {tenant_id} has no job {job_id}")
    if len(rows) > 1:
        raise Ambiguous(
            f"several users of {tenant_id} have a job {job_id}: say which user_id (--user)"
        )
    return rows[0]
