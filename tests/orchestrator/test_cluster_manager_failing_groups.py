"""A group whose settings kill running work is held: nothing is named, nothing is asked for."""

from __future__ import annotations

from dataclasses import replace

from core.mig import MigSnapshot
from core.timers import Timers
from tests.builders import cluster
from tests.orchestrator.test_cluster_manager import House

WHY = "mig: distributionPolicy.targetShape: got EVEN. To mend it: gcloud …"


class DeadlyHouse(House):
    """Every group looks as if it would even out its zones, as long as `deadly` says so."""

    def __init__(self) -> None:
        super().__init__(replace(cluster(), vm_min=0))
        self.deadly: tuple[str, ...] = (WHY,)
        look = self.cloud.observe

        async def observe(mig: str, cluster: str, region: str) -> MigSnapshot:
            seen = await look(mig, cluster, region)
            return replace(seen, deadly=self.deadly, faults=self.deadly)

        self.cloud.observe = observe  # type: ignore[method-assign]


async def test_no_growth_and_a_reason() -> None:
    """The status of each region and an alert say why; no name is written, no call is made."""
    house = DeadlyHouse()
    await house.open()
    await house.wait_for_work()
    await house.reconciles(3)
    assert house.cloud.calls["create"] == 0
    assert await house.vms() == ()
    kinds = {kind for kind, _ in await house.alerts()}
    assert kinds == {"group_settings"}
    assert {said.why for said in house.manager._reporter._said.values()} == {WHY}


async def test_mended_group_grows() -> None:
    """Once the command was run, the next look lets the VM come; the alert is over."""
    house = DeadlyHouse()
    await house.open()
    await house.wait_for_work()
    await house.reconciles(2)
    house.deadly = ()
    await house.reconciles(4, every_s=Timers().observe_idle_s)
    assert house.cloud.calls["create"] >= 1
    assert await house.alerts() == set()
