"""The in-memory one keeps the contract of SessionStore."""

from __future__ import annotations

import pytest

from sim.memory.sessions import MemorySessions
from tests.db.contract.sessions import Sessions


@pytest.fixture
def sessions() -> MemorySessions:
    return MemorySessions()


class TestMemorySessions(Sessions):
    """The whole contract."""
