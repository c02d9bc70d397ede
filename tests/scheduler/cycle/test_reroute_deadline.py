"""A job whose deadline leaves no time for spot goes to standard VMs of the same kind."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from core.changes import JobMove, Snapshot
from core.cluster import ClusterSpec
from core.job import E, Job, Membership, S
from core.job_fields import JobSpec
from core.job_steps import EventFacts, advance
from core.messages import OutMessage
from core.region_blocks import BlockKind, RegionBlock
from core.timers import Timers
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.reroute_deadline import delivery_s
from scheduler.cycle.silence import Silence
from scheduler.plan_builder import PlanBuilder
from scheduler.submission.cluster_selection import choose_cluster
from tests.builders import NOW, RULES, at, cluster, dice, job, snapshot, vm

SPOT = cluster("1xl4-spot", spot=True, gpu_type="l4", gpu_memory_gb=24, cpus=4, memory_gb=16)
STANDARD = cluster("1xl4", gpu_memory_gb=24, cpus=4, memory_gb=16)
RUN_S = 1800.0
WAIT_S = sum(part or 0.0 for part in delivery_s(STANDARD, snapshot(), (), Timers()))
# A start on a spot VM that is taken back at once, one on a standard VM, and a part of the reserve.
START_BY_S = RUN_S + 2 * WAIT_S * 32 / 31 - 0.1


def waiting(deadline_s: float, *events: E, **spec: object) -> Job:
    """A job for spot VMs, to be done so long after NOW; it runs for half an hour at most."""
    words = {"gpu_type": "l4", "spot": True, "max_runtime_s": RUN_S, "deadline": at(deadline_s)}
    return job(1, *events, cluster=SPOT.name, **{**words, **spec})


def cycle(seen: Snapshot, *clusters: ClusterSpec) -> PlanBuilder:
    plan = PlanBuilder(seen, RULES, lambda _: OutMessage("control", b""))
    named = {spec.name: spec for spec in clusters or (SPOT, STANDARD)}
    plan_jobs(plan, seen, Circumstances(named, Silence(()), bus_steady=True), dice())
    return plan


def after(seen: Snapshot, *clusters: ClusterSpec) -> Job:
    return cycle(seen, *clusters).jobs["job-uid-0001"]


def test_enough_time_stays_on_spot() -> None:
    """As long as a standard VM would still be in time later, the cheap one is waited for."""
    kept = after(snapshot((waiting(START_BY_S + 1),)))
    assert (kept.cluster, kept.status) == (SPOT.name, S.PROVISIONING)


@pytest.mark.parametrize("events", [(), (E.ADMITTED,)])
def test_no_time_left_goes_to_standard(events: tuple[E, ...]) -> None:
    """It is demand of the standard cluster in the same cycle, and the timeline says why."""
    plan = cycle(snapshot((waiting(START_BY_S, *events),)))
    moved = plan.jobs["job-uid-0001"]
    assert (moved.cluster, moved.status) == (STANDARD.name, S.PROVISIONING)
    moves = [c for batch in plan.batches for c in batch if isinstance(c, JobMove)]
    (row,) = moves[0].entries
    assert (row.event, row.data) == ("rerouted", {"left": SPOT.name})
    assert row.reason.startswith("moved from 1xl4-spot to 1xl4: no more time to wait")
    assert "deadline at 2026-01-01 12:" in row.reason


def test_preempted_job_is_moved_as_well() -> None:
    """Taken back by Google with the time gone: it goes on elsewhere, with its attempts counted."""
    began = waiting(START_BY_S + 60, E.ADMITTED, E.PLACED, E.STARTED)
    taken = advance(began, E.RECLAIMED, at(30), RULES)
    moved = after(snapshot((taken,), now=at(61)))
    assert (moved.cluster, moved.attempt, moved.preemptions) == (STANDARD.name, 1, 1)


def test_running_job_is_left_alone() -> None:
    """It works; only one that waits is moved."""
    held = waiting(60, E.ADMITTED, E.PLACED, E.STARTED)
    on = vm("vm-1", cluster=SPOT.name, leases=("lease-1",), idle_since=None)
    assert after(snapshot((held,), (on,))).cluster == SPOT.name


@pytest.mark.parametrize(
    "changes",
    [
        {"deadline": None},
        {"cluster": SPOT.name},
        {"max_usd_per_hour": 0.9},
        {"regions": ("us-east1", "mars-north1")},
    ],
)
def test_who_is_not_moved(changes: dict[str, object]) -> None:
    """Without a deadline, pinned to its cluster, or with fields that no standard VM meets."""
    held = waiting(0)
    stays = replace(held, spec=replace(held.spec, **changes))  # type: ignore[arg-type]
    assert after(snapshot((stays,))).cluster == SPOT.name


@pytest.mark.parametrize(
    "other",
    [
        replace(STANDARD, gpu_type="t4"),
        replace(STANDARD, gpus=2),
        replace(STANDARD, drain=True),
        replace(STANDARD, vm_max=0),
        replace(STANDARD, worker="v1"),
        replace(STANDARD, spot=True),
    ],
)
def test_only_to_the_same_kind(other: ClusterSpec) -> None:
    """Other GPUs, another number of them, a cluster that takes nobody: it stays where it is."""
    assert after(snapshot((waiting(0),)), SPOT, other).cluster == SPOT.name


def test_cheapest_standard_cluster_wins() -> None:
    """Of several with the same GPUs, the price decides."""
    dear = tuple(replace(region, usd_per_hour=9.0) for region in STANDARD.regions)
    other = replace(STANDARD, name="1xl4-big", regions=dear)
    assert after(snapshot((waiting(0),)), SPOT, other, STANDARD).cluster == STANDARD.name


def test_blocked_everywhere_is_no_refuge() -> None:
    """While no region gives standard VMs either, spot is the better hope; then it goes."""
    held = waiting(0)

    def blocks(until: datetime) -> tuple[RegionBlock, ...]:
        return tuple(
            RegionBlock(
                region.region, "", STANDARD.machine_type, False, BlockKind.STOCKOUT,
                NOW, NOW, until, 1, "none left",
            )
            for region in STANDARD.regions
        )  # fmt: skip

    assert after(snapshot((held,), (), blocks(at(60)))).cluster == SPOT.name
    assert after(snapshot((held,), (), blocks(NOW))).cluster == STANDARD.name


def test_once_moved_it_stays() -> None:
    """The standard cluster does not send it back, whatever the clock says."""
    moved = advance(waiting(0), E.REROUTED, NOW, RULES, facts=EventFacts(cluster=STANDARD.name))
    late = replace(moved, spec=replace(moved.spec, deadline=NOW - timedelta(days=1)))
    assert after(snapshot((late,))).cluster == STANDARD.name


def test_what_is_saved_needs_no_time() -> None:
    """Half of the stated run is in a checkpoint: the job may wait for spot that much longer."""
    half = replace(waiting(START_BY_S - RUN_S / 2 + 15), saved_s=RUN_S / 2)
    assert after(snapshot((half,))).cluster == SPOT.name
    assert after(snapshot((replace(half, saved_s=RUN_S / 4),))).cluster == STANDARD.name


def test_nothing_stated_is_no_reason_to_be_late() -> None:
    """A job of which nothing is known is taken to need two thirds of its time: it leaves spot
    while there is time for that, and not before."""
    silent = waiting(9000.0, max_runtime_s=Timers().max_runtime_s)
    assert after(snapshot((silent,), now=at(1700))).cluster == SPOT.name
    assert after(snapshot((silent,), now=at(2600))).cluster == STANDARD.name


def test_a_gang_moves_as_a_whole() -> None:
    """All members in one step, once none of them has a VM: they are never in two clusters."""
    words = {"gpu_type": "l4", "spot": True, "max_runtime_s": RUN_S, "replicas": 2}
    members = tuple(
        replace(
            job(number, cluster=SPOT.name, deadline=at(START_BY_S), **words),
            gang=Membership("job-uid-0001", number - 1, 2),
        )
        for number in (1, 2)
    )
    plan = cycle(snapshot(members))
    assert {plan.jobs[each.uid].cluster for each in members} == {STANDARD.name}
    moves = [change for change in plan.batches[0] if isinstance(change, JobMove)]
    assert [move.entries[0].event for move in moves] == ["rerouted", "rerouted"]
    early = tuple(replace(m, spec=replace(m.spec, deadline=at(3 * START_BY_S))) for m in members)
    plan = cycle(snapshot(early))
    assert {plan.jobs[each.uid].cluster for each in early} == {SPOT.name}


def test_no_dearer_cluster_while_there_is_slack() -> None:
    """Spot is stocked out everywhere: a job without a deadline goes to standard VMs after a while,
    one with time to wait does not, and goes when its time is over."""
    blocks = tuple(
        RegionBlock(
            region.region, "", SPOT.machine_type, True, BlockKind.STOCKOUT,
            NOW, NOW, at(9e5), 1, "none left",
        )
        for region in SPOT.regions
    )  # fmt: skip
    now = at(RULES.timers.fallback_after_s + 10)
    patient, hasty = waiting(50_000.0), waiting(50_000.0, deadline=None)
    assert after(snapshot((patient,), (), blocks, now=now)).cluster == SPOT.name
    assert after(snapshot((hasty,), (), blocks, now=now)).cluster == STANDARD.name
    assert after(snapshot((patient,), (), blocks, now=at(49_000))).cluster == STANDARD.name


def test_who_welcomes_spot_gets_the_cheaper_cluster() -> None:
    """`spot: true` chooses by price, nothing said keeps to the plain name, false refuses spot."""
    both = (SPOT, STANDARD)

    def chosen(spot: bool | None) -> str:
        return choose_cluster(JobSpec("j", gpu_type="l4", spot=spot), both).cluster

    assert [chosen(True), chosen(None), chosen(False)] == [SPOT.name, "1xl4", "1xl4"]


def test_a_deadline_buys_no_more_than_was_agreed_to() -> None:
    """Where prices are confirmed, the standard VM must be within what was confirmed."""
    dear = max(STANDARD.usd_per_hour(region.region) for region in STANDARD.regions)
    stays = after(snapshot((waiting(START_BY_S, agreed_usd_per_hour=dear - 0.01),)))
    moves = after(snapshot((waiting(START_BY_S, agreed_usd_per_hour=dear),)))
    assert (stays.cluster, moves.cluster) == (SPOT.name, STANDARD.name)
