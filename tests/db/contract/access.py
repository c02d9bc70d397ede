"""Keys and grants: what every AccessStore does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.access import Grant, Scope
from core.access_store import AccessStore, NewSecret
from core.api_keys import ApiKey, secret_hash
from core.errors import Conflict, NotFound
from tests.db.builders import at

KEY = ApiKey(
    key_id="abcdefghijk2",
    hash=secret_hash("1"),
    name="nightly",
    user_id="ada",
    created_at=at(1),
    created_by="key:owner",
    expires_at=at(500),
    scopes=frozenset({Scope.ON_BEHALF_OF}),
)
MEMBER = Grant(KEY.principal, "team-a", "member")


class Access:
    async def test_a_key_comes_back_with_its_grants(self, access: AccessStore) -> None:
        """All that was stored, and the roles of its principal alone."""
        await access.add_key(KEY, [MEMBER])
        await access.add_grant(Grant("user:eve@example.com", "*", "admin"))
        known = await access.key(KEY.key_id)
        assert known is not None
        assert (known.key, known.grants) == (KEY, (MEMBER,))
        assert await access.key("unknown") is None

    async def test_a_repeat_changes_nothing(self, access: AccessStore) -> None:
        """The same key twice is one key; another secret under its id is a conflict."""
        await access.add_key(KEY, [MEMBER])
        await access.add_key(replace(KEY, name="other"), [])
        known = await access.key(KEY.key_id)
        assert known is not None
        assert known.key == KEY
        with pytest.raises(Conflict, match=KEY.key_id):
            await access.add_key(replace(KEY, hash=secret_hash("2")), [])

    async def test_pages_of_keys(self, access: AccessStore) -> None:
        """By id, each once."""
        names = ["aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"]
        for name in reversed(names):
            await access.add_key(replace(KEY, key_id=name), [])
        first = [row.key.key_id for row in await access.keys(2, None)]
        rest = [row.key.key_id for row in await access.keys(2, first[-1])]
        assert [*first, *rest] == names

    async def test_the_first_revocation_counts(self, access: AccessStore) -> None:
        """A key stays revoked since then, and cannot be rotated back to life."""
        await access.add_key(KEY, [])
        assert (await access.revoke_key(KEY.key_id, at(5))).revoked_at == at(5)
        assert (await access.revoke_key(KEY.key_id, at(9))).revoked_at == at(5)
        with pytest.raises(Conflict, match="revoked"):
            await access.rotate_key(NewSecret(KEY.key_id, secret_hash("2")))

    async def test_rotation_replaces_the_secret(self, access: AccessStore) -> None:
        """The name, the user and the grants stay."""
        await access.add_key(KEY, [MEMBER])
        rotated = await access.rotate_key(NewSecret(KEY.key_id, secret_hash("2"), at(900)))
        assert rotated == replace(KEY, hash=secret_hash("2"), expires_at=at(900))
        known = await access.key(KEY.key_id)
        assert known is not None
        assert known.grants == (MEMBER,)

    async def test_unknown_keys_are_told(self, access: AccessStore) -> None:
        """By their id."""
        with pytest.raises(NotFound, match="nope"):
            await access.revoke_key("nope", at(1))
        with pytest.raises(NotFound, match="nope"):
            await access.rotate_key(NewSecret("nope", secret_hash("2")))

    async def test_the_newest_use_is_kept(self, access: AccessStore) -> None:
        """Replicas tell in any order."""
        await access.add_key(KEY, [])
        await access.used([KEY.key_id, "unknown"], at(20))
        await access.used([KEY.key_id], at(10))
        known = await access.key(KEY.key_id)
        assert known is not None
        assert known.key.last_used_at == at(20)

    async def test_grants_are_a_set(self, access: AccessStore) -> None:
        """Given twice it is one, taken twice it is gone, and lists are in order."""
        other = Grant("user:ada@example.com", "*", "viewer")
        assert await access.add_grant(other)
        assert not await access.add_grant(other)
        assert await access.add_grant(MEMBER)
        assert list(await access.grants()) == [MEMBER, other]
        assert list(await access.grants(other.principal)) == [other]
        both = [MEMBER.principal, other.principal, "group:none"]
        assert list(await access.grants_of(both)) == [MEMBER, other]
        assert list(await access.grants_of(["group:none"])) == []
        assert await access.remove_grant(other)
        assert not await access.remove_grant(other)
