"""VMs that are paid for and never get to work: what is learned, what is bought, who is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import pytest

from core.actions import Action, Create, NoAction
from core.changes import Change, DropRegionBlock, PutRegionBlock, RaiseAlert, VmMove
from core.demand import Demand, VmRequest
from core.errors import Forbidden
from core.health import VmHealth
from core.job import E, Job, S
from core.mig import MachineState, ManagedInstance
from core.region_blocks import BlockKind, RegionBlock
from core.timers import Timers
from core.vm import GivenUp, Vm, VmEvent, VmState, advance_vm
from orchestrator.cluster_manager import ClusterManager
from orchestrator.planning.analysis import survey
from orchestrator.planning.plan import look_again, plan_cluster
from orchestrator.planning.plan_input import PlanInput
from orchestrator.reconcile.group_alerts import complaints, for_humans
from orchestrator.supply.failed_boots import Evidence, heed, proofs
from orchestrator.supply.observations import ClusterState
from tests.builders import NAMES, NOW, REGIONS, at, cluster, dice, job, observed, snapshot, vm
from tests.orchestrator.folding import fold_in, rules
from tests.orchestrator.test_cluster_manager import House
from tests.scheduler.cycle.test_plan import Cycle

K = BlockKind
V = VmState
TIMERS = Timers()
HERE = REGIONS[0]
BOOT_S = TIMERS.boot_timeout_s
LATE_S = BOOT_S + 1


def booting(name: str = "vm-1", asked_s: float = 0, **facts: object) -> Vm:
    """A VM that runs, and whose worker has not said a word."""
    words = {"requested_at": at(asked_s), "running_since": at(asked_s + 40), **facts}
    return vm(name, V.BOOTING, **words)  # type: ignore[arg-type]


def unclaimed(name: str = "vm-1", at_s: float = 60) -> Vm:
    """A VM that was given up because it did not claim its job."""
    return vm(name, V.DELETING, given_up=GivenUp.UNCLAIMED, state_since=at(at_s), ready_at=NOW)


def unfit(name: str = "vm-1", at_s: float = 60) -> Vm:
    """A VM whose worker says that no job can run there."""
    why = "the driver sees 2 of 4 GPUs"
    return vm(
        name,
        V.DELETING,
        state_since=at(at_s),
        running_since=NOW,
        health=VmHealth(unready=why),
        reason=f"its worker cannot work: {why}",
    )


def seen(
    *vms: Vm,
    blocks: Sequence[RegionBlock] = (),
    now_s: float = LATE_S,
    jobs: Sequence[Job] = (),
    hears: bool = True,
    worked: Mapping[str, datetime] | None = None,
    **spec: object,
) -> tuple[list[Change], tuple[RegionBlock, ...]]:
    evidence = Evidence(jobs, hears, proofs(worked or {}, vms))
    before = ClusterState(vms, tuple(blocks))
    after = heed(before, evidence, rules(cluster(**spec), at(now_s)))  # type: ignore[arg-type]
    return list(after.changes), after.blocks


def learned(*vms: Vm, **around: object) -> RegionBlock:
    """What is known after them."""
    (block,) = seen(*vms, **around)[1]  # type: ignore[arg-type]
    return block


def row(count: int, last_s: float = 0, until_s: float = 0, kind: K = K.UNREADY) -> RegionBlock:
    """So many in a row."""
    place = (HERE, "", "g2-standard-4", False)
    return RegionBlock(*place, kind, NOW, at(last_s), at(until_s), count, "it does not work")


def plan(
    wanted: int, *vms: Vm, blocks: tuple[RegionBlock, ...], now_s: float
) -> tuple[Action, ...]:
    return plan_cluster(inputs(wanted, *vms, blocks=blocks), NAMES, TIMERS, dice(), at(now_s))


def inputs(wanted: int, *vms: Vm, blocks: tuple[RegionBlock, ...]) -> PlanInput:
    demand = Demand("1xl4", (VmRequest(since=NOW),) * wanted)
    return PlanInput(cluster(), demand, vms, blocks, frozenset())


def created(actions: Sequence[Action]) -> dict[str, int]:
    return {a.region: len(a.names) for a in actions if isinstance(a, Create)}


# --- what is learned ----------------------------------------------------------------------


def test_one_that_is_not_ready_in_time_is_bad_luck() -> None:
    """It is written down and blocks nothing; seen again it is the same one."""
    changes, (first,) = seen(booting())
    assert changes == [PutRegionBlock(first)]
    assert (first.kind, first.count, first.since) == (K.UNREADY, 1, NOW)
    assert not first.blocks(at(LATE_S))
    assert seen(booting(), blocks=(first,), now_s=LATE_S + 5) == ([], (first,))


def test_a_worker_that_says_why_it_cannot_work_blocks_its_place_at_once() -> None:
    """No driver, or fewer GPUs than the machine has: the next VM would be no better. The alert
    names the VM, its region and the reason, and the same VM is counted once."""
    known = learned(unfit(), now_s=60)
    assert (known.kind, known.count) == (K.UNREADY, 3)
    assert known.until == at(60 + BOOT_S)
    assert known.message == f"vm-1 in {HERE} came up and cannot work: the driver sees 2 of 4 GPUs"
    assert for_humans([known], TIMERS, at(60)) == [known]
    assert seen(unfit(), blocks=(known,), now_s=65) == ([], (known,))


def test_the_third_in_a_row_blocks_and_each_after_it_for_twice_as_long() -> None:
    """Up to the ceiling; the words name the VM and where to look."""
    known: tuple[RegionBlock, ...] = ()
    spans: list[float] = []
    asked_s = 0.0
    for number in range(7):
        now_s = asked_s + LATE_S
        _, known = seen(booting(f"vm-{number}", asked_s), blocks=known, now_s=now_s)
        spans.append(max(0.0, (known[0].until - at(now_s)).total_seconds()))
        asked_s = now_s + spans[-1]
    assert spans == [0, 0, BOOT_S, 2 * BOOT_S, 3600, 3600, 3600]
    assert "7 VMs in a row came up and never were READY" in known[0].message
    assert "vm-6: its serial log" in known[0].message
    assert known[0].since == NOW


def test_many_that_are_lost_at_once_block_once() -> None:
    """Ten of one request are a row of three, not a block of two to the tenth."""
    block = learned(*(booting(f"vm-{number}") for number in range(10)))
    assert (block.count, block.until) == (3, at(LATE_S + BOOT_S))


def test_a_row_is_forgotten_after_a_while() -> None:
    """Three in three days are no row."""
    later_s = TIMERS.stockout_memory_s + LATE_S
    block = learned(booting("vm-2", later_s), blocks=(row(2),), now_s=later_s + LATE_S)
    assert (block.count, block.since) == (1, at(later_s))


def test_few_that_fail_among_many_that_work_are_no_row() -> None:
    """Three of five that were asked for together."""
    well = [vm(f"vm-{n}", ready_at=at(120), running_since=at(40)) for n in (4, 5)]
    assert seen(*map(booting, ("vm-1", "vm-2", "vm-3")), *well) == ([], ())


def test_ready_ends_what_was_not_ready() -> None:
    """One that was asked for later; what is READY since long proves nothing for today's image."""
    old = vm("old", requested_at=at(-5000), ready_at=at(-4900))
    assert seen(old, blocks=(row(3),)) == ([], (row(3),))
    new = vm("new", requested_at=at(1000), ready_at=at(1100))
    assert seen(old, new, blocks=(row(3),), now_s=1101) == ([DropRegionBlock(row(3).key)], ())
    elsewhere = replace(new, region=REGIONS[1])
    assert seen(elsewhere, blocks=(row(3),), now_s=1101)[1] == (row(3),)


