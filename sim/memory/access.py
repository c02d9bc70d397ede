"""core.access_store.AccessStore in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from core.access import Grant
from core.access_store import GRANTS_MAX, KEYS_MAX, KnownKey, NewSecret
from core.api_keys import ApiKey
from core.audit_log import AuditEntry, AuditRow
from core.errors import Conflict, NotFound


class MemoryAccess:
    """Keys and grants of one service."""

    def __init__(
        self, known: Iterable[KnownKey] = (), audit_log: list[AuditRow] | None = None
    ) -> None:
        self._audit_log = [] if audit_log is None else audit_log
        rows = tuple(known)
        self._keys = {row.key.key_id: row.key for row in rows}
        self._grants = {grant for row in rows for grant in row.grants}

    async def key(self, key_id: str) -> KnownKey | None:
        key = self._keys.get(key_id)
        return self._known(key) if key is not None else None

    async def keys(self, size: int, after: str | None) -> Sequence[KnownKey]:
        behind = sorted(key_id for key_id in self._keys if key_id > (after or ""))
        return [self._known(self._keys[key_id]) for key_id in behind[: min(size, KEYS_MAX)]]

    async def add_key(
        self, key: ApiKey, grants: Sequence[Grant], audited: AuditEntry | None = None
    ) -> None:
        if self._keys.setdefault(key.key_id, key).hash != key.hash:
            raise Conflict(f"there is already a key {key.key_id}")
        self._grants.update(grants)
        self._audit(audited)

    async def rotate_key(self, new: NewSecret, audited: AuditEntry | None = None) -> ApiKey:
        key = self._stored(new.key_id)
        if key.revoked_at is not None:
            raise Conflict(f"key {new.key_id} was revoked: create a new one")
        rotated = replace(key, hash=new.hash, expires_at=new.expires_at)
        self._keys[new.key_id] = rotated
        self._audit(audited)
        return rotated

    async def revoke_key(
        self, key_id: str, at: datetime, audited: AuditEntry | None = None
    ) -> ApiKey:
        key = self._stored(key_id)
        self._audit(audited)
        self._keys[key_id] = replace(key, revoked_at=key.revoked_at or at)
        return self._keys[key_id]

    async def used(self, key_ids: Sequence[str], at: datetime) -> None:
        for key_id in key_ids:
            if (key := self._keys.get(key_id)) is not None:
                self._keys[key_id] = replace(key, last_used_at=max(key.last_used_at or at, at))

    async def grants(self, principal: str | None = None) -> Sequence[Grant]:
        found = [grant for grant in self._grants if principal in (None, grant.principal)]
        return sorted(found, key=_order)[:GRANTS_MAX]

    async def grants_of(self, principals: Sequence[str]) -> Sequence[Grant]:
        found = [grant for grant in self._grants if grant.principal in principals]
        return sorted(found, key=_order)[:GRANTS_MAX]

    async def add_grant(self, grant: Grant, audited: AuditEntry | None = None) -> bool:
        new = grant not in self._grants
        self._grants.add(grant)
        self._audit(audited if new else None)
        return new

    async def remove_grant(self, grant: Grant, audited: AuditEntry | None = None) -> bool:
        found = grant in self._grants
        self._grants.discard(grant)
        self._audit(audited if found else None)
        return found

    def _audit(self, entry: AuditEntry | None) -> None:
        if entry is not None:
            self._audit_log.append(AuditRow(len(self._audit_log) + 1, entry))

    def _stored(self, key_id: str) -> ApiKey:
        if key_id not in self._keys:
            raise NotFound(f"there is no key {key_id}")
        return self._keys[key_id]

    def _known(self, key: ApiKey) -> KnownKey:
        own = [grant for grant in self._grants if grant.principal == key.principal]
        return KnownKey(key, tuple(sorted(own, key=_order)))


def _order(grant: Grant) -> tuple[str, str, str]:
    return grant.principal, grant.tenant_id, grant.role
