"""Tenants: who they are, what they may have, what they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from core.access import Right
from core.audit_log import AuditAction
from core.changes import PutTenant
from core.cost import Spent, TenantBudget
from core.errors import BadInput, Conflict, Fault, NotFound
from core.job import JobStatus
from core.queueing import class_of
from core.reads import JobFilter
from core.submission import nearest
from core.tenant_settings import LIMITS, QUOTA_FIELDS, SETTINGS, changed, deleted
from core.tenants import (
    DEFAULT_TENANT,
    Amounts,
    Consent,
    Tenant,
    TenantRow,
    budgets_of,
    held_by,
    machines_of,
)
from scheduler.api.caller import ApiCaller
from scheduler.api.compat.multitenant import TIERS, native_of_tenant, tenant_refusal, tenant_words
from scheduler.api.http.endpoint import Body, ResponseDoc, Routes, read_json, reply, route
from scheduler.api.http.params import Param, Query
from scheduler.api.shapes import shaped
from scheduler.submission.job_ids import key_job_id, readable_id
from scheduler.submission.unstorable import refuse_unstorable

# Half a kilobyte each: a page stays below 200 kB.
_PAGE = (
    Param("page_size", "whole", "Rows per page.", 200, 1, 300),
    Param("after", "text", "`next_after` of the page before.", blank=True),
)
TRIES = 5
"""Somebody else may change the same tenant at the same moment."""


class LimitOut(Struct, frozen=True):
    """One limit of a quota."""

    resource: str
    """jobs, gpus, gpus:<type>, gpu_memory_gb, cpus, memory_gb, usd_per_day, usd_per_month"""
    quota: float | None
    """None: no limit."""
    used: float


_TYPES = {**get_type_hints(Tenant), **get_type_hints(Consent)}
_SettingsOut = msgspec.defstruct(
    "_SettingsOut", [(name, _TYPES[name]) for name in SETTINGS], frozen=True, kw_only=True
)
"""The settings as they are stored, but for an empty name: that is the id."""


class TenantOut(_SettingsOut, frozen=True, kw_only=True):  # type: ignore[valid-type, misc, call-arg]
    """One tenant."""

    tenant_id: str
    id: str
    """The same; with those down to `active` what clients of multi-tenant schedulers read."""
    max_gpus: int | None
    max_gpu_memory_mb: int | None
    max_cpu_cores: int | None
    max_memory_mb: int | None
    max_concurrent_jobs: int | None
    priority_tier: str
    fair_share_weight: float
    allow_preemption: bool
    can_preempt_others: bool
    current_gpus: int
    current_jobs: int
    active: bool
    priority_class_max: str
    quota: Mapping[str, Any]
    """As it was set; limits of the configuration are only in `limits`."""
    limits: tuple[LimitOut, ...]
    gpu_hours: float
    """Used by ended attempts, decayed: what its share is measured by."""
    version: int


class TenantsOut(Struct, frozen=True):
    """A page of tenants, by name."""

    tenants: tuple[TenantOut, ...]
    total: int
    """On all pages."""
    next_after: str | None = None


class TenantDeletedOut(Struct, frozen=True):
    """It is gone."""

    tenant_id: str
    id: str
    message: str


_SETTINGS: Mapping[str, object] = {
    **{name: setting.schema for name, setting in SETTINGS.items()},
    "quota": {
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {
            **{name: limit.schema for name, limit in LIMITS.items()},
            "gpus_by_type": {
                "type": ["object", "null"],
                "additionalProperties": {"type": ["integer", "null"], "minimum": 0},
            },
        },
    },
}
_BODY = {"type": "object", "additionalProperties": False, "properties": dict(_SETTINGS)}
_LIMIT = {"type": ["number", "null"], "minimum": 0}
_CREATE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string"},
        **dict.fromkeys(("max_gpus", "max_gpu_memory_mb", "max_cpu_cores"), _LIMIT),
        **dict.fromkeys(("max_memory_mb", "max_concurrent_jobs"), _LIMIT),
        "priority_tier": {"type": "string", "enum": list(TIERS)},
        "fair_share_weight": {"type": "number", "exclusiveMinimum": 0},
        **{key: {"type": "boolean"} for key in ("allow_preemption", "can_preempt_others")},
        **{key: {"type": "string"} for key in ("email", "organization")},
        **_SETTINGS,
    },
}


class TenantRoutes(Routes):
    """Tenants."""

    tag = "tenants"

    @route("GET /api/v1/tenants", Right.TENANT_READ, "A page of tenants.", params=_PAGE)
    async def list(self, query: Query, caller: ApiCaller) -> TenantsOut:
        """Tenants by name: what they may have, what they have, what they have used."""
        seen = [row for row in await self._set_up() if row.tenant.tenant_id in caller.tenants]
        after, size = query.text("after") or "", query.whole("page_size")
        rest = [row for row in seen if row.tenant.tenant_id > after]
        shown = await self._shown(rest[:size], None)
        last = shown[-1].tenant_id if len(rest) > size else None
        return TenantsOut(shown, len(seen), last)

    @route(
        "POST /api/v1/tenants",
        Right.TENANTS_WRITE,
        {201: "As it is now."},
        headers={
            "Idempotency-Key": "Used when the body has no id: the same key is the same tenant."
        },
        body=Body(_CREATE, "new tenant"),
        errors=(409,),
    )
    async def create(self, request: Request, caller: ApiCaller) -> TenantOut:
        """Set up a tenant, in the words of multi-tenant clients or in ours.

        Equal settings under the same id are the same tenant; one that has only submitted so far
        was never set up by anybody. Without an id each call makes another tenant, unless it has an
        Idempotency-Key.
        """
        data = await read_json(request)
        refuse_unstorable(data)
        name, settings = native_of_tenant(data, self._fresh_id(request))
        try:
            wanted = changed(name, None, settings, self._gpu_types())
        except BadInput as error:
            raise tenant_refusal(error) from error
        stored = await self._stored(name)
        known = None if stored is None else replace(stored, version=1)
        if known is not None and known not in (wanted, Tenant(name), Tenant(name, deleted=True)):
            raise Conflict(f"tenant {name} exists with other settings: change it with PATCH")
        if known != wanted:
            version = stored.version + 1 if stored is not None else 1
            if not await self._put(replace(wanted, version=version), caller):
                raise _busy(name)
        return await self._one(name, caller)

    @route("GET /api/v1/tenants/{tenant_id}", Right.TENANT_READ, "The tenant.", errors=(404,))
    async def show(self, request: Request, caller: ApiCaller) -> TenantOut:
        """One tenant."""
        name = request.path_params["tenant_id"]
        if name not in caller.tenants:
            raise NotFound(f"there is no tenant {name[:80]} that you may see")
        return await self._one(name, caller)

    @route(
        "PATCH /api/v1/tenants/{tenant_id}",
        Right.TENANTS_WRITE,
        {
            200: ResponseDoc("As it is now.", TenantOut),
            201: ResponseDoc("It is new.", TenantOut),
        },
        body=Body(_BODY, "tenant"),
        errors=(409,),
    )
    async def change(self, request: Request, caller: ApiCaller) -> Response:
        """Create or change a tenant; what is left out stays, null takes a limit away.

        Changing twice the same way is the same as once.
        """
        name = request.path_params["tenant_id"]
        data = await read_json(request)
        refuse_unstorable(data)
        for _ in range(TRIES):
            stored = await self._stored(name)
            tenant = changed(name, stored, data, self._gpu_types())
            if await self._put(tenant, caller):
                new = stored is None or stored.deleted
                return reply(await self._one(name, caller), 201 if new else 200)
        raise _busy(name)

    @route(
        "DELETE /api/v1/tenants/{tenant_id}",
        Right.TENANTS_WRITE,
        "It is deleted.",
        errors=(404, 409),
    )
    async def delete(self, request: Request, caller: ApiCaller) -> TenantDeletedOut:
        """Delete a tenant that has no job left that has not ended; its history stays.

        Its settings go; its jobs, its bill and what it has used stay. A job that was accepted at
        the same moment runs to its end.
        """
        name = request.path_params["tenant_id"]
        for _ in range(TRIES):
            stored = await self._stored(name)
            if stored is None or stored.deleted:
                raise await self._not_found(name, caller)
            await self._refuse_deletion(name, caller)
            if await self._put(deleted(stored), caller):
                return TenantDeletedOut(name, name, f"tenant {name} deleted")
        raise _busy(name)

    async def _refuse_deletion(self, name: str, caller: ApiCaller) -> None:
        if name == DEFAULT_TENANT:
            raise BadInput(
                [Fault("tenant_id", name, "another tenant: jobs that name none are its")]
            )
        open_ = tuple(status for status in JobStatus if not status.final)
        where = JobFilter({"tenant_id": name}, statuses=open_)
        page = await self._services.bound_reads(caller).jobs(where, 1, None)
        if page.total:
            first = page.rows[0].job.spec.job_id
            jobs = f"{page.total} jobs that have" if page.total > 1 else "a job that has"
            raise Conflict(
                f"tenant {name} has {jobs} not ended (e.g. {first}): stop them, or wait for them"
            )

    async def _stored(self, name: str) -> Tenant | None:
        rows = await self._services.store.tenants()
        return next((row.tenant for row in rows if row.tenant.tenant_id == name), None)

    async def _put(self, tenant: Tenant, caller: ApiCaller) -> bool:
        """Whether nobody was faster."""
        action = AuditAction.TENANT_DELETE if tenant.deleted else AuditAction.TENANT_SET
        name, now = tenant.tenant_id, self._services.clock.now()
        audited = caller.did(action, f"tenant/{name}", now, name)
        return (await self._services.store.commit([(PutTenant(tenant), audited)], None)).all_applied

    def _gpu_types(self) -> frozenset[str]:
        return frozenset(c.gpu_type for c in self._services.clusters() if c.gpus)

    def _fresh_id(self, request: Request) -> str:
        key = request.headers.get("idempotency-key")
        ids = self._services.ids
        word = key_job_id(key) if key else readable_id(ids.uid(self._services.clock.now()))
        return f"tenant-{word.partition('-')[2]}"

    async def _one(self, name: str, caller: ApiCaller) -> TenantOut:
        rows = [row for row in await self._set_up() if row.tenant.tenant_id == name]
        if not rows:
            raise await self._not_found(name, caller)
        return (await self._shown(rows, name))[0]

    async def _not_found(self, name: str, caller: ApiCaller) -> NotFound:
        """With the nearest of the tenants that the caller may see."""
        rows = await self._services.store.tenants()
        there = (row.tenant.tenant_id for row in rows if not row.tenant.deleted)
        known = [each for each in there if each in caller.tenants]
        near = f" ({nearest(name[:80], known)})" if known else ""
        return NotFound(f"there is no tenant {name[:80]}{near}")

    async def _set_up(self) -> tuple[TenantRow, ...]:
        """By name."""
        rows = await self._services.store.tenants()
        return tuple(row for row in rows if not row.tenant.deleted)

    async def _shown(self, rows: Sequence[TenantRow], name: str | None) -> tuple[TenantOut, ...]:
        """`name`: of the only one."""
        services = self._services
        held = await services.store.holdings(name)
        budgets = budgets_of(services.settings.current.tenants, (row.tenant for row in rows))
        spent = await services.store.spent()
        machines = machines_of(services.clusters())
        half_life_s = services.settings.current.queue.half_life_s
        now = services.clock.now()
        return tuple(
            tenant_out(
                row,
                held_by(held.get(row.tenant.tenant_id, {}), machines),
                budgets.get(row.tenant.tenant_id, TenantBudget()),
                spent.get(row.tenant.tenant_id, Spent()),
                (now, half_life_s),
            )
            for row in rows
        )


def _busy(name: str) -> Conflict:
    return Conflict(f"tenant {name} is being changed by others: look again and repeat")


def tenant_out(
    row: TenantRow,
    used: Amounts,
    budget: TenantBudget,
    spent: Spent,
    decay: tuple[datetime, float],
) -> TenantOut:
    tenant = row.tenant
    limits = tenant.quota.limits
    names = sorted({*limits, *(name for name, amount in used.items() if amount)}, key=_place)
    shown = [LimitOut(name, limits.get(name), round(used.get(name, 0.0), 3)) for name in names]
    shown.append(LimitOut("usd_per_day", budget.usd_per_day, round(spent.day_usd, 6)))
    shown.append(LimitOut("usd_per_month", budget.usd_per_month, round(spent.month_usd, 6)))
    return shaped(
        TenantOut,
        tenant,
        **tenant_words(tenant),
        current_gpus=round(used.get("gpus", 0)),
        current_jobs=round(used.get("jobs", 0)),
        active=True,
        priority_class_max=class_of(tenant.priority_max).name.lower(),
        **asdict(tenant.consent),
        quota=_quota(tenant),
        limits=tuple(shown),
        gpu_hours=round(row.usage.decayed(*decay) / 3600, 4),
    )


def _place(name: str) -> tuple[int, str]:
    order = ("jobs", "gpus", "gpu_memory_gb", "cpus", "memory_gb")
    base = name.partition(":")[0]
    return order.index(base), name


def _quota(tenant: Tenant) -> dict[str, object]:
    given = {name: getattr(tenant.quota, name) for name in QUOTA_FIELDS}
    return {name: value for name, value in given.items() if value not in (None, {})}
