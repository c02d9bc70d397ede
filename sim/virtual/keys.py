"""Keys of simulated publishers: a message of another tenant than its topic's carries one."""

from __future__ import annotations

from datetime import UTC, datetime

from core.access import Grant, Scope
from core.access_store import KnownKey
from core.api_keys import ApiKey, key_text, parse_key
from core.submit_topics import NOBODY
from sim.virtual.workload import TENANTS

_MADE_AT = datetime(2026, 1, 1, tzinfo=UTC)


def key_of(tenant_id: str) -> str:
    """What the tenant's publisher sends."""
    return key_text(tenant_id.ljust(12, "0"), tenant_id.encode().ljust(32))


def known_keys() -> list[KnownKey]:
    """One for each tenant."""
    return [_known(tenant_id) for tenant_id in TENANTS]


def _known(tenant_id: str) -> KnownKey:
    parsed = parse_key(key_of(tenant_id))
    assert parsed is not None, "the names of tenants fit into keys"
    key = ApiKey(
        key_id=parsed[0],
        hash=parsed[1],
        name=tenant_id,
        user_id=NOBODY,
        created_at=_MADE_AT,
        created_by="the simulation",
        scopes=frozenset({Scope.ON_BEHALF_OF}),
    )
    return KnownKey(key, (Grant(key.principal, tenant_id, "submitter"),))
