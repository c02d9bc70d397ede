"""A podman for tests that run containers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.agent.podman import Podman


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    """With its API on a socket and an image of busybox; in a short path, as podman wants it."""
    with TemporaryDirectory(prefix="zen-podman-", ignore_cleanup_errors=True) as home:
        podman = Podman(Path(home))
        if why := podman.prepare():
            pytest.skip(f"needs containers: {why}")
        with podman.serve():
            yield podman
        podman.clear()
