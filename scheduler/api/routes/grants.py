"""Grants: who has which role for which tenant, stored here or by the configuration."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import StrEnum

import msgspec
from starlette.requests import Request

from core.access import ALL_TENANTS, ROLES, Grant, Right
from core.access_rules import ROLE_NAME
from core.audit_log import AuditAction, AuditEntry
from core.errors import BadInput, Fault, NotFound
from core.field_kinds import published
from core.names import JOB_ID
from core.submission import shown
from scheduler.api.caller import ApiCaller
from scheduler.api.http.endpoint import Body, Routes, read_object, route
from scheduler.api.http.params import Param, Query

PRINCIPAL = re.compile(r"(key|user|group):[^\x00-\x1f\x7f]{1,320}\Z")
TENANT_OR_ALL = re.compile(rf"(\*|{JOB_ID.pattern[:-2]})\Z")
_ROLES_DOC = f"{', '.join(ROLES)}, or one of access.roles of the configuration"
ROLE = {"type": "string", "pattern": f"^{ROLE_NAME}$", "description": _ROLES_DOC}
TENANT = {"type": "string", "pattern": published(TENANT_OR_ALL)}
_GRANT_FIELDS: Mapping[str, object] = {
    "principal": {"type": "string", "pattern": published(PRINCIPAL)},
    "tenant_id": TENANT,
    "role": ROLE,
}


def object_schema(fields: Mapping[str, object], *required: str) -> dict[str, object]:
    """Of a body with these fields and no others."""
    found: dict[str, object] = {"type": "object", "additionalProperties": False}
    return {**found, "properties": dict(fields), "required": list(required)}


class GrantSource(StrEnum):
    """Where a grant stands."""

    STORED = "stored"
    CONFIGURATION = "configuration"


class GrantOut(msgspec.Struct, frozen=True):
    """A role of a principal."""

    principal: str
    tenant_id: str
    role: str
    source: GrantSource
    """`configuration`: of the section `access`, and changed there alone."""


class GrantsOut(msgspec.Struct, frozen=True):
    """Roles of principals."""

    grants: tuple[GrantOut, ...]


class GrantRoutes(Routes):
    """Grants."""

    tag = "access"

    @route(
        "GET /api/v1/grants",
        Right.GRANTS,
        "The roles.",
        params=(Param("principal", "text", "Only of this one."),),
    )
    async def grants(self, query: Query) -> GrantsOut:
        """Who has which role for which tenant."""
        only = query.text("principal")
        stored = await self._services.access.store.grants(only)
        configured = self._services.settings.current.access.grants
        said = [
            _shown(grant, GrantSource.CONFIGURATION)
            for principal, grants in sorted(configured.items())
            for grant in grants
            if only in (None, principal)
        ]
        return GrantsOut((*(_shown(grant, GrantSource.STORED) for grant in stored), *said))

    @route(
        "POST /api/v1/grants",
        Right.GRANTS,
        "The role.",
        body=Body(object_schema(_GRANT_FIELDS, *_GRANT_FIELDS), "new grant"),
    )
    async def add_grant(self, request: Request, caller: ApiCaller) -> GrantOut:
        """Give a role; safe to repeat."""
        data = await read_object(request, tuple(_GRANT_FIELDS))
        grant = _checked_grant(data, self._services.settings.current.access.roles)
        if expected := self._services.settings.current.access.unclear(grant.principal):
            raise BadInput([Fault("principal", shown(grant.principal), expected)])
        audited = self._grant_entry(caller, AuditAction.GRANT_ADD, grant)
        await self._services.access.store.add_grant(grant, audited)
        return _shown(grant, GrantSource.STORED)

    @route(
        "DELETE /api/v1/grants",
        Right.GRANTS,
        "The role that was taken away.",
        params=tuple(Param(name, "text", "Of the grant.") for name in _GRANT_FIELDS),
        errors=(404,),
    )
    async def remove_grant(self, query: Query, caller: ApiCaller) -> GrantOut:
        """Take a role away."""
        # Also of a role that the configuration has no more.
        grant = _checked_grant({name: query.text(name) for name in _GRANT_FIELDS}, None)
        audited = self._grant_entry(caller, AuditAction.GRANT_REMOVE, grant)
        if not await self._services.access.store.remove_grant(grant, audited):
            raise NotFound(self._not_stored(grant))
        return _shown(grant, GrantSource.STORED)

    def _not_stored(self, grant: Grant) -> str:
        words = f"{grant.principal} is not {grant.role} of {grant.tenant_id}"
        if grant in self._services.settings.current.access.grants.get(grant.principal, ()):
            return f"{words} by a stored grant: the configuration says it (section access)"
        return words

    def _grant_entry(self, caller: ApiCaller, action: AuditAction, grant: Grant) -> AuditEntry:
        entry = caller.did(
            action, f"grant/{grant.principal}", self._services.clock.now(), grant.tenant_id
        )
        return replace(entry, detail={"role": grant.role})


def _shown(grant: Grant, source: GrantSource) -> GrantOut:
    return GrantOut(grant.principal, grant.tenant_id, grant.role, source)


def _checked_grant(data: Mapping[str, object], roles: Collection[str] | None) -> Grant:
    faults: list[Fault] = []
    grant = read_grant(data, faults, roles)
    if faults:
        raise BadInput(faults)
    return grant


def read_grant(
    data: Mapping[str, object], faults: list[Fault], roles: Collection[str] | None
) -> Grant:
    """`roles`: which may be given; None: a role of any name."""
    principal, tenant_id, role = (data.get(field) for field in _GRANT_FIELDS)
    if not isinstance(principal, str) or not PRINCIPAL.match(principal):
        expected = "key:<id>, user:<e-mail> or group:<name>"
        faults.append(Fault("principal", shown(principal), expected))
    if not isinstance(tenant_id, str) or not TENANT_OR_ALL.match(tenant_id):
        faults.append(Fault("tenant_id", shown(tenant_id), f"a tenant, or {ALL_TENANTS} for all"))
    if not isinstance(role, str) or not re.fullmatch(ROLE_NAME, role):
        faults.append(Fault("role", shown(role), "the name of a role"))
    elif roles is not None and role not in roles:
        faults.append(Fault("role", shown(role), f"one of {', '.join(sorted(roles))}"))
    if isinstance(principal, str) and principal.startswith("user:"):
        principal = principal.lower()  # as identities have it
    return Grant(str(principal), str(tenant_id), str(role))
