"""What an observation means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.changes import DropRegionBlock, PutRegionBlock
from core.mig import MachineState, ManagedInstance, MigSnapshot, Refusal
from core.region_blocks import BlockKind, RegionBlock, block_on
from core.timers import Timers
from core.vm import Vm, VmState
from migs.classify import ComputeError, refusal
from orchestrator.reconcile.group_alerts import complaints, for_humans
from orchestrator.supply.blocks import block_s
from orchestrator.supply.observations import ClusterState
from tests.builders import NOW, at, cluster, observed, vm
from tests.orchestrator.folding import fold_in

V = VmState
TIMERS = Timers()
STOCKOUT = Refusal(BlockKind.STOCKOUT, "no L4 left")


def folded(
    seen: MigSnapshot,
    *vms: Vm,
    blocks: tuple[RegionBlock, ...] = (),
    unsettled: frozenset[str] = frozenset(),
    now_s: float = 0,
) -> ClusterState:
    return fold_in(seen, cluster(), vms, at(now_s), blocks=blocks, unsettled=unsettled)


def member(machine: MachineState = MachineState.RUNNING, **facts: object) -> ManagedInstance:
    known = {"name": "vm-1", "instance_id": "77", "zone": "us-central1-a", **facts}
    return ManagedInstance(machine=machine, **known)  # type: ignore[arg-type]


def test_requested_vm_that_is_listed_boots() -> None:
    """It has a name before it has a machine."""
    (after,) = folded(observed(member(MachineState.NONE)), vm(state=V.REQUESTED)).vms
    assert after.state is V.BOOTING
    assert after.running_since is None


def test_running_member_tells_zone_id_and_since_when_it_is_billed() -> None:
    """Google bills from RUNNING."""
    (after,) = folded(observed(member()), vm(state=V.BOOTING), now_s=5).vms
    assert (after.zone, after.instance_id, after.running_since) == ("us-central1-a", "77", at(5))


def test_stockout_is_learned_and_the_name_left_to_the_plan() -> None:
    """Google retries for ever: the plan takes it back, or leaves it standing as a probe."""
    seen = folded(observed(member(MachineState.NONE, refusals=(STOCKOUT,))), vm(state=V.BOOTING))
    (after,) = seen.vms
    assert after.state is V.BOOTING
    (block,) = [c.block for c in seen.changes if isinstance(c, PutRegionBlock)]
    assert (block.kind, block.until) == (BlockKind.STOCKOUT, at(45))


def test_stockout_seen_twice_within_its_block_is_the_same_news() -> None:
    """Two VMs of one request must not double the block; the next reconcile after it does."""
    errors = member(MachineState.NONE, refusals=(STOCKOUT,))
    first = folded(observed(errors), vm(state=V.BOOTING)).blocks
    again = folded(observed(errors), vm(state=V.BOOTING), blocks=first, now_s=10).blocks
    assert again[0].until == first[0].until
    later = folded(observed(errors), vm(state=V.BOOTING), blocks=first, now_s=50).blocks
    assert (later[0].count, later[0].until) == (2, at(50 + 90))


def test_delivery_ends_the_block() -> None:
    """Hits count as well as misses."""
    block = RegionBlock(
        "us-central1", "", "g2-standard-4", False, BlockKind.STOCKOUT, NOW, NOW, at(900), 3, "x"
    )
    seen = folded(observed(member()), vm(state=V.BOOTING), blocks=(block,))
    assert seen.blocks == ()
    assert any(isinstance(c, DropRegionBlock) for c in seen.changes)


def test_vm_that_vanished_is_gone_and_one_being_deleted_too() -> None:
    """The list is the only truth."""
    assert folded(observed(), vm(state=V.READY)).vms[0].state is V.GONE
    leaving = vm(state=V.DELETING, zone="us-central1-a")
    assert folded(observed(), leaving).vms[0].state is V.GONE
    cancelled = vm(state=V.DELETING)
    assert folded(observed(), cancelled).vms == (cancelled,), "perhaps it is not listed yet"
    assert folded(observed(), cancelled, now_s=31).vms[0].state is V.GONE


def test_absence_means_nothing_while_the_create_call_is_unanswered() -> None:
    """It may still take effect."""
    waiting = vm(state=V.REQUESTED)
    seen = folded(observed(), waiting, unsettled=frozenset({"vm-1"}), now_s=500)
    assert seen.vms == (waiting,)
    assert folded(observed(), waiting, now_s=500).vms[0].state is V.GONE


def test_stopped_member_is_deleted_by_name_and_spot_ones_were_taken() -> None:
    """DO_NOTHING leaves stopped members behind: we remove them."""
    (after,) = folded(observed(member(MachineState.OFF)), vm(state=V.READY)).vms
    assert (after.state, after.taken) == (V.DELETING, False)
    (after,) = folded(observed(member(MachineState.OFF)), vm(state=V.READY, spot=True)).vms
    assert (after.state, after.taken) == (V.DELETING, True)


def test_another_machine_under_the_same_name_is_not_ours() -> None:
    """Identity is name and instance id."""
    old = vm(state=V.READY, instance_id="1")
    assert folded(observed(member()), old).vms[0].state is V.DELETING


def test_members_that_we_did_not_ask_for_raise_an_alert() -> None:
    """They are not touched."""
    seen = observed(member(name="stranger"), member(name="ours"))
    assert folded(seen).changes == ()
    assert "stranger" in complaints(seen, ["ours"])["unknown_vm"]
    assert complaints(seen, ["ours", "stranger"]) == {}


def test_quota_and_permission_are_for_a_human_and_a_stockout_is_weather() -> None:
    """An alert as long as the block lasts, and as long again: the next request may be refused as
    well, and an alert that comes and goes is read by nobody."""
    kinds = (BlockKind.QUOTA, BlockKind.PERMISSION, BlockKind.STOCKOUT)
    blocks = [
        RegionBlock(
            "us-central1", "", "g2-standard-4", False, kind, NOW, NOW, at(60), 1, f"no {kind}"
        )
        for kind in kinds
    ]
    for seconds in (0, 60 + TIMERS.quota_block_s - 1):
        found = complaints(observed(), [], for_humans(blocks, TIMERS, at(seconds)))
        assert found == {"cloud_quota": "no quota", "cloud_permission": "no permission"}
    later = at(60 + TIMERS.quota_block_s)
    assert [t.kind for t in for_humans(blocks, TIMERS, later)] == [BlockKind.PERMISSION]


def refused(code: str, message: str) -> tuple[ClusterState, Vm]:
    """A VM that Google could not make, with its words."""
    error = refusal(ComputeError(code, message))
    seen = folded(observed(member(MachineState.NONE, refusals=(error,))), vm(state=V.BOOTING))
    return seen, seen.vms[0]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("CONDITION_NOT_MET", "Constraint constraints/compute.vmExternalIpAccess violated"),
        ("RESOURCE_NOT_FOUND", "global/images/family/zen was not found"),
        ("SOMETHING_NEW", "never heard of"),
    ],
)
def test_an_error_that_nobody_has_classified_blocks_and_is_told(code: str, message: str) -> None:
    """The region is left alone, ever longer; the VM is given up, and people read Google's own
    words: in the alert, and as the reason why nothing is asked for there."""
    seen, after = refused(code, message)
    assert after.state is V.DELETING
    (block,) = seen.blocks
    assert (block.kind, block.until) == (BlockKind.OTHER, at(TIMERS.unknown_block_s))
    assert complaints(observed(), [], for_humans([block], TIMERS, NOW)) == {
        "cloud_other": f"{code}: {message}"
    }
    assert block_on([block], cluster(), "us-central1", NOW) is block
    assert block.words.startswith("refused by the cloud until ")
    assert [block_s(BlockKind.OTHER, n, TIMERS) for n in (1, 2, 9)] == [60, 120, 900]


def test_a_reclaim_during_creation_is_a_stockout() -> None:
    """Google says UNSUPPORTED_OPERATION; the place had the VM and took it back. An hour's block as
    for a machine type that does not exist there would be wrong."""
    seen, after = refused("UNSUPPORTED_OPERATION", "Instance failed to start due to preemption.")
    assert [t.kind for t in seen.blocks] == [BlockKind.STOCKOUT]
    assert after.state is V.BOOTING


def test_a_quota_over_all_regions_blocks_all_of_them_at_once() -> None:
    """No region is asked in vain, and people are told once: where it was met."""
    words = "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally."
    seen, _ = refused("QUOTA_EXCEEDED", words)
    regions = [region.region for region in cluster().regions]
    blocked = {r: block_on(seen.blocks, cluster(), r, NOW) for r in regions}
    assert {r for r, block in blocked.items() if block is not None} == set(regions)
    assert {block.message for block in blocked.values() if block is not None} == {words}
    assert sum(isinstance(change, PutRegionBlock) for change in seen.changes) == len(regions)
    assert [t.region for t in for_humans(seen.blocks, TIMERS, NOW)] == ["us-central1"]


def test_group_settings_that_work_against_us_are_a_complaint() -> None:
    """A group that repairs stopped VMs would make them anew for ever."""
    seen = replace(observed(), faults=("defaultActionOnFailure: got REPAIR",))
    assert "REPAIR" in complaints(seen, [])["group_settings"]


def test_other_regions_are_left_as_they_are() -> None:
    """A snapshot speaks of one group."""
    other = vm(state=V.READY, region="us-east1")
    assert folded(observed(), other).vms == (other,)


def test_each_region_block_ends_in_its_own_time() -> None:
    """Stockouts double up to a bound."""
    assert [block_s(BlockKind.STOCKOUT, n, TIMERS) for n in (1, 2, 3, 9)] == [45, 90, 180, 900]
    assert block_s(BlockKind.QUOTA, 5, TIMERS) == 300
    assert block_s(BlockKind.UNSUPPORTED, 1, TIMERS) == 3600
    assert block_s(BlockKind.ADDRESS_SPACE, 1, TIMERS) == 30


def test_machine_that_is_off_or_another_has_no_worker() -> None:
    """Its boot is forgotten: that is how its jobs know that nothing computes there any more."""
    (stopping,) = folded(observed(member(MachineState.STOPPING)), vm(state=V.READY)).vms
    assert (stopping.state, stopping.boot_nonce) == (V.DELETING, "nonce")
    (off,) = folded(observed(member(MachineState.OFF)), stopping).vms
    assert (off.state, off.boot_nonce, off.version) == (V.DELETING, "", stopping.version + 1)
    assert folded(observed(member(MachineState.OFF)), off).vms == (off,), "told once"
    (other,) = folded(observed(member()), vm(state=V.READY, instance_id="1")).vms
    assert (other.state, other.boot_nonce) == (V.DELETING, "")


def test_member_whose_machine_was_deleted_behind_the_groups_back() -> None:
    """A v1 worker deletes its own VM: nobody lives there any more, and the name is taken out of
    the group, so that its target follows. A member that never had a machine is only on its way."""
    empty = observed(member(MachineState.NONE, instance_id=""))
    ran = vm(state=V.READY, running_since=at(-60), leases=("lease-1",))
    (after,) = folded(empty, ran).vms
    assert (after.state, after.boot_nonce, after.stopped_at) == (V.DELETING, "", NOW)
    (again,) = folded(empty, after).vms
    assert again is after
    (coming,) = folded(empty, vm(state=V.BOOTING, running_since=None)).vms
    assert coming.state is V.BOOTING


def test_what_one_look_found_gone_stays_gone_in_the_next() -> None:
    """Two looks at a slow region may be folded together."""
    (gone,) = folded(observed(), vm(state=V.READY), now_s=60).vms
    assert gone.state is V.GONE
    assert folded(observed(), gone, now_s=60).changes == ()
