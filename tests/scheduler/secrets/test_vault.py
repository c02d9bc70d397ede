"""Sealed secrets open with their key, for their tenant and under their name alone."""

from __future__ import annotations

import pytest

from scheduler.secrets.vault import KeyMissing, SealBroken, SecretVault

OLD, NEW = b"o" * 32, b"n" * 32
SEED = bytes(range(32))


def test_a_value_opens_again_and_is_not_in_what_is_stored() -> None:
    vault = SecretVault([NEW])
    sealed = vault.seal("ml", "TOKEN", b"hush hush", SEED)
    assert b"hush" not in sealed
    assert vault.unseal("ml", "TOKEN", vault.key_id, sealed) == b"hush hush"


@pytest.mark.parametrize(("tenant", "name"), [("ops", "TOKEN"), ("ml", "OTHER"), ("mlT", "OKEN")])
def test_a_value_that_is_copied_to_another_row_does_not_open(tenant: str, name: str) -> None:
    vault = SecretVault([NEW])
    sealed = vault.seal("ml", "TOKEN", b"hush", SEED)
    with pytest.raises(SealBroken, match="set it again"):
        vault.unseal(tenant, name, vault.key_id, sealed)


@pytest.mark.parametrize("at", [0, 31, 32, -1])
def test_a_changed_byte_is_seen(at: int) -> None:
    vault = SecretVault([NEW])
    sealed = bytearray(vault.seal("ml", "TOKEN", b"hush", SEED))
    sealed[at] ^= 1
    with pytest.raises(SealBroken):
        vault.unseal("ml", "TOKEN", vault.key_id, bytes(sealed))
    with pytest.raises(SealBroken):
        vault.unseal("ml", "TOKEN", vault.key_id, bytes(sealed[:at]))


def test_older_keys_open_until_they_are_taken_out() -> None:
    before = SecretVault([OLD])
    sealed = before.seal("ml", "TOKEN", b"hush", SEED)
    both = SecretVault([NEW, OLD])
    assert both.key_id != before.key_id
    assert both.unseal("ml", "TOKEN", before.key_id, sealed) == b"hush"
    with pytest.raises(KeyMissing, match=before.key_id):
        SecretVault([NEW]).unseal("ml", "TOKEN", before.key_id, sealed)
