"""The first key: an operator who may write to the database makes its owner's key."""

from __future__ import annotations

import os
import socket
from datetime import datetime
from pathlib import Path

from core.access import ALL_TENANTS, Grant, Scope
from core.access_store import AccessStore, KnownKey
from core.api_keys import ApiKey, key_text, opens, parse_key
from core.audit_log import Actor, AuditAction, AuditEntry
from core.clock import SystemClock
from core.errors import BadInput, Conflict, Fault
from core.ids import RandomIds
from core.ports import Clock
from db.access import PostgresAccess
from db.store import PostgresStore

ROLES = ("admin", "member", "operator")
USER = "0"
"""Jobs that name no user are this user's, as on routes that know no users."""


async def store_owner_key(url: str, file: Path) -> None:
    """The key in the file, or a new one, opens everything on this database."""
    text = _read_or_make(file)
    store = PostgresStore(url)
    await store.open()
    try:
        await add_owner_key(PostgresAccess(store), text, SystemClock(), str(file))
    finally:
        await store.close()


async def add_owner_key(access: AccessStore, text: str, clock: Clock, file: str) -> None:
    """Idempotent. Conflict: it was revoked."""
    parsed = parse_key(text)
    if parsed is None:
        expected = "an API key: zen_<id>_<64 hexadecimal digits>"
        raise BadInput([Fault("--owner-key", f"a file {file} without one", expected)])
    known = await access.key(parsed[0])
    if known is not None and known.key.revoked_at is not None:
        raise Conflict(f"the key in {file} was revoked: delete the file to get a new one")
    if known is not None and not opens(known.key, parsed[1]):
        raise Conflict(
            f"the key in {file} has another secret now (zen keys rotate): put the new one there, "
            "or delete the file to get a new owner's key"
        )
    owner = owner_of(parsed, clock.now())
    there = known is not None and set(owner.grants) <= set(known.grants)
    await access.add_key(owner.key, owner.grants, None if there else _made(owner))


def owner_of(parsed: tuple[str, bytes], now: datetime) -> KnownKey:
    """A key that opens everything, by its id and hash."""
    key = ApiKey(
        key_id=parsed[0],
        hash=parsed[1],
        name="owner",
        user_id=USER,
        created_at=now,
        created_by="the owner of the database",
        scopes=frozenset({Scope.ON_BEHALF_OF}),
    )
    return KnownKey(key, tuple(Grant(key.principal, ALL_TENANTS, role) for role in ROLES))


def _made(owner: KnownKey) -> AuditEntry:
    key = owner.key
    who = Actor("database-owner", key.user_id, socket.gethostname())
    detail = {"roles": ", ".join(grant.role for grant in owner.grants), "tenants": ALL_TENANTS}
    target = f"key/{key.key_id}"
    return AuditEntry(key.created_at, who, AuditAction.KEY_CREATE, target, detail=detail)


def _read_or_make(file: Path) -> str:
    """Two that start at once agree on one key: the file appears whole, or not at all."""
    if not file.exists():
        key_id, secret = RandomIds().api_key()
        fresh = file.with_name(f".{file.name}.{os.getpid()}")
        with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as out:
            out.write(key_text(key_id, secret) + "\n")
        try:
            os.link(fresh, file)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return file.read_text(encoding="utf-8").strip()
