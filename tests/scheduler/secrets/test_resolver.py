"""References become values: of the tenant's own secrets, and of projects that it may use."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from core.audit_log import Actor, AuditAction, AuditEntry
from core.errors import SecretRefused, SecretsAway
from core.ids import RandomIds
from core.secret_references import VALUE_BYTES_MAX, ManagedSecret
from scheduler.secrets.resolver import SecretResolver
from scheduler.secrets.tenant_secrets import TenantSecrets, row_of
from scheduler.secrets.vault import SecretVault
from sim.memory.secrets import MemorySecrets

NOW = datetime(2026, 1, 31, tzinfo=UTC)
AUDITED = AuditEntry(NOW, Actor("key:owner"), AuditAction.SECRET_SET, "secret/TOKEN", "ml")


class Manager:
    """Secret Manager of one project."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    async def access(self, secret: ManagedSecret) -> bytes:
        if secret.name not in self.values:
            raise SecretRefused(f"secret {secret.name} does not exist")
        return self.values[secret.name]


async def resolver(manager: Manager | None = None) -> SecretResolver:
    ids = RandomIds(random.Random(3))
    stored = TenantSecrets(MemorySecrets(), SecretVault([bytes(32)]), ids)
    await stored.put(row_of("ml", "TOKEN", NOW, "key:owner"), "hush", AUDITED)
    allowed = {"ml": ("ml-project",)}
    return SecretResolver(stored, manager or Manager(), lambda tenant: allowed.get(tenant, ()))


async def test_a_tenant_gets_its_own() -> None:
    manager = Manager()
    manager.values = {"hf": "né".encode()}
    references = {"A": "zen://TOKEN", "B": "sm://ml-project/hf/versions/3"}
    found = await (await resolver(manager)).resolve("ml", references)
    assert found == {"A": "hush", "B": "né"}


@pytest.mark.parametrize(
    ("tenant", "reference", "words"),
    [
        (
            "ops",
            "zen://TOKEN",
            "tenant ops has no secret zen://TOKEN; set it with: zen secrets set",
        ),
        ("ml", "zen://OTHER", "zen secrets set OTHER"),
        ("ops", "sm://ml-project/hf", r"tenants\.ops\.secret_projects"),
        ("ml", "sm://other-project/hf", "may not use secrets of project other-project"),
        ("ml", "sm://ml-project/none", "does not exist"),
        ("ml", "hush", "no reference"),
    ],
)
async def test_what_it_may_not_have_is_refused_with_the_variable(
    tenant: str, reference: str, words: str
) -> None:
    with pytest.raises(SecretRefused, match=words) as refused:
        await (await resolver()).resolve(tenant, {"HF_TOKEN": reference})
    assert str(refused.value).startswith("secrets.HF_TOKEN: ")


@pytest.mark.parametrize("value", [b"", b"a\0hush", b"\xffhush", b"x" * (VALUE_BYTES_MAX + 1)])
async def test_what_no_variable_can_hold_is_refused_and_not_repeated(value: bytes) -> None:
    manager = Manager()
    manager.values = {"hf": value}
    with pytest.raises(SecretRefused, match="is not 1 to") as refused:
        await (await resolver(manager)).resolve("ml", {"A": "sm://ml-project/hf"})
    assert "hush" not in str(refused.value)


async def test_all_values_together_are_bounded() -> None:
    manager = Manager()
    manager.values = {"hf": b"x" * VALUE_BYTES_MAX}
    many = {f"V{n}": "sm://ml-project/hf" for n in range(9)}
    with pytest.raises(SecretRefused, match="together"):
        await (await resolver(manager)).resolve("ml", many)


async def test_a_key_that_this_replica_has_not_yet_is_waited_for() -> None:
    """The key file is given to one replica after another."""
    store, ids = MemorySecrets(), RandomIds(random.Random(3))
    newer = TenantSecrets(store, SecretVault([b"n" * 32]), ids)
    await newer.put(row_of("ml", "TOKEN", NOW, "key:owner"), "hush", AUDITED)
    older = TenantSecrets(store, SecretVault([b"o" * 32]), ids)
    with pytest.raises(SecretsAway, match="which the key file has not"):
        await SecretResolver(older, Manager(), lambda _: ()).resolve("ml", {"A": "zen://TOKEN"})
