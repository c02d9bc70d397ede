"""How long a plan keeps idle VMs, and when it requests VMs ahead of jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import time

from core.actions import Delete, Drain, Undrain
from core.cluster import RegionSpec
from core.demand import VmRequest
from core.floors import Floor
from core.supply import Arrivals
from orchestrator.planning.plan import plan_cluster
from tests.builders import NAMES, NOW, at, cluster, dice, vm
from tests.orchestrator.planning.planned import TIMERS, V, creates, inputs_of, plan


def test_second_of_a_race_is_kept_only_while_jobs_come() -> None:
    """It is paid for a minute anyway; then the next job must be likely enough."""
    second = vm("vm-1", V.BOOTING, running_since=NOW)
    quiet = inputs_of((), second)
    assert plan_cluster(quiet, NAMES, TIMERS, dice(), at(30)) == ()
    (gone,) = plan_cluster(quiet, NAMES, TIMERS, dice(), at(70))
    assert isinstance(gone, Delete)
    busy = replace(quiet, arrivals=Arrivals(at(-7200), tuple(at(10 * i) for i in range(7))))
    assert not any(
        isinstance(action, Delete) for action in plan_cluster(busy, NAMES, TIMERS, dice(), at(70))
    )


def test_idle_vm_is_kept_while_it_is_worth_its_price() -> None:
    """At the latest its time-out ends it; a time-out of the cluster's own is kept to the second."""
    idle = vm("vm-1", running_since=at(-600))
    stream = Arrivals(at(-7200), tuple(at(-20 * i) for i in range(9, -1, -1)))
    busy = inputs_of((), idle, arrivals=stream)
    kept = plan_cluster(busy, NAMES, TIMERS, dice(), at(70))
    assert not any(isinstance(action, Drain) for action in kept)
    quiet = replace(busy, arrivals=None)
    assert plan_cluster(quiet, NAMES, TIMERS, dice(), at(50)) == (), "somebody may look at a result"
    (drained,) = plan_cluster(quiet, NAMES, TIMERS, dice(), at(70))
    assert drained == Drain("vm-1", "no work is expected soon enough to keep it warm")
    fixed = replace(busy, arrivals=None, spec=cluster(idle_timeout_s=60.0))
    assert plan_cluster(fixed, NAMES, TIMERS, dice(), at(59)) == ()
    assert len(plan_cluster(fixed, NAMES, TIMERS, dice(), at(61))) == 1


def test_spare_that_found_its_job_is_replaced_while_jobs_come() -> None:
    """A stream goes on: with nobody waiting, a VM is asked for ahead of the next job. One job is
    one VM, a batch came once, and when no job has come for as long as a cold start takes nothing
    more is asked for."""
    spec = cluster(vm_max=20)
    working = vm("vm-1", V.READY, leases=("lease",))
    stream = Arrivals(at(-7200), tuple(at(-40 * i) for i in range(6, -1, -1)))
    busy = inputs_of((), working, spec=spec, arrivals=stream)
    assert sum(creates(busy).values()) >= 1
    for times in ((NOW,), (NOW,) * 7, tuple(at(-150 - i) for i in range(200, 0, -40))):
        quiet = replace(busy, arrivals=Arrivals(at(-7200), times))
        assert not creates(quiet)


def test_spare_on_its_way_is_cancelled_when_the_stream_ends() -> None:
    """Before RUNNING it costs nothing."""
    stream = Arrivals(at(-7200), tuple(at(-40 * i) for i in range(6, -1, -1)))
    fresh = vm("vm-1", V.REQUESTED, requested_at=NOW)
    busy = inputs_of((), fresh, spec=cluster(vm_max=1), arrivals=stream)
    assert plan_cluster(busy, NAMES, TIMERS, dice(), NOW) == ()
    (gone,) = plan_cluster(replace(busy, arrivals=None), NAMES, TIMERS, dice(), NOW)
    assert isinstance(gone, Delete)


def test_spare_on_its_way_outlives_a_small_change_of_mind() -> None:
    """With each second without a job the next one is a little less likely. Who followed that at
    once would ask for a VM and take it back a moment later."""
    stream = Arrivals(at(-7200), tuple(at(-40 * i) for i in range(6, -1, -1)))
    nobody = inputs_of((), spec=cluster(vm_max=20), arrivals=stream)
    asked = [sum(creates(nobody, now_s).values()) for now_s in range(0, 120, 5)]
    drops = next(i for i, count in enumerate(asked) if count < asked[0])
    fresh = [vm(f"vm-{i}", V.REQUESTED, requested_at=NOW) for i in range(asked[0])]
    flying = replace(nobody, vms=tuple(fresh))
    assert plan_cluster(flying, NAMES, TIMERS, dice(), at(drops * 5)) == ()
    later = plan_cluster(flying, NAMES, TIMERS, dice(), at(110))
    assert any(isinstance(action, Delete) for action in later)


