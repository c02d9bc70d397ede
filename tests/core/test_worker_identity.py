"""The public keys of a worker, and the audience that ties an identity token to them."""

from __future__ import annotations

from core.worker_identity import WorkerPublicKeys

KEYS = WorkerPublicKeys(signing=b"s" * 32, sealing=b"x" * 32)


def test_the_audience_is_the_hash_of_both_keys() -> None:
    """The same keys have the same audience; another one of either is another audience."""
    again = WorkerPublicKeys(signing=b"s" * 32, sealing=b"x" * 32)
    assert KEYS.audience == again.audience == "zen:CZ3vMJIip4qDVbjNji7kxvDbWEXUdGAcRECM9j3f8vk"
    others = {
        WorkerPublicKeys(b"t" * 32, b"x" * 32).audience,
        WorkerPublicKeys(b"s" * 32, b"y" * 32).audience,
        WorkerPublicKeys(b"x" * 32, b"s" * 32).audience,
    }
    assert len(others) == 3
    assert KEYS.audience not in others
