"""A real stack that the attacks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agent.conftest import podman  # noqa: F401  # a fixture
from tests.e2e.stack import Stack, stack


@pytest.fixture(scope="session")
def up() -> Iterator[Stack]:
    """What `zen up` starts, in a directory of its own."""
    with stack() as made:
        yield made
