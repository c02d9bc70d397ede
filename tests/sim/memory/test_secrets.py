"""The in-memory one keeps the contract of SecretStore."""

from __future__ import annotations

import pytest

from sim.memory.secrets import MemorySecrets
from tests.db.contract.secrets import Secrets


@pytest.fixture
def secrets() -> MemorySecrets:
    return MemorySecrets()


class TestMemorySecrets(Secrets):
    """The whole contract."""

    bounded = ("sim.memory.secrets",)
