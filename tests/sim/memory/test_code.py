"""The in-memory one keeps the contract of CodeStore."""

from __future__ import annotations

import pytest

from sim.memory.code import MemoryCode
from tests.db.contract.code import Code


@pytest.fixture
def code() -> MemoryCode:
    return MemoryCode()


class TestMemoryCode(Code):
    """The whole contract."""
