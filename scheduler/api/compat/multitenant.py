"""Tenants and jobs in the words of multi-tenant clients. Their API is our native one; tenants and
jobs carry their names beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core.errors import BadInput, Fault
from core.job import Job
from core.queueing import PRIORITY_CAPS, class_of
from core.slots import gpus_among
from core.submission import shown, unknown
from core.tenant_settings import FIELDS
from core.tenants import Tenant

_OTHER_TIERS = {
    "normal": "medium",
    "standard": "medium",
    "premium": "high",
    "urgent": "critical",
}
TIERS: Mapping[str, int] = {
    _OTHER_TIERS.get(name, name): highest for name, highest in PRIORITY_CAPS.items()
}
"""Tier → the highest priority that its jobs may ask for."""
_LIMITS: Mapping[str, tuple[str, int]] = {
    "max_gpus": ("gpus", 1),
    "max_gpu_memory_mb": ("gpu_memory_gb", 1024),
    "max_cpu_cores": ("cpus", 1),
    "max_memory_mb": ("memory_gb", 1024),
    "max_concurrent_jobs": ("jobs", 1),
}
"""Theirs → ours, and how many of theirs are one of ours."""
_SETTINGS = {
    "fair_share_weight": "weight",
    "allow_preemption": "preemptible",
    "can_preempt_others": "may_preempt",
}
_IDS = ("id", "tenant_id")
_PASSED_OVER = ("email", "organization")
"""Documented by those clients; nothing here depends on them, and they are not kept."""
KNOWN = (*_IDS, *_LIMITS, "priority_tier", *_SETTINGS, *_PASSED_OVER, *FIELDS)
_RENAMED = {
    **{f"quota.{ours}": theirs for theirs, (ours, _) in _LIMITS.items()},
    **{ours: theirs for theirs, ours in _SETTINGS.items()},
    "tenant_id": "id",
}


def job_words(job: Job, why: str, position: int | None) -> dict[str, Any]:
    """The fields of a job that those clients read."""
    lease = job.lease
    gpus = gpus_among(lease.slots if lease else (), job.spec.gpu_count)
    return {
        "id": job.spec.job_id,
        "message": why or job.reason,
        "script": job.spec.command[0] if job.spec.shell and job.spec.command else "",
        "node_name": lease.vm_name if lease else None,
        "allocated_gpus": tuple(f"{lease.vm_name}/{gpu}" for gpu in gpus) if lease else (),
        "queue_position": position or 0,
    }


def tenant_words(tenant: Tenant) -> dict[str, Any]:
    """The fields that those clients read."""
    words: dict[str, Any] = {"id": tenant.tenant_id, "name": tenant.name or tenant.tenant_id}
    for theirs, (ours, factor) in _LIMITS.items():
        limit = getattr(tenant.quota, ours)
        words[theirs] = None if limit is None else round(limit * factor)
    words["priority_tier"] = _tier(tenant.priority_max)
    words |= {theirs: getattr(tenant, ours) for theirs, ours in _SETTINGS.items()}
    return words


def _tier(priority_max: int) -> str:
    own = class_of(priority_max).name.lower()
    return _OTHER_TIERS.get(own, own)


def native_of_tenant(body: object, fresh_id: str) -> tuple[str, dict[str, object]]:
    """(id, settings in our words); BadInput for what neither of us knows. `fresh_id` is the id of
    a tenant that comes with a name alone: the name is free text, and several may have the same."""
    if not isinstance(body, Mapping):
        raise BadInput([Fault("body", shown(body), "an object")])
    faults = [unknown("field", str(key)[:60], KNOWN) for key in body if key not in KNOWN]
    given = next((body[name] for name in _IDS if body.get(name) is not None), None)
    if given is None and body.get("name"):
        given = fresh_id
    if not isinstance(given, str):
        faults.append(Fault("id", shown(given), "the id of the tenant, or a name"))
    native = {name: body[name] for name in FIELDS if name in body}
    native |= {ours: body[theirs] for theirs, ours in _SETTINGS.items() if theirs in body}
    limits = {ours: _ours(body[w], by) for w, (ours, by) in _LIMITS.items() if w in body}
    quota = native.get("quota")
    if limits:
        native["quota"] = {**(quota if isinstance(quota, Mapping) else {}), **limits}
    tier = body.get("priority_tier")
    if tier is not None:
        word = _OTHER_TIERS.get(str(tier), str(tier))
        if word in TIERS:
            native["priority_max"] = TIERS[word]
        else:
            faults.append(Fault("priority_tier", shown(tier), f"one of: {', '.join(TIERS)}"))
    if faults:
        raise BadInput(faults)
    return str(given), native


def tenant_refusal(error: BadInput) -> BadInput:
    """The same faults in their fields."""
    return BadInput([replace(f, field=_RENAMED.get(f.field, f.field)) for f in error.faults])


def _ours(value: object, factor: int) -> object:
    """What is no number is left to the check of the field."""
    if factor == 1 or isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return value / factor
