"""A change of a tenant's settings as somebody sends it: checked field by field, every fault at
once. A field that is left out stays as it is; null takes a limit away."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from core.errors import BadInput, Fault
from core.queueing import PRIORITY_HIGHEST
from core.submission import nearest, shown, unknown
from core.tenants import Quota, Tenant

TENANT_WORDS = "1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit"
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

_MOST = 1e9
_Check = tuple[Callable[[object], bool], str]


def _whole(high: int, low: int = 0) -> _Check:
    def good(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return good, f"a whole number from {low} to {high}"


def _amount(low_words: str, above: float | None = None) -> _Check:
    def good(value: object) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value):  # type: ignore[arg-type]
            return False
        enough = value > above if above is not None else value >= 0  # type: ignore[operator]
        return enough and value <= _MOST  # type: ignore[operator]

    return good, f"a number {low_words}"


_FLAG: _Check = (lambda value: isinstance(value, bool), "true or false")
_NAME: _Check = (
    lambda value: isinstance(value, str) and len(value) <= 128 and value.isprintable(),
    "at most 128 printable characters",
)
SETTINGS: Mapping[str, _Check] = {
    "name": _NAME,
    "weight": _amount("above 0", above=0),
    "priority_max": _whole(PRIORITY_HIGHEST),
    "may_preempt": _FLAG,
    "preemptible": _FLAG,
}
LIMITS: Mapping[str, _Check] = {
    "gpus": _whole(10_000_000),
    "gpu_memory_gb": _amount("from 0 on"),
    "cpus": _amount("from 0 on"),
    "memory_gb": _amount("from 0 on"),
    "jobs": _whole(10_000_000),
    "usd_per_day": _amount("above 0", above=0),
    "usd_per_month": _amount("above 0", above=0),
}
CONSENT: Mapping[str, _Check] = {"spot": _FLAG, "allow_larger": _FLAG}
CONFIRM = "confirm_above_usd_per_hour"
CONFIRM_CHECK: Mapping[str, _Check] = {CONFIRM: _amount("from 0 on")}
FIELDS = (*SETTINGS, *CONSENT, CONFIRM, "quota")
QUOTA_FIELDS = (*LIMITS, "gpus_by_type")


def changed(name: str, stored: Tenant | None, data: object, gpu_types: Collection[str]) -> Tenant:
    """The tenant as it is to be stored, one version on; BadInput with every fault. `gpu_types`:
    those that some cluster has. A deleted tenant begins anew."""
    faults: list[Fault] = []
    if _TENANT.fullmatch(name) is None:
        faults.append(Fault("tenant_id", shown(name), TENANT_WORDS))
    if not isinstance(data, Mapping):
        raise BadInput([*faults, Fault("body", shown(data), "an object")])
    faults += _unknown("", data, FIELDS)
    settings = {k: data[k] for k in SETTINGS if k in data}
    faults += _faults("", settings, SETTINGS, nullable=False)
    agreed = {k: data[k] for k in CONSENT if k in data}
    faults += _faults("", agreed, CONSENT, nullable=False)
    confirm = {CONFIRM: data[CONFIRM]} if CONFIRM in data else {}
    faults += _faults("", confirm, CONFIRM_CHECK, nullable=True)
    before = stored or Tenant(name, version=0)
    before = replace(before, deleted=False)
    quota, bad = _quota(before.quota, data.get("quota", {}), gpu_types)
    if faults or bad:
        raise BadInput([*faults, *bad])
    consent = replace(before.consent, **agreed, **confirm)
    version = before.version + 1
    return replace(before, **settings, quota=quota, consent=consent, version=version)


def deleted(stored: Tenant) -> Tenant:
    """The tenant as it is stored when nobody needs it any more: without settings and limits."""
    return Tenant(stored.tenant_id, version=stored.version + 1, deleted=True)


def _quota(before: Quota, data: object, gpu_types: Collection[str]) -> tuple[Quota, list[Fault]]:
    if data is None:
        return Quota(), []
    if not isinstance(data, Mapping):
        return before, [Fault("quota", shown(data), "an object, or null for no limits")]
    faults = _unknown("quota.", data, QUOTA_FIELDS)
    limits = {k: data[k] for k in LIMITS if k in data}
    faults += _faults("quota.", limits, LIMITS, nullable=True)
    types, bad = _types(before.gpus_by_type, data.get("gpus_by_type", {}), gpu_types)
    faults += bad
    return (before, faults) if faults else (replace(before, **limits, gpus_by_type=types), [])


def _types(
    before: Mapping[str, int], data: object, known: Collection[str]
) -> tuple[dict[str, int], list[Fault]]:
    """A limit of a type that no cluster has would limit nothing, and nobody would notice."""
    if data is None:
        return {}, []
    if not isinstance(data, Mapping):
        return dict(before), [Fault("quota.gpus_by_type", shown(data), "GPU type → number")]
    good, expected = LIMITS["gpus"]
    faults = [
        Fault(f"quota.gpus_by_type.{name}"[:80], shown(number), f"{expected}, or null")
        for name, number in data.items()
        if number is not None and not good(number)
    ]
    faults += [
        Fault(
            "quota.gpus_by_type", shown(name), f"a GPU type of a cluster ({nearest(name, known)})"
        )
        for name, number in data.items()
        if number is not None and name not in known
    ]
    merged: dict[str, Any] = {**before, **data}
    return {name: number for name, number in merged.items() if number is not None}, faults


def _unknown(prefix: str, data: Mapping[str, object], known: tuple[str, ...]) -> list[Fault]:
    strangers = [str(key)[:60] for key in data if key not in known]
    return [unknown("field", key, known, f"{prefix}{key}") for key in strangers]


def _faults(
    prefix: str, data: Mapping[str, object], checks: Mapping[str, _Check], *, nullable: bool
) -> list[Fault]:
    return [
        Fault(f"{prefix}{key}", shown(value), checks[key][1] + (", or null" if nullable else ""))
        for key, value in data.items()
        if not (value is None and nullable) and not checks[key][0](value)
    ]
