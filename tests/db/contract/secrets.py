"""Sealed secrets of tenants: what every SecretStore does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.errors import Conflict
from core.secret_store import SealedSecret, SecretRow, SecretStore
from tests.db.builders import at

ROW = SecretRow("team-a", "HF_TOKEN", 1, "key1", at(1), "key:owner")
TOKEN = SealedSecret(ROW, b"sealed")


class Secrets:
    bounded: tuple[str, ...] = ()
    """Modules that know the bound of a tenant."""

    async def test_a_secret_comes_back_as_it_was_stored(self, secrets: SecretStore) -> None:
        """To its own tenant alone."""
        assert await secrets.put_secret(TOKEN) == 1
        assert await secrets.secret("team-a", "HF_TOKEN") == TOKEN
        assert await secrets.secrets("team-a") == [ROW]
        assert await secrets.secret("team-b", "HF_TOKEN") is None
        assert await secrets.secrets("team-b") == []

    async def test_each_value_is_a_new_version(self, secrets: SecretStore) -> None:
        """Only the newest is kept."""
        await secrets.put_secret(TOKEN)
        newer = SealedSecret(replace(ROW, version=0, updated_at=at(5)), b"other")
        assert await secrets.put_secret(newer) == 2
        stored = await secrets.secret("team-a", "HF_TOKEN")
        assert stored == SealedSecret(replace(ROW, version=2, updated_at=at(5)), b"other")

    async def test_a_deleted_secret_is_gone(self, secrets: SecretStore) -> None:
        """Once; another tenant deletes nothing."""
        await secrets.put_secret(TOKEN)
        assert not await secrets.delete_secret("team-b", "HF_TOKEN")
        assert await secrets.delete_secret("team-a", "HF_TOKEN")
        assert not await secrets.delete_secret("team-a", "HF_TOKEN")
        assert await secrets.secret("team-a", "HF_TOKEN") is None

    async def test_secrets_are_sealed_again_with_a_newer_key(self, secrets: SecretStore) -> None:
        """One that was set meanwhile is left as it is."""
        for name in ("A", "B"):
            await secrets.put_secret(SealedSecret(replace(ROW, name=name), b"old"))
        first, second = await secrets.sealed_otherwise("key2", 10)
        assert [first.row.name, second.row.name] == ["A", "B"]
        assert len(await secrets.sealed_otherwise("key2", 1)) == 1
        await secrets.put_secret(SealedSecret(replace(ROW, name="B"), b"newer"))
        assert await secrets.reseal(SealedSecret(replace(first.row, key_id="key2"), b"new"))
        assert not await secrets.reseal(SealedSecret(replace(second.row, key_id="key2"), b"new"))
        stored = await secrets.secret("team-a", "A")
        assert stored == SealedSecret(replace(ROW, name="A", key_id="key2"), b"new")
        assert [one.row.name for one in await secrets.sealed_otherwise("key2", 10)] == ["B"]

    async def test_a_tenant_has_a_bound(
        self, secrets: SecretStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A new value of a secret that there is passes."""
        for module in self.bounded:
            monkeypatch.setattr(f"{module}.SECRETS_OF_TENANT_MAX", 2)
        for name in ("A", "B", "B"):
            await secrets.put_secret(SealedSecret(replace(ROW, name=name), b"1"))
        with pytest.raises(Conflict, match="delete one first"):
            await secrets.put_secret(SealedSecret(replace(ROW, name="C"), b"1"))
        await secrets.put_secret(SealedSecret(replace(ROW, tenant_id="team-b"), b"1"))
