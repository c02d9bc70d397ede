"""Tenants: who they are, what they may have, what they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from core.changes import PutTenant
from core.cost import Spent, TenantBudget
from core.errors import BadInput, Conflict, NotFound
from core.queueing import class_of
from core.submission import nearest
from core.tenant_settings import FIELDS, QUOTA_FIELDS, changed
from core.tenants import Amounts, Tenant, TenantRow, budgets_of, held_by, machines_of
from scheduler.api.compat.multitenant import TIERS, native_of_tenant, tenant_refusal, tenant_words
from scheduler.api.endpoint import PREFIX, Answer, Body, Endpoint, read_json, reply
from scheduler.api.params import Query
from scheduler.api.services import Services
from scheduler.submit import key_job_id, readable_id, refuse_unstorable

TAG = "tenants"
TRIES = 5
"""Somebody else may change the same tenant at the same moment."""


class LimitOut(Struct, frozen=True):
    """One limit of a quota."""

    resource: str
    """jobs, gpus, gpus:<type>, gpu_memory_gb, cpus, memory_gb, usd_per_day, usd_per_month"""
    quota: float | None
    """None: no limit."""
    used: float


class TenantOut(Struct, frozen=True):
    """One tenant."""

    tenant_id: str
    id: str
    """The same; with those down to `active` what clients of multi-tenant schedulers read."""
    name: str
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
    weight: float
    priority_max: int
    priority_class_max: str
    may_preempt: bool
    preemptible: bool
    quota: Mapping[str, Any]
    """As it was set; limits of the configuration are only in `limits`."""
    limits: tuple[LimitOut, ...]
    gpu_hours: float
    """Used by ended attempts, decayed: what its share is measured by."""
    version: int


class TenantsOut(Struct, frozen=True):
    """All tenants, by name."""

    tenants: tuple[TenantOut, ...]
    total: int


class TenantRoutes:
    """The handlers."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list(self, _: Request, __: Query) -> Response:
        found = await self._shown(None)
        return reply(TenantsOut(found, len(found)))

    async def show(self, request: Request, __: Query) -> Response:
        return reply(await self._one(request.path_params["tenant_id"]))

    async def change(self, request: Request, __: Query) -> Response:
        """Fields that are left out stay. Changing twice the same way is the same as once."""
        name = request.path_params["tenant_id"]
        data = await read_json(request)
        refuse_unstorable(data)
        for _ in range(TRIES):
            rows = {
                row.tenant.tenant_id: row.tenant for row in await self._services.store.tenants()
            }
            tenant = changed(name, rows.get(name), data)
            done = await self._services.store.commit([(PutTenant(tenant),)], None)
            if done.all_applied:
                return reply(await self._one(name), 200 if name in rows else 201)
        raise Conflict(f"tenant {name} is being changed by others: look again and repeat")

    async def create(self, request: Request, _: Query) -> Response:
        """Equal settings under the same id are the same tenant; one that has only submitted so far
        was never set up by anybody. Without an id each call makes another tenant, unless it has an
        Idempotency-Key."""
        data = await read_json(request)
        refuse_unstorable(data)
        name, settings = native_of_tenant(data, self._fresh_id(request))
        try:
            wanted = changed(name, None, settings)
        except BadInput as error:
            raise tenant_refusal(error) from error
        rows = {row.tenant.tenant_id: row.tenant for row in await self._services.store.tenants()}
        stored = rows.get(name)
        if stored is not None and replace(stored, version=1) not in (wanted, Tenant(name)):
            raise Conflict(f"tenant {name} exists with other settings: change it with PATCH")
        if stored is None or replace(stored, version=1) != wanted:
            version = stored.version + 1 if stored is not None else 1
            unit = (PutTenant(replace(wanted, version=version)),)
            if not (await self._services.store.commit([unit], None)).all_applied:
                raise Conflict(f"tenant {name} is being changed by others: look again and repeat")
        return reply(await self._one(name), 201)

    def _fresh_id(self, request: Request) -> str:
        key = request.headers.get("idempotency-key")
        ids = self._services.ids
        word = key_job_id(key) if key else readable_id(ids.uid(self._services.clock.now()))
        return f"tenant-{word.partition('-')[2]}"

    async def _one(self, name: str) -> TenantOut:
        found = await self._shown(name)
        if not found:
            known = [row.tenant.tenant_id for row in await self._services.store.tenants()]
            raise NotFound(f"there is no tenant {name[:80]} ({nearest(name[:80], known)})")
        return found[0]

    async def _shown(self, name: str | None) -> tuple[TenantOut, ...]:
        services = self._services
        rows = [r for r in await services.store.tenants() if name in (None, r.tenant.tenant_id)]
        held = await services.store.holdings(name)
        budgets = budgets_of(services.tenants(), (row.tenant for row in rows))
        spent = await services.store.spent() if budgets else {}
        machines = machines_of(services.clusters())
        half_life_s = services.rules().queue.half_life_s
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
    return TenantOut(
        tenant_id=tenant.tenant_id,
        **tenant_words(tenant),
        current_gpus=round(used.get("gpus", 0)),
        current_jobs=round(used.get("jobs", 0)),
        active=True,
        weight=tenant.weight,
        priority_max=tenant.priority_max,
        priority_class_max=class_of(tenant.priority_max).name.lower(),
        may_preempt=tenant.may_preempt,
        preemptible=tenant.preemptible,
        quota=_quota(tenant),
        limits=tuple(shown),
        gpu_hours=round(row.usage.decayed(*decay) / 3600, 4),
        version=tenant.version,
    )


