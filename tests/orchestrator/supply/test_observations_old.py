"""What a group remembers is news once, and no name that was seen holds the limit after it left."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from core.actions import Create
from core.changes import PutRegionBlock, PutSupplyHistory
from core.mig import GroupError, MachineState, ManagedInstance, Refusal
from core.region_blocks import BlockKind, RegionBlock
from core.supply import SupplyHistory, SupplyOutcome
from core.vm import Vm, VmState
from orchestrator.supply.observations import ClusterState
from tests.builders import NOW, at, cluster, observed, vm
from tests.orchestrator.folding import fold_in
from tests.orchestrator.test_cluster_manager import House

V = VmState
STOCKOUT = Refusal(BlockKind.STOCKOUT, "no L4 left")


def remembered(
    *vms: Vm, blocks: tuple[RegionBlock, ...] = (), supply: tuple[SupplyHistory, ...] = ()
) -> ClusterState:
    """A look at a group that has nothing but the memory of a refusal a minute ago."""
    seen = replace(observed(), errors=(GroupError(at(-60), "vm-0", STOCKOUT),))
    return fold_in(seen, cluster(), vms, NOW, blocks=blocks, supply=supply)


def known(last: SupplyOutcome, last_s: float) -> SupplyHistory:
    spec = cluster()
    region = observed().region
    return SupplyHistory(
        region, "", spec.machine_type, spec.spot, NOW, hits=1.0, last=last, last_at=at(last_s)
    )


def test_a_remembered_refusal_is_learned() -> None:
    """A member that left before anybody looked at it leaves its reason in the group's list."""
    found = remembered()
    (block,) = [c.block for c in found.changes if isinstance(c, PutRegionBlock)]
    assert block.kind is BlockKind.STOCKOUT


def test_what_was_heard_before_is_not_news_for_the_next_leader() -> None:
    """A refusal that is stored already does not begin a second block after the first is over."""
    (first,) = remembered().blocks
    over = replace(first, last_seen=at(-59), until=at(-14))
    found = remembered(blocks=(over,))
    assert found.changes == ()
    assert found.blocks == (over,)


def test_a_delivery_since_then_overtakes_it() -> None:
    """A region that has delivered after the refusal is not believed to be empty again."""
    found = remembered(supply=(known(SupplyOutcome.HIT, -30),))
    assert not [c for c in found.changes if isinstance(c, PutRegionBlock | PutSupplyHistory)]
    older = remembered(supply=(known(SupplyOutcome.HIT, -90),))
    assert [c for c in older.changes if isinstance(c, PutRegionBlock)]
    assert timedelta(seconds=0) < older.blocks[0].until - NOW


def test_a_taking_since_then_does_not() -> None:
    """What a place took back it may have given yesterday. If one of its VMs came after the refusal,
    that is a delivery, whatever was seen last."""
    taken = known(SupplyOutcome.RECLAIMED, -30)
    assert [c for c in remembered(supply=(taken,)).changes if isinstance(c, PutRegionBlock)]
    young, old = (vm("vm-1", V.DELETING, running_since=at(s)) for s in (-50, -600))
    assert not remembered(young, supply=(taken,)).blocks
    assert remembered(old, supply=(taken,)).blocks


async def test_a_refused_vm_that_was_taken_back_frees_its_place_at_once() -> None:
    """It was listed and is not any more: it holds no place under the limit, and is not deleted
    again and again."""
    house = await House(cluster(vm_max=1)).open()
    quota = Refusal(BlockKind.QUOTA, "Quota 'NVIDIA_L4_GPUS' exceeded.")

    def refuse(action: Create) -> None:
        group = house.cloud.members.setdefault(action.region, {})
        for name in action.names:
            group[name] = ManagedInstance(
                name, f"{action.region}-a", MachineState.NONE, refusals=(quota,)
            )

    house.cloud._add = refuse  # type: ignore[method-assign]
    await house.wait_for_work()
    await house.reconciles(8)
    assert house.cloud.calls["create"] >= 2
    assert house.cloud.calls["delete"] <= house.cloud.calls["create"]
