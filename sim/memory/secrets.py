"""core.secret_store.SecretStore in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core.audit_log import AuditEntry, AuditRow
from core.errors import Conflict
from core.secret_store import SECRETS_OF_TENANT_MAX, SealedSecret, SecretRow


class MemorySecrets:
    """Secrets of one service."""

    def __init__(self, audit_log: list[AuditRow] | None = None) -> None:
        self._audit_log = [] if audit_log is None else audit_log
        self._stored: dict[tuple[str, str], SealedSecret] = {}

    async def secrets(self, tenant_id: str) -> Sequence[SecretRow]:
        own = [one.row for (tenant, _), one in self._stored.items() if tenant == tenant_id]
        return sorted(own, key=lambda row: row.name)

    async def secret(self, tenant_id: str, name: str) -> SealedSecret | None:
        return self._stored.get((tenant_id, name))

    async def put_secret(self, secret: SealedSecret, audited: AuditEntry | None = None) -> int:
        row = secret.row
        known = self._stored.get((row.tenant_id, row.name))
        if known is None and len(await self.secrets(row.tenant_id)) >= SECRETS_OF_TENANT_MAX:
            raise Conflict(
                f"tenant {row.tenant_id} has {SECRETS_OF_TENANT_MAX} secrets: delete one first"
            )
        version = known.row.version + 1 if known is not None else 1
        self._stored[row.tenant_id, row.name] = replace(secret, row=replace(row, version=version))
        self._audit(audited)
        return version

    async def delete_secret(
        self, tenant_id: str, name: str, audited: AuditEntry | None = None
    ) -> bool:
        found = self._stored.pop((tenant_id, name), None) is not None
        self._audit(audited if found else None)
        return found

    async def sealed_otherwise(self, key_id: str, size: int) -> Sequence[SealedSecret]:
        others = [
            one for _, one in sorted(self._stored.items(), key=_place) if one.row.key_id != key_id
        ]
        return others[:size]

    async def reseal(self, secret: SealedSecret, audited: AuditEntry | None = None) -> bool:
        row = secret.row
        known = self._stored.get((row.tenant_id, row.name))
        if known is None or known.row.version != row.version:
            return False
        stored = replace(known.row, key_id=row.key_id)
        self._stored[row.tenant_id, row.name] = SealedSecret(stored, secret.sealed)
        self._audit(audited)
        return True

    def _audit(self, entry: AuditEntry | None) -> None:
        if entry is not None:
            self._audit_log.append(AuditRow(len(self._audit_log) + 1, entry))


def _place(item: tuple[tuple[str, str], SealedSecret]) -> tuple[str, str]:
    return item[0]
