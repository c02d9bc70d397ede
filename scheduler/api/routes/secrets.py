"""Secrets of tenants. Values come in and never go out."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from starlette.requests import Request

from core.access import Right
from core.audit_log import AuditAction, AuditEntry
from core.errors import BadInput, Fault, NotFound
from core.secret_references import NAME_WORDS, VALUE_BYTES_MAX
from core.secret_store import SecretRow
from scheduler.access.authenticator import NotAllowed
from scheduler.api.caller import ApiCaller
from scheduler.api.http.endpoint import Body, Routes, read_json, route
from scheduler.api.http.params import Param, Query
from scheduler.api.shapes import iso
from scheduler.secrets.tenant_secrets import row_of

_TENANT = Param("tenant_id", "text", "Whose; without it your tenant.")
_VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"value": {"type": "string", "minLength": 1, "maxLength": VALUE_BYTES_MAX}},
    "required": ["value"],
}


class SecretOut(msgspec.Struct, frozen=True):
    """A secret without its value."""

    tenant_id: str
    name: str
    version: int
    """How often it was set."""
    reference: str
    """For the field `secrets` of a job."""
    updated_at: str
    updated_by: str


class SecretsOut(msgspec.Struct, frozen=True):
    """All secrets of a tenant, by name."""

    secrets: tuple[SecretOut, ...]


class SecretDeletedOut(msgspec.Struct, frozen=True):
    """It is gone."""

    tenant_id: str
    name: str


class RekeyedOut(msgspec.Struct, frozen=True):
    """Stored secrets were sealed with the newest key."""

    sealed: int
    """How many had another one."""


class SecretRoutes(Routes):
    """Secrets of tenants."""

    tag = "secrets"

    @route("GET /api/v1/secrets", Right.SECRETS, "The names.", params=(_TENANT,))
    async def list(self, query: Query, caller: ApiCaller) -> SecretsOut:
        """Names and versions of a tenant's secrets, never their values."""
        rows = await self._services.secrets.names(_tenant(query, caller))
        return SecretsOut(tuple(map(_secret, rows)))

    @route(
        "PUT /api/v1/secrets/{name}",
        Right.SECRETS,
        "It is stored.",
        params=(_TENANT,),
        body=Body(_VALUE, "secret"),
        errors=(409,),
    )
    async def put(self, request: Request, query: Query, caller: ApiCaller) -> SecretOut:
        """Set a secret: a new one, or a new value of one that there is. Jobs that start from now
        on get it."""
        data = await read_json(request)
        if not isinstance(data, dict) or data.keys() != {"value"}:
            # Not what came: it may be the value.
            raise BadInput([Fault("body", "something else", 'an object {"value": "…"}')])
        now, name = self._services.clock.now(), str(request.path_params["name"])
        row = row_of(_tenant(query, caller), name, now, caller.principal.name)
        audited = caller.did(AuditAction.SECRET_SET, _target(name), now, row.tenant_id)
        version = await self._services.secrets.put(row, data["value"], audited)
        return _secret(replace(row, version=version))

    @route(
        "DELETE /api/v1/secrets/{name}",
        Right.SECRETS,
        "It is gone.",
        params=(_TENANT,),
        errors=(404,),
    )
    async def delete(self, request: Request, query: Query, caller: ApiCaller) -> SecretDeletedOut:
        """Delete a secret. Jobs that run keep what they were given; jobs that start fail."""
        tenant_id, name = _tenant(query, caller), str(request.path_params["name"])
        now = self._services.clock.now()
        audited = caller.did(AuditAction.SECRET_DELETE, _target(name), now, tenant_id)
        if not await self._services.secrets.delete(tenant_id, name, audited):
            raise NotFound(f"tenant {tenant_id} has no secret {name[:128]} ({NAME_WORDS})")
        return SecretDeletedOut(tenant_id, name)

    @route("POST /api/v1/secrets/rekey", Right.CONFIG_WRITE, "How many.", errors=(409,))
    async def rekey(self, caller: ApiCaller) -> RekeyedOut:
        """Seal all stored secrets with the first key of the key file; the others may be taken out
        of it afterwards."""
        now = self._services.clock.now()

        def audited(row: SecretRow) -> AuditEntry:
            return caller.did(AuditAction.SECRET_REKEY, _target(row.name), now, row.tenant_id)

        return RekeyedOut(await self._services.secrets.rekey(audited))


def _tenant(query: Query, caller: ApiCaller) -> str:
    tenant_id = query.text("tenant_id") or caller.home_tenant
    if tenant_id in caller.tenants:
        return tenant_id
    raise NotAllowed(f"tenant_id: you may not set secrets of {tenant_id[:80]}")


def _target(name: str) -> str:
    return f"secret/{name[:128]}"


def _secret(row: SecretRow) -> SecretOut:
    return SecretOut(
        tenant_id=row.tenant_id,
        name=row.name,
        version=row.version,
        reference=f"zen://{row.name}",
        updated_at=iso(row.updated_at),
        updated_by=row.updated_by,
    )
