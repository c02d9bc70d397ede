"""Tenants' own secrets: set, deleted, opened for a job's start, sealed with a newer key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from core.audit_log import AuditEntry
from core.errors import BadInput, Conflict, Fault
from core.ports import Ids
from core.secret_references import NAME_WORDS, SECRET_NAME, VALUE_BYTES_MAX
from core.secret_store import SealedSecret, SecretRow, SecretStore
from core.submission import shown
from scheduler.secrets.vault import SecretVault

REKEY_BATCH = 100
VALUE_WORDS = f"text without NUL characters, 1 to {VALUE_BYTES_MAX} bytes of UTF-8"


class NoVault(Conflict):
    """This deployment has no key for secrets: configure one."""


class TenantSecrets:
    """Over the store; without a vault there are none."""

    def __init__(self, store: SecretStore, vault: SecretVault | None, ids: Ids) -> None:
        self._store, self._vault, self._ids = store, vault, ids

    async def names(self, tenant_id: str) -> Sequence[SecretRow]:
        return await self._store.secrets(tenant_id)

    async def known_names(self, tenant_id: str) -> frozenset[str]:
        """For a look whether there is one."""
        return frozenset(row.name for row in await self.names(tenant_id))

    async def put(self, row: SecretRow, value: object, audited: AuditEntry) -> int:
        """The new version. BadInput, whose words never hold the value."""
        faults = []
        if not SECRET_NAME.match(row.name):
            faults.append(Fault("name", shown(row.name), NAME_WORDS))
        data = value_bytes(value)
        if data is None:
            faults.append(Fault("value", "something else", VALUE_WORDS))
        if faults or data is None:
            raise BadInput(faults)
        vault = self._opened()
        sealed = vault.seal(row.tenant_id, row.name, data, self._ids.seed())
        known = replace(row, key_id=vault.key_id)
        return await self._store.put_secret(SealedSecret(known, sealed), audited)

    async def delete(self, tenant_id: str, name: str, audited: AuditEntry) -> bool:
        """False: there was none."""
        return await self._store.delete_secret(tenant_id, name, audited)

    async def value(self, tenant_id: str, name: str) -> str | None:
        """None: the tenant has no such secret."""
        stored = await self._store.secret(tenant_id, name)
        if stored is None:
            return None
        return self._unsealed(self._opened(), stored).decode()

    async def rekey(self, audited: Callable[[SecretRow], AuditEntry]) -> int:
        """Seal everything with the first key of the file; how many were sealed with another."""
        vault, moved = self._opened(), 0
        while found := await self._store.sealed_otherwise(vault.key_id, REKEY_BATCH):
            for stored in found:
                row, value = stored.row, self._unsealed(vault, stored)
                sealed = vault.seal(row.tenant_id, row.name, value, self._ids.seed())
                again = SealedSecret(replace(row, key_id=vault.key_id), sealed)
                moved += await self._store.reseal(again, audited(row))
        return moved

    def _unsealed(self, vault: SecretVault, stored: SealedSecret) -> bytes:
        row = stored.row
        return vault.unseal(row.tenant_id, row.name, row.key_id, stored.sealed)

    def _opened(self) -> SecretVault:
        if self._vault is None:
            raise NoVault(
                "this deployment stores no secrets: `zen secrets key FILE` makes a key, "
                "secrets.key_file in the configuration names it"
            )
        return self._vault


def row_of(tenant_id: str, name: str, now: datetime, by: str) -> SecretRow:
    """A secret that is set now; the store counts its version."""
    return SecretRow(tenant_id, name, 0, "", now, by)


def value_bytes(value: object) -> bytes | None:
    """What a variable of the environment can hold; None: it cannot."""
    if not isinstance(value, str) or not value or "\0" in value:
        return None
    try:
        data = value.encode()
    except UnicodeEncodeError:
        return None
    return data if len(data) <= VALUE_BYTES_MAX else None
