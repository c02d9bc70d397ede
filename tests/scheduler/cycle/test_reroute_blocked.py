"""A job that waits too long for one cluster goes to the next that serves it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from core.changes import Snapshot
from core.cluster import ClusterSpec
from core.job import E, Job, S
from core.messages import OutMessage
from core.region_blocks import BlockKind, RegionBlock
from core.vm import Vm
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.reroute_blocked import fall_back
from scheduler.cycle.silence import Silence
from scheduler.plan_builder import PlanBuilder
from tests.builders import REGIONS, RULES, at, cluster, dice, job, snapshot, vm

FIRST = cluster("1xh100-80gb", vm_max=2, machine_type="a3")
SECOND = cluster("1xa100-80gb", vm_max=2, machine_type="a2")
LATE_S = RULES.timers.fallback_after_s + 10
TYPES = ("h100-80gb", "a100-80gb")


def stockout(machine_type: str, *regions: str) -> tuple[RegionBlock, ...]:
    return tuple(
        RegionBlock(
            region, "", machine_type, False, BlockKind.STOCKOUT, at(0), at(0), at(9000), 3, ""
        )
        for region in regions
    )


def waiting(number: int = 1, *, to: str = FIRST.name, **spec: object) -> Job:
    words: dict[str, object] = {"gpu_types": TYPES, **spec}
    return job(number, E.ADMITTED, cluster=to, **words)


def cycle(
    *jobs: Job,
    vms: tuple[Vm, ...] = (),
    blocks: tuple[RegionBlock, ...] = (),
    second: float = LATE_S,
    clusters: tuple[ClusterSpec, ...] = (FIRST, SECOND),
) -> PlanBuilder:
    seen: Snapshot = snapshot(jobs, vms, blocks, now=at(second))
    plan = PlanBuilder(seen, RULES, lambda _: OutMessage("control", b""))
    named = {spec.name: spec for spec in clusters}
    plan_jobs(plan, seen, Circumstances(named, Silence(()), bus_steady=True), dice())
    return plan


def where(plan: PlanBuilder, number: int = 1) -> str:
    return plan.jobs[f"job-uid-{number:04d}"].cluster


OUT = stockout("a3", *REGIONS)


def test_stocked_out_everywhere_falls_to_the_next_choice() -> None:
    """After the wait limit, with the reason on the timeline, and it is demand there at once."""
    plan = cycle(waiting(), blocks=OUT)
    moved = plan.jobs["job-uid-0001"]
    assert (moved.cluster, moved.status) == (SECOND.name, S.PROVISIONING)
    (entry,) = plan.batches[0][0].entries  # type: ignore[union-attr]
    assert entry.reason.startswith(
        "moved from 1xh100-80gb to 1xa100-80gb, which serves the job too: after 609 s there is "
        "nothing to be had there (stockout in all its 3 regions, until 14:30 UTC at least)"
    )


def test_the_aging_limit_comes_first() -> None:
    """Counted from when it began to wait here."""
    assert where(cycle(waiting(), blocks=OUT, second=500)) == FIRST.name
    came_lately = replace(waiting(), status_since=at(500))
    assert where(cycle(came_lately, blocks=OUT)) == FIRST.name


def test_one_open_region_or_a_vm_on_its_way_is_worth_waiting_for() -> None:
    """Only a cluster that has nothing to give is left."""
    assert where(cycle(waiting(), blocks=OUT[:2])) == FIRST.name
    coming = vm("vm-7", vm("x").state.BOOTING, cluster=FIRST.name)
    assert where(cycle(waiting(), blocks=OUT, vms=(coming,))) == FIRST.name


def test_limit_reached_falls_to_the_next_choice() -> None:
    """Jobs that found no place under the limit need not wait for one."""
    busy = tuple(vm(f"b-{n}", cluster=FIRST.name, leases=("x",), idle_since=None) for n in (1, 2))
    queued = job(1, cluster=FIRST.name, gpu_types=TYPES)
    assert where(cycle(queued, vms=busy)) == SECOND.name


def test_next_one_must_have_something() -> None:
    """Blocked as well: no move. An idle VM there is enough, blocked or not."""
    both = OUT + stockout("a2", *REGIONS)
    assert where(cycle(waiting(), blocks=both)) == FIRST.name
    idle = vm("vm-8", cluster=SECOND.name)
    plan = cycle(waiting(), blocks=both, vms=(idle,))
    assert plan.jobs["job-uid-0001"].status is S.ASSIGNED


def test_no_more_move_than_there_is_room() -> None:
    """Three wait, the other cluster may have two VMs: the two that have waited longest go."""
    roomy = replace(FIRST, vm_max=4)
    plan = cycle(waiting(1), waiting(2), waiting(3), blocks=OUT, clusters=(roomy, SECOND))
    assert [where(plan, n) for n in (1, 2, 3)] == [SECOND.name, SECOND.name, FIRST.name]


def test_who_asked_for_exactly_this_one_stays() -> None:
    """A named cluster, one GPU type alone, or a region that the other does not have."""
    named = waiting(gpu_types=())
    pinned = replace(named, spec=replace(named.spec, cluster=FIRST.name))
    assert where(cycle(pinned, blocks=OUT)) == FIRST.name
    assert where(cycle(waiting(gpu_types=(), gpu_type="h100-80gb"), blocks=OUT)) == FIRST.name
    small = replace(SECOND, regions=SECOND.regions[:1])
    far = waiting(regions=("europe-west4",))
    assert where(cycle(far, blocks=OUT, clusters=(FIRST, small))) == FIRST.name


def test_a_move_needs_the_same_consent_as_a_submission() -> None:
    """Neither to a larger VM, nor to spot VMs, nor above the price that was agreed to; with consent
    each of them is taken."""
    larger = cluster("2xa100-80gb", vm_max=2, machine_type="a2")
    spot = replace(SECOND, spot=True)
    dear = max(SECOND.usd_per_hour(region) for region in REGIONS)
    for target, refused, agreed in (
        (larger, {"allow_larger": False}, {"allow_larger": True}),
        (spot, {"spot": False}, {"spot": True}),
        (SECOND, {"agreed_usd_per_hour": dear - 0.01}, {"agreed_usd_per_hour": dear}),
    ):
        for words, found in ((refused, FIRST.name), (agreed, target.name)):
            plan = cycle(waiting(**words), blocks=OUT, clusters=(FIRST, target))
            assert where(plan) == found, words


KINDS: tuple[dict[str, object], ...] = (
    {"gpu_types": TYPES},
    {"gpu_types": TYPES[::-1]},
    {"gpu_types": TYPES, "regions": REGIONS[:1]},
    {"gpu_types": TYPES, "max_usd_per_hour": 1.5},
    {"gpu_type": TYPES[0]},
)


@pytest.mark.parametrize("seed", range(40))
def test_nobody_is_overlooked_where_each_cluster_is_asked_once(seed: int) -> None:
    """Of many clusters, a job finds no place exactly if none has room for it: as many moved to each
    as it has room for, and a job that stays would find nothing if it asked all of them again."""
    drawn = random.Random(seed)
    clusters = tuple(
        replace(
            cluster(f"1x{TYPES[n % 2]}", vm_max=drawn.randrange(4), machine_type=f"m-{n}"),
            name=f"c-{n}",
        )
        for n in range(8)
    )
    jobs = tuple(
        job(n, E.ADMITTED, cluster=f"c-{drawn.randrange(8)}", **drawn.choice(KINDS))
        for n in range(drawn.randrange(1, 14))
    )
    blocks = tuple(
        b for n in range(8) if drawn.random() < 0.6 for b in stockout(f"m-{n}", *REGIONS)
    )
    seen = snapshot(jobs, (), blocks, now=at(LATE_S))
    plan = PlanBuilder(seen, RULES, lambda _: OutMessage("control", b""))
    named = {spec.name: spec for spec in clusters}
    fall_back(plan, seen, named)
    came = Counter(after.cluster for _, after in plan.moves)
    waited = Counter(one.cluster for one in jobs)
    assert all(count + waited[name] <= named[name].vm_max for name, count in came.items())
    stayed = [one for one in jobs if plan.jobs[one.uid] is one]
    for one in stayed:
        alone = snapshot((one,), (), blocks, now=at(LATE_S))
        again = PlanBuilder(alone, RULES, lambda _: OutMessage("control", b""))
        left = {
            name: replace(spec, vm_max=max(0, spec.vm_max - came[name] - waited[name]))
            if name != one.cluster
            else spec
            for name, spec in named.items()
        }
        fall_back(again, alone, left)
        assert again.jobs[one.uid] is one, "it would have found something"
