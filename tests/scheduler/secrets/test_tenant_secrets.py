"""Tenants' own secrets: what is stored, and what keys change."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from core.audit_log import Actor, AuditAction, AuditEntry
from core.errors import BadInput
from core.ids import RandomIds
from core.secret_references import VALUE_BYTES_MAX
from core.secret_store import SecretRow
from scheduler.secrets.tenant_secrets import NoVault, TenantSecrets, row_of
from scheduler.secrets.vault import SecretVault
from sim.memory.secrets import MemorySecrets

NOW = datetime(2026, 1, 31, tzinfo=UTC)
ROW = row_of("ml", "TOKEN", NOW, "key:owner")
OLD, NEW = b"o" * 32, b"n" * 32


def audited(row: SecretRow) -> AuditEntry:
    return AuditEntry(NOW, Actor("key:owner"), AuditAction.SECRET_SET, row.name, row.tenant_id)


def over(store: MemorySecrets, *keys: bytes) -> TenantSecrets:
    vault = SecretVault(keys) if keys else None
    return TenantSecrets(store, vault, RandomIds(random.Random(3)))


async def test_what_is_set_is_found_by_its_tenant_alone() -> None:
    store = MemorySecrets()
    secrets = over(store, OLD)
    assert await secrets.put(ROW, "hush", audited(ROW)) == 1
    assert await secrets.value("ml", "TOKEN") == "hush"
    assert await secrets.value("other", "TOKEN") is None
    stored = await store.secret("ml", "TOKEN")
    assert stored is not None
    assert b"hush" not in stored.sealed


@pytest.mark.parametrize(
    "value", ["", "a\0b", 7, None, "\ud800", "x" * (VALUE_BYTES_MAX + 1), ["hush"]]
)
async def test_what_no_variable_can_hold_is_refused_and_not_repeated(value: object) -> None:
    with pytest.raises(BadInput, match="text without NUL") as refused:
        await over(MemorySecrets(), OLD).put(ROW, value, audited(ROW))
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("name", ["", "a/b", "x" * 129, "é"])
async def test_a_bad_name_is_refused(name: str) -> None:
    row = row_of("ml", name, NOW, "key:owner")
    with pytest.raises(BadInput, match="name"):
        await over(MemorySecrets(), OLD).put(row, "hush", audited(row))


async def test_keys_are_rotated_without_losing_a_secret() -> None:
    store = MemorySecrets()
    await over(store, OLD).put(ROW, "hush", audited(ROW))
    both = over(store, NEW, OLD)
    assert await both.value("ml", "TOKEN") == "hush"
    assert await both.rekey(audited) == 1
    assert await both.rekey(audited) == 0
    assert await over(store, NEW).value("ml", "TOKEN") == "hush"


async def test_without_a_key_the_answer_says_how_to_make_one() -> None:
    with pytest.raises(NoVault, match=r"secrets\.key_file"):
        await over(MemorySecrets()).put(ROW, "hush", audited(ROW))
