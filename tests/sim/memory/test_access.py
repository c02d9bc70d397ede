"""The in-memory one keeps the contract of AccessStore."""

from __future__ import annotations

import pytest

from sim.memory.access import MemoryAccess
from tests.db.contract.access import Access


@pytest.fixture
def access() -> MemoryAccess:
    return MemoryAccess()


class TestMemoryAccess(Access):
    """The whole contract."""
