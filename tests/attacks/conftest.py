"""A real stack that the attacks share, and those who attack it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agent.conftest import podman  # noqa: F401  # a fixture
from tests.attacks.intruders import Intruder, intruders
from tests.e2e.stack import Stack, stack


@pytest.fixture(scope="session")
def up() -> Iterator[Stack]:
    """What `zen up` starts, in a directory of its own."""
    with stack() as made:
        yield made


@pytest.fixture(scope="session")
def all_intruders(up: Stack) -> dict[str, Intruder]:
    """Keys that the owner gave away."""
    return intruders(up)


@pytest.fixture
def intruder(all_intruders: dict[str, Intruder], who: str) -> Intruder:
    """The one that the test names by `who`."""
    return all_intruders[who]