def test_what_does_not_claim_is_known_apart_and_ready_does_not_end_it() -> None:
    """Else each VM would end its own block."""
    block = learned(unclaimed(), now_s=61)
    assert (block.kind, block.count, block.since) == (K.UNCLAIMED, 1, NOW)
    assert seen(unclaimed(), blocks=(block,), now_s=65) == ([], (block,))
    block = learned(*(unclaimed(f"vm-{n}") for n in range(3)), now_s=61)
    assert (block.count, block.until) == (3, at(61 + BOOT_S))
    assert "did not claim" in block.message
    ready = vm("new", requested_at=at(1000), ready_at=at(1100), idle_since=at(1100))
    assert seen(ready, blocks=(block,), now_s=1101) == ([], (block,))


def test_a_vm_that_the_scheduler_gives_up_is_known_by_its_words() -> None:
    """And its job is not at fault: it waits again, for another VM."""
    asked = replace(job(1, E.ADMITTED, E.PLACED), deadline_at=at(-1))
    held = vm("vm-1", leases=("lease-1",), idle_since=None)
    given_up = Cycle(snapshot((asked,), (held,))).vm("vm-1")
    assert learned(given_up, now_s=1).kind is K.UNCLAIMED
    back = Cycle(snapshot((asked,), (replace(given_up, boot_nonce=""),))).job(1)
    assert back.status is S.PROVISIONING


