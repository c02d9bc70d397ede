"""Tenants in the words of multi-tenant clients. Their API is our native one; only tenants have two
sets of names, theirs beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.errors import BadInput, Fault
from core.queueing import class_of
from core.submission import nearest, shown
from core.tenant_settings import FIELDS
from core.tenants import Tenant

TIERS: Mapping[str, int] = {"low": 499, "normal": 999, "high": 1999, "urgent": 9999}
"""Tier → the highest priority that its jobs may ask for."""
_OTHER_TIERS = {"standard": "normal", "premium": "high", "critical": "urgent"}
_LIMITS: Mapping[str, tuple[str, int]] = {
    "max_gpus": ("gpus", 1),
    "max_gpu_memory_mb": ("gpu_memory_gb", 1024),
    "max_cpu_cores": ("cpus", 1),
    "max_memory_mb": ("memory_gb", 1024),
    "max_concurrent_jobs": ("jobs", 1),
}
"""Theirs → ours, and how many of theirs are one of ours."""
_SETTINGS = {"fair_share_weight": "weight", "allow_preemption": "may_preempt"}
_IDS = ("id", "tenant_id")
KNOWN = (*_IDS, *_LIMITS, "priority_tier", *_SETTINGS, *FIELDS)
_RENAMED = {
    **{f"quota.{ours}": theirs for theirs, (ours, _) in _LIMITS.items()},
    **{ours: theirs for theirs, ours in _SETTINGS.items()},
    "tenant_id": "id",
}


def tenant_words(tenant: Tenant) -> dict[str, Any]:
    """The fields that those clients read."""
    words: dict[str, Any] = {"id": tenant.tenant_id, "name": tenant.name or tenant.tenant_id}
    for theirs, (ours, factor) in _LIMITS.items():
        limit = getattr(tenant.quota, ours)
        words[theirs] = None if limit is None else round(limit * factor)
    words["priority_tier"] = class_of(tenant.priority_max).name.lower()
    words["fair_share_weight"] = tenant.weight
    words["allow_preemption"] = tenant.may_preempt
    return words


def native_of_tenant(body: object) -> tuple[str, dict[str, object]]:
    """(id, settings in our words); BadInput for what neither of us knows."""
    if not isinstance(body, Mapping):
        raise BadInput([Fault("body", shown(body), "an object")])
    faults = [
        Fault(str(key)[:60], "a field we do not know", nearest(str(key), KNOWN))
        for key in body
        if key not in KNOWN
    ]
    given = next((body[name] for name in (*_IDS, "name") if body.get(name) is not None), None)
    if not isinstance(given, str):
        faults.append(Fault("id", shown(given), "the id of the tenant"))
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
    return BadInput(
        [Fault(_RENAMED.get(f.field, f.field), f.got, f.expected) for f in error.faults]
    )


def _ours(value: object, factor: int) -> object:
    """What is no number is left to the check of the field."""
    if factor == 1 or isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return value / factor
