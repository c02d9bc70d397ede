"""MigManager passes on what it is told, for its own group."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from core.actions import Create, Delete
from core.errors import CloudRefused
from core.mig import MigSnapshot
from migs.manager import MigManager

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Recorder:
    """A Compute that writes down what it is asked."""

    def __init__(self, deadly: tuple[str, ...] = ()) -> None:
        self.calls: list[tuple[str, str, object]] = []
        self.deadly = deadly

    async def observe(self, mig: str, cluster: str, region: str) -> MigSnapshot:
        return MigSnapshot(mig, cluster, region, 0, True, (), NOW, deadly=self.deadly)

    async def create(self, mig: str, action: Create) -> None:
        self.calls.append(("create", mig, action))

    async def delete(self, mig: str, action: Delete) -> None:
        self.calls.append(("delete", mig, action))


async def test_observe_and_apply() -> None:
    """One group's snapshot, and its actions in the order they were given."""
    compute = Recorder()
    manager = MigManager("g-mig", "1xl4", "us-east1", compute)
    assert (await manager.observe()).mig == "g-mig"
    create = Create("us-east1", ("a",), "id-1", "demand")
    delete = Delete("us-east1", ("a",), "id-2", "idle")
    await manager.apply(create)
    await manager.apply(delete)
    assert compute.calls == [("create", "g-mig", create), ("delete", "g-mig", delete)]


async def test_action_of_another_region_is_a_bug() -> None:
    """An action that was meant for another group never reaches the cloud."""
    compute = Recorder()
    manager = MigManager("g-mig", "1xl4", "us-east1", compute)
    with pytest.raises(AssertionError, match="us-west1"):
        await manager.apply(Create("us-west1", ("a",), "id", "demand"))
    assert compute.calls == []


async def test_nothing_is_added_to_a_group_that_kills() -> None:
    """A group whose settings kill running work gets no VM, also if nobody has looked at it yet;
    what is in it can still be deleted, and once it is mended it takes VMs again."""
    compute = Recorder(deadly=("g-mig: targetShape: got EVEN",))
    manager = MigManager("g-mig", "1xl4", "us-east1", compute)
    create = Create("us-east1", ("a",), "id-1", "demand")
    with pytest.raises(CloudRefused, match="targetShape: got EVEN"):
        await manager.apply(create)
    delete = Delete("us-east1", ("b",), "id-2", "idle")
    await manager.apply(delete)
    compute.deadly = ()
    await manager.observe()
    await manager.apply(create)
    assert compute.calls == [("delete", "g-mig", delete), ("create", "g-mig", create)]