def test_a_claim_ends_what_was_not_claimed() -> None:
    """Of a job that runs, or of a short one that came and went; not of long ago, not elsewhere."""
    block = row(3, kind=K.UNCLAIMED)
    over = ([DropRegionBlock(block.key)], ())
    runs = job(2, E.ADMITTED, E.PLACED, E.CLAIMED, E.STARTED)
    assert seen(jobs=[runs], blocks=(block,)) == over
    assert runs.lease is not None
    for proves_nothing in (
        replace(runs, status_since=at(-1)),
        replace(runs, lease=replace(runs.lease, region=REGIONS[1])),
        job(2, E.ADMITTED, E.PLACED),
    ):
        assert seen(jobs=[proves_nothing], blocks=(block,))[1] == (block,)
    worked = vm("new", requested_at=at(10), ready_at=at(100), idle_since=at(130))
    assert seen(worked, blocks=(block,)) == over
    assert seen(replace(worked, requested_at=at(-10)), blocks=(block,))[1] == (block,)


def test_a_bus_that_is_away_is_nobodys_fault() -> None:
    """READY cannot be heard; once it could be, and was not, it counts."""
    assert seen(booting(), hears=False) == ([], ())
    assert learned(booting(), now_s=LATE_S + 60).count == 1


@pytest.mark.parametrize(
    "innocent",
    [
        booting(running_since=None),
        booting(taken=True),
        booting(together="gang-x", state_since=at(BOOT_S)),
        booting(asked_s=60),
        vm("vm-1", V.DELETING, running_since=at(40), reason="not needed any more"),
        vm("vm-1", V.DELETING, running_since=at(40), stopped_at=at(LATE_S)),
    ],
    ids=["stocked out", "preempted", "given late", "still in time", "came second", "deleted, off"],
)
def test_others_that_never_worked_are_not_at_fault(innocent: Vm) -> None:
    """Nobody knows whether they would have."""
    assert seen(innocent) == ([], ())


def test_one_that_is_found_off_before_it_was_ready_counts_once() -> None:
    """A startup script that fails and powers off is bought again even faster."""
    off = ManagedInstance("vm-1", f"{HERE}-a", MachineState.OFF, "77")
    moment = at(100)
    found = fold_in(observed(off), cluster(), (booting(),), moment)
    changes, known = seen(*found.vms, now_s=100)
    assert [t.count for t in known] == [1]
    assert changes == [PutRegionBlock(known[0])]
    assert seen(*found.vms, blocks=known, now_s=105) == ([], known)


def test_machines_that_are_there_anyway_are_not_bought() -> None:
    """A block would keep them from work and save nothing."""
    assert seen(booting(), pool="static") == ([], ())


def test_where_none_is_bought_any_more_nothing_is_learned() -> None:
    """The region has left the cluster."""
    assert seen(booting(region="asia-east1")) == ([], ())


