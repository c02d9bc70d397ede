"""Keys for tests of the API: a client that has one for everything, and ones that have less."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

from core.access import Grant, Scope
from core.access_rules import AccessRules
from core.access_store import KnownKey
from core.api_keys import ApiKey, key_text, parse_key
from core.ids import RandomIds
from core.ports import Clock
from scheduler.access.owner_key import owner_of
from scheduler.api.services import ApiAccess
from sim.memory.access import MemoryAccess
from sim.memory.audit_log import MemoryAuditLog
from sim.memory.sessions import MemorySessions
from sim.memory.store import MemoryStore

MADE = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = key_text("owner0000000", bytes(32))


def bearer(key: str) -> dict[str, str]:
    """The header of a request with this key."""
    return {"authorization": f"Bearer {key}"}


def known(
    key_id: str,
    *roles: tuple[str, str],
    user_id: str = "ada",
    scopes: frozenset[Scope] = frozenset(),
) -> tuple[str, KnownKey]:
    """(text, key) of a principal with these (tenant, role) grants."""
    text = key_text(key_id, key_id.encode().ljust(32))
    parsed = parse_key(text)
    assert parsed is not None
    key = ApiKey(*parsed, key_id, user_id, MADE, "key:owner0000000", scopes=scopes)
    grants = tuple(Grant(key.principal, tenant_id, role) for tenant_id, role in roles)
    return text, KnownKey(key, grants)


def owner_only(
    clock: Clock,
    store: MemoryStore | None = None,
    *keys: KnownKey,
    rules: Callable[[], AccessRules] = AccessRules,
) -> ApiAccess:
    """OWNER opens everything; the other keys what their grants allow."""
    parsed = parse_key(OWNER)
    assert parsed is not None
    store = store or MemoryStore(clock)
    access = MemoryAccess([owner_of(parsed, MADE), *keys], store.tables.audit_log)
    sessions = MemorySessions(store.tables.audit_log)
    return ApiAccess.over(
        access, sessions, MemoryAuditLog(store), rules, clock, RandomIds(random.Random(7))
    )
