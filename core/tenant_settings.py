"""A change of a tenant's settings as somebody sends it: checked field by field, every fault at
once. A field that is left out stays as it is; null takes a limit away."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from core.errors import BadInput, Fault
from core.submission import nearest, shown, unknown
from core.tenants import Consent, Quota, Tenant, TenantSetting, settings_of

TENANT_WORDS = "1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit"
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

CONSENT = settings_of(Consent)
SETTINGS: Mapping[str, TenantSetting] = {**settings_of(Tenant), **CONSENT}
LIMITS: Mapping[str, TenantSetting] = settings_of(Quota)
FIELDS = (*SETTINGS, "quota")
QUOTA_FIELDS = (*LIMITS, "gpus_by_type")


def changed(name: str, stored: Tenant | None, data: object, gpu_types: Collection[str]) -> Tenant:
    """The tenant as it is to be stored, one version on; BadInput with every fault. `gpu_types`:
    the ones that some cluster has. A deleted tenant begins anew."""
    faults: list[Fault] = []
    if _TENANT.fullmatch(name) is None:
        faults.append(Fault("tenant_id", shown(name), TENANT_WORDS))
    if not isinstance(data, Mapping):
        raise BadInput([*faults, Fault("body", shown(data), "an object")])
    faults += _faults("", data, SETTINGS, FIELDS)
    before = replace(stored or Tenant(name, version=0), deleted=False)
    quota, bad = _quota(before.quota, data.get("quota", {}), gpu_types)
    if faults or bad:
        raise BadInput([*faults, *bad])
    given = _read(data, SETTINGS)
    agreed = {name: given.pop(name) for name in CONSENT if name in given}
    consent = replace(before.consent, **agreed)
    return replace(before, **given, quota=quota, consent=consent, version=before.version + 1)


def deleted(stored: Tenant) -> Tenant:
    """The tenant as it is stored when nobody needs it any more: without settings and limits."""
    return Tenant(stored.tenant_id, version=stored.version + 1, deleted=True)


def _quota(before: Quota, data: object, gpu_types: Collection[str]) -> tuple[Quota, list[Fault]]:
    if data is None:
        return Quota(), []
    if not isinstance(data, Mapping):
        return before, [Fault("quota", shown(data), "an object, or null for no limits")]
    faults = _faults("quota.", data, LIMITS, QUOTA_FIELDS)
    types, bad = _types(before.gpus_by_type, data.get("gpus_by_type", {}), gpu_types)
    faults += bad
    if faults:
        return before, faults
    return replace(before, **_read(data, LIMITS), gpus_by_type=types), []


def _types(
    before: Mapping[str, int], data: object, known: Collection[str]
) -> tuple[dict[str, int], list[Fault]]:
    """A limit of a type that no cluster has would limit nothing, and nobody would notice."""
    if data is None:
        return {}, []
    if not isinstance(data, Mapping):
        return dict(before), [Fault("quota.gpus_by_type", shown(data), "GPU type → number")]
    faults = [
        Fault(f"quota.gpus_by_type.{name}"[:80], shown(number), expected)
        for name, number in data.items()
        if (expected := LIMITS["gpus"].check(number)) is not None
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


def _faults(
    prefix: str,
    data: Mapping[str, object],
    settings: Mapping[str, TenantSetting],
    known: tuple[str, ...],
) -> list[Fault]:
    """Names that there are not, then values that are wrong."""
    strangers = [str(key)[:60] for key in data if key not in known]
    faults = [unknown("field", key, known, f"{prefix}{key}") for key in strangers]
    return faults + [
        Fault(f"{prefix}{key}", shown(data[key]), expected)
        for key, setting in settings.items()
        if key in data and (expected := setting.check(data[key])) is not None
    ]


def _read(data: Mapping[str, object], settings: Mapping[str, TenantSetting]) -> dict[str, Any]:
    return {key: setting.read(data[key]) for key, setting in settings.items() if key in data}