def test_a_v1_worker_without_a_job_is_silent_and_not_at_fault() -> None:
    """It speaks when it has found one; if one has waited all the time, it should have."""
    waiting = job(1, E.ADMITTED)
    assert seen(booting(), worker="v1") == ([], ())
    assert seen(booting(), worker="v1", jobs=[waiting]) == ([], ())
    long = replace(waiting, queued_since=at(-1))
    assert learned(booting(), worker="v1", jobs=[long]).count == 1


def test_a_vm_that_runs_does_not_end_the_block() -> None:
    """The cloud delivers: that was never the fault."""
    block = row(3, until_s=BOOT_S)
    new = vm("vm-1", V.BOOTING)
    running = ManagedInstance("vm-1", f"{HERE}-a", MachineState.RUNNING, "77")
    folded = fold_in(observed(running), cluster(), (new,), at(5), blocks=(block,))
    assert folded.blocks == (block,)


# --- what is bought -----------------------------------------------------------------------


def test_bad_luck_changes_no_plan() -> None:
    """Two in a row."""
    assert created(plan(2, blocks=(row(2),), now_s=5)) == created(plan(2, blocks=(), now_s=5))


def test_a_blocked_region_is_passed_over_and_says_why() -> None:
    """The next one is asked at once, though it is dearer; if all are blocked, nothing is."""
    block = row(3, until_s=BOOT_S)
    assert list(created(plan(1, blocks=(block,), now_s=5))) == [REGIONS[1]]
    everywhere = tuple(replace(block, region=region) for region in REGIONS)
    actions = plan(1, blocks=everywhere, now_s=5)
    assert created(actions) == {}
    holds = [a.reason for a in actions if isinstance(a, NoAction)]
    again = "tried again at 12:15:00 UTC (zen alerts): it does not work"
    assert holds == [f"brings up VMs that do not get to work, {again}"] * 3


def test_after_the_block_one_vm_is_tried_before_all_others() -> None:
    """Not all the demand; nor a second one while the first boots, or has a job to claim."""
    everywhere = tuple(replace(row(3, until_s=10), region=region) for region in REGIONS)
    assert created(plan(4, blocks=everywhere, now_s=20)) == dict.fromkeys(REGIONS, 1)
    tried = [
        vm(f"vm-{region}", V.BOOTING, region=region, requested_at=at(20)) for region in REGIONS
    ]
    actions = plan(4, *tried, blocks=everywhere, now_s=25)
    assert created(actions) == {}
    assert {a.reason for a in actions if isinstance(a, NoAction)} == {
        "VMs came up there and never got to work: one is tried first, `zen alerts` says more"
    }
    given = [replace(v, state=V.READY, leases=("l",), idle_since=None) for v in tried]
    assert created(plan(1, *given, blocks=everywhere, now_s=25)) == {}
    assert created(plan(1, *given, blocks=(), now_s=25)) == {HERE: 1}


def test_the_single_try_ends_when_all_is_forgotten_and_the_plan_knows_when() -> None:
    """Nobody wanted a VM there for hours."""
    known = (row(3, until_s=10),)
    end_s = 10 + TIMERS.stockout_memory_s
    quiet = inputs(0, blocks=known)
    assert look_again(survey(quiet, TIMERS, at(20))) == at(end_s + 0.001)
    assert created(plan(3, blocks=known, now_s=end_s + 1))[HERE] > 1


# --- who is told --------------------------------------------------------------------------


def test_people_are_told_of_a_fault_until_it_is_over() -> None:
    """Not of bad luck; and also between the end of a block and the next loss."""
    assert for_humans([row(2)], TIMERS, at(1)) == []
    fault = row(3, until_s=BOOT_S)
    for moment in (at(1), at(3 * BOOT_S)):
        found = complaints(observed(), [], for_humans([fault], TIMERS, moment))
        assert found == {"cloud_unready": "it does not work"}
    assert for_humans([fault], TIMERS, at(BOOT_S + TIMERS.stockout_memory_s)) == []


async def _lose(house: House, hours: float) -> None:
    """VMs come up and never speak."""
    await house.reconciles(int(hours * 60), every_s=60)


