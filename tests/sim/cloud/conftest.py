"""The pretend cloud, served, with Google's own client library."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.sim.cloud.rig import Rig, Serve, serve
from tests.sim.helpers import HandClock, make_world


@pytest.fixture(scope="session")
def compute() -> Any:
    """google.cloud.compute_v1, whose import takes seconds."""
    from google.cloud import compute_v1  # noqa: PLC0415

    return compute_v1


@pytest.fixture
async def served(compute: Any, clock: HandClock) -> AsyncIterator[Serve]:
    """Starts a cloud for the world that a test wants."""
    open_rigs = []

    async def start(*migs: dict[str, Any], **changes: Any) -> Rig:
        context = serve(compute, make_world(*migs, **changes), clock)
        open_rigs.append(context)
        return await context.__aenter__()

    yield start
    for context in open_rigs:
        await context.__aexit__(None, None, None)


@pytest.fixture
async def rig(served: Serve) -> Rig:
    return await served()