def test_stream_of_jobs_is_met_half_way() -> None:
    """Jobs that come one after the other are expected to go on; one batch is no stream."""
    requests = (VmRequest(since=NOW),) * 2
    spec = cluster(vm_max=20)
    stream = Arrivals(at(-7200), tuple(at(-15 * i) for i in range(6, -1, -1)))
    batch = Arrivals(at(-7200), (NOW,) * 7)
    met = creates(inputs_of(requests, spec=spec, arrivals=stream))
    assert sum(met.values()) > 4
    once = creates(inputs_of(requests, spec=spec, arrivals=batch))
    assert sum(once.values()) == 2


STREAM = Arrivals(at(-7200), tuple(at(-15 * i) for i in range(6, -1, -1)))


def test_fewer_spares_where_vms_become_free_while_jobs_come() -> None:
    """Of eighty jobs that came within an hour nine still run: the next one may find a VM that has
    just become free. If all of them still run, it will not."""
    spec = cluster(vm_max=90)
    stream = Arrivals(at(-7200), tuple(at(-45 * i) for i in range(80, -1, -1)))
    working = [vm(f"vm-{i}", V.READY, leases=(f"lease-{i}",)) for i in range(9)]
    short = tuple(VmRequest(since=at(-60 * i)) for i in range(9))
    busy = inputs_of((), *working, spec=spec, arrivals=stream)
    freed = replace(busy, at_work=short)
    lasting = replace(busy, at_work=tuple(VmRequest(since=at(-45 * i)) for i in range(81)))
    assert sum(creates(freed).values()) < sum(creates(lasting).values())


def test_spare_is_asked_for_where_the_next_job_may_use_it() -> None:
    """The next job is taken to be like the newest one: in its regions, below its cap. What it may
    not use is no spare, is not kept warm, and does not stand for one."""
    spec = cluster(vm_max=20)
    first, *_, last = (region.region for region in spec.regions)
    picky = replace(
        inputs_of((), spec=spec, arrivals=STREAM), at_work=(VmRequest((last,), since=NOW),)
    )
    assert set(creates(picky)) == {last}
    poor = replace(picky, at_work=(VmRequest(max_usd_per_hour=0.01, since=NOW),))
    assert not creates(poor)
    elsewhere = vm("vm-1", region=first, running_since=at(-600), idle_since=at(-90))
    beside = replace(picky, vms=(elsewhere,))
    assert Drain("vm-1", "no work is expected soon enough to keep it warm") in plan_cluster(
        beside, NAMES, TIMERS, dice(), NOW
    )
    assert creates(beside) == creates(picky)


def test_floor_stands_where_the_newest_job_may_use_it() -> None:
    """A warm VM in a region that jobs may not use is waste; what is warm already is left alone."""
    spec = cluster(vm_min=1)
    first, *_, last = (region.region for region in spec.regions)
    picky = replace(inputs_of((), spec=spec), at_work=(VmRequest((last,), since=at(-60)),))
    assert creates(picky) == {last: 1}
    assert not creates(replace(picky, vms=(vm("vm-1", region=first),)))


def test_dear_region_is_no_way_to_hurry() -> None:
    """More jobs than a region usually gives at once: another one of the same price gets some, one
    that is a quarter dearer for as long as the jobs run gets none but company for the others."""
    regions = [("us-east4", 2.0), ("us-east5", 2.0), ("us-west1", 2.5)]
    spec = cluster(
        vm_max=20,
        regions=tuple(RegionSpec(name, (f"{name}-a",), usd, usd) for name, usd in regions),
    )
    asked = creates(inputs_of((VmRequest(since=NOW),) * 12, spec=spec))
    assert asked["us-east4"] + asked["us-east5"] == 12
    assert asked["us-east5"] >= 4


def test_floor_by_the_hour() -> None:
    """More VMs are kept warm in working hours."""
    floor = Floor(frozenset(range(7)), time(8), time(18), "UTC", 2)
    spec = cluster(floors=(floor,))
    assert creates(inputs_of((), spec=spec)) == {"us-central1": 2}
    assert creates(inputs_of((), spec=spec), 8 * 3600) == {}


def test_vm_that_is_kept_is_left_until_its_end() -> None:
    """Its v1 worker has time to delete it, or its owner has it; then it is deleted by name. Work
    that waits does not call it back: its worker takes no second job."""
    kept = vm(
        state=V.DRAINING, boot_nonce="v1", running_since=at(-60), kept_until=at(30), idle_since=None
    )
    assert plan(0, kept) == ()
    assert not any(isinstance(action, Undrain) for action in plan(1, kept))
    (delete,) = plan(0, kept, now_s=31)
    assert isinstance(delete, Delete)
    assert delete.names == (kept.name,)


def test_v1_clusters_have_no_spares() -> None:
    """A v1 worker does not wait for work: it would delete its VM."""
    stream = Arrivals(at(-3600), tuple(at(-s) for s in range(100, 0, -1)))
    wanted = inputs_of((), arrivals=stream)
    assert creates(wanted), "a stream of jobs is worth a spare"
    assert not creates(replace(wanted, spec=replace(wanted.spec, worker="v1")))