async def test_a_broken_image_costs_few_vms_and_one_alert_until_one_works() -> None:
    """Six hours, one region: without the block 24 VMs. A later leader goes on where the first
    stopped; a VM that is READY ends it, and the alert."""
    whole = cluster()
    house = await House(replace(whole, regions=whole.regions[:1])).open()
    await house.wait_for_work(1)
    await _lose(house, 3)
    assert house.cloud.calls["create"] == 5
    alert = ("cloud_unready", NAMES.mig("1xl4", HERE))
    assert await house.alerts() == {alert}
    house.manager = ClusterManager(house.spec, house.wiring)
    await _lose(house, 3)
    assert house.cloud.calls["create"] == 8
    assert await house.alerts() == {alert}
    while not (coming := [v for v in await house.vms() if v.state is V.BOOTING]):
        await house.reconciles(1, every_s=60)
    ready = advance_vm(coming[0], VmEvent.WORKER_READY, house.clock.now(), "ready", boot_nonce="n")
    await house.put((VmMove(coming[0], ready),))
    house.manager = ClusterManager(house.spec, house.wiring)
    await house.reconciles(4, every_s=60)
    assert (await house.store.snapshot(0)).blocks == ()
    assert await house.alerts() == set()


async def test_a_bus_that_is_away_for_hours_blocks_nothing() -> None:
    """Boots that nobody can hear of are not counted."""
    house = await House().open()
    house.manager = ClusterManager(house.spec, replace(house.wiring, hears=lambda: False))
    await house.wait_for_work(1)
    await _lose(house, 2)
    assert house.cloud.calls["create"] > 5
    assert (await house.store.snapshot(0)).blocks == ()
    assert await house.alerts() == set()


def test_those_that_worked_count_when_they_are_gone() -> None:
    """Of ten that were asked for together seven have worked and were given back before the other
    three are late."""
    well = [vm(f"ok-{n}", requested_at=NOW, ready_at=at(120)) for n in range(7)]
    bad = [booting(f"bad-{n}") for n in range(3)]
    assert seen(*bad, worked=proofs({}, well))[1] == ()
    assert learned(*bad).is_fault


def test_gang_that_waits_for_its_others_is_proof_enough_to_ask_for_them() -> None:
    """The first VM alone, all others after it: one by one would take an hour."""
    whole = cluster(vm_max=8)
    spec = replace(whole, regions=whole.regions[:1])
    fault = (row(3, until_s=10, kind=K.UNCLAIMED),)
    first = vm("first", requested_at=at(20), ready_at=at(150))
    demand = Demand("1xl4", (VmRequest(since=NOW),) * 8)
    inputs = PlanInput(spec, demand, (first,), fault, frozenset())
    assert created(plan_cluster(inputs, NAMES, TIMERS, dice(), at(160))) == {HERE: 7}


def test_block_that_lasts_longer_than_memory_is_remembered() -> None:
    """Nothing can come while it stands."""
    timers = replace(TIMERS, unready_block_max_s=6 * 3600.0)
    fault = row(8, last_s=0, until_s=6 * 3600)
    assert for_humans([fault], timers, at(4 * 3600)) == [fault]
    whole = cluster(vm_max=50)
    spec = replace(whole, regions=whole.regions[:1])
    demand = Demand("1xl4", (VmRequest(since=NOW),) * 50)
    inputs = PlanInput(spec, demand, (), (fault,), frozenset())
    assert created(plan_cluster(inputs, NAMES, timers, dice(), at(6 * 3600 + 5))) == {HERE: 1}


async def test_alert_of_a_former_leader_ends_though_its_successor_was_refused_first() -> None:
    """Its region answers only later."""
    whole = cluster()
    house = await House(replace(whole, regions=whole.regions[:1])).open()
    words = RaiseAlert("cloud_unready", NAMES.mig("1xl4", HERE), "error", "x", house.clock.now())
    await house.put((words,))
    house.manager = ClusterManager(house.spec, house.wiring)
    house.cloud.fail["observe"] = Forbidden("no permission")
    await house.reconciles(2, every_s=60)
    house.cloud.fail.clear()
    await house.reconciles(2 + int(2 * TIMERS.permission_block_s / 70), every_s=70)
    assert await house.alerts() == set()