def _place(name: str) -> tuple[int, str]:
    order = ("jobs", "gpus", "gpu_memory_gb", "cpus", "memory_gb")
    base = name.partition(":")[0]
    return order.index(base), name


def _quota(tenant: Tenant) -> dict[str, object]:
    given = {name: getattr(tenant.quota, name) for name in QUOTA_FIELDS}
    return {name: value for name, value in given.items() if value not in (None, {})}


EXAMPLE = {
    "tenant_id": "vision",
    "id": "vision",
    "name": "Vision",
    "max_gpus": 64,
    "max_gpu_memory_mb": None,
    "max_cpu_cores": None,
    "max_memory_mb": None,
    "max_concurrent_jobs": None,
    "priority_tier": "high",
    "fair_share_weight": 2.0,
    "allow_preemption": True,
    "can_preempt_others": True,
    "current_gpus": 40,
    "current_jobs": 9,
    "active": True,
    "weight": 2.0,
    "priority_max": 1999,
    "priority_class_max": "high",
    "may_preempt": True,
    "preemptible": True,
    "quota": {"gpus": 64, "gpus_by_type": {"h100": 16}, "usd_per_day": 5000.0},
    "limits": [
        {"resource": "jobs", "quota": None, "used": 9.0},
        {"resource": "gpus", "quota": 64.0, "used": 40.0},
        {"resource": "gpus:h100", "quota": 16.0, "used": 8.0},
        {"resource": "usd_per_day", "quota": 5000.0, "used": 1312.5},
        {"resource": "usd_per_month", "quota": None, "used": 20110.0},
    ],
    "gpu_hours": 1830.25,
    "version": 3,
}
_SETTINGS: Mapping[str, object] = {
    "name": {"type": "string", "maxLength": 128},
    "weight": {"type": "number", "exclusiveMinimum": 0},
    "priority_max": {"type": "integer", "minimum": 0, "maximum": 9999},
    "may_preempt": {"type": "boolean"},
    "preemptible": {"type": "boolean"},
    "quota": {
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {
            **{
                name: {"type": ["number", "null"], "minimum": 0}
                for name in QUOTA_FIELDS
                if name != "gpus_by_type"
            },
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


def endpoints(services: Services) -> list[Endpoint]:
    """What this file serves."""
    on = TenantRoutes(services)
    one = f"{PREFIX}/tenants/{{tenant_id}}"
    return [
        Endpoint(
            method="GET",
            path=f"{PREFIX}/tenants",
            summary="All tenants: what they may have, what they have, what they have used",
            tag=TAG,
            handle=on.list,
            answers={
                200: Answer("Tenants.", TenantsOut, {"tenants": [EXAMPLE], "total": 1}),
            },
            errors=(422, 503),
        ),
        Endpoint(
            method="POST",
            path=f"{PREFIX}/tenants",
            summary="Set up a tenant, in the words of multi-tenant clients or in ours",
            tag=TAG,
            handle=on.create,
            answers={201: Answer("As it is now.", TenantOut, EXAMPLE)},
            headers={
                "Idempotency-Key": "Used when the body has no id: the same key is the same tenant."
            },
            body=Body(_CREATE, {"a tenant": {"id": "vision", "name": "Vision", "max_gpus": 64}}),
            errors=(400, 409, 413, 415, 422, 503),
        ),
        Endpoint(
            method="GET",
            path=one,
            summary="One tenant",
            tag=TAG,
            handle=on.show,
            answers={200: Answer("The tenant.", TenantOut, EXAMPLE)},
            errors=(404, 422, 503),
        ),
        Endpoint(
            method="PATCH",
            path=one,
            summary=f"Create or change a tenant ({', '.join(FIELDS)}); null takes a limit away",
            tag=TAG,
            handle=on.change,
            answers={
                200: Answer("As it is now.", TenantOut, EXAMPLE),
                201: Answer("It is new.", TenantOut, EXAMPLE),
            },
            body=Body(_BODY, {"limits": {"weight": 2, "quota": {"gpus": 64, "jobs": None}}}),
            errors=(400, 409, 413, 415, 422, 503),
        ),
    ]
