"""How many VMs, where, and why."""

from __future__ import annotations

from dataclasses import replace
from datetime import time

from core.actions import Action, Create, Delete, Drain, NoAction, Undrain
from core.cluster import ClusterSpec, RegionSpec
from core.demand import Demand, VmRequest
from core.floors import Floor
from core.job import E
from core.region_blocks import BlockKind, RegionBlock
from core.supply import Arrivals, CapacityPolicy, SupplyHistory, SupplyOutcome
from core.timers import Timers
from core.vm import Vm, VmState
from orchestrator.planning.plan import next_look, plan_cluster
from orchestrator.planning.plan_input import PlanInput, demand_of
from tests.builders import NAMES, NOW, REGIONS, at, cluster, dice, job, vm

TIMERS = Timers()
V = VmState


def plan(
    demand: int = 0,
    *vms: Vm,
    spec: ClusterSpec | None = None,
    blocks: tuple[RegionBlock, ...] = (),
    regions: tuple[str, ...] = (),
    now_s: float = 0,
) -> tuple[Action, ...]:
    wanted = Demand("1xl4", (VmRequest(regions),) * demand)
    inputs = PlanInput(spec or cluster(), wanted, vms, blocks, frozenset())
    return plan_cluster(inputs, NAMES, TIMERS, dice(), at(now_s))


def blocked(region: str, until_s: float, kind: BlockKind = BlockKind.STOCKOUT) -> RegionBlock:
    return RegionBlock(
        region, "", "g2-standard-4", False, kind, NOW, NOW, at(until_s), 1, "no GPUs"
    )


def test_no_demand_does_nothing() -> None:
    """Silence costs nothing."""
    assert plan(0) == ()


def test_one_job_asks_one_vm_in_the_best_region() -> None:
    """Not one in every region."""
    (action,) = plan(1)
    assert isinstance(action, Create)
    assert (action.region, len(action.names)) == ("us-central1", 1)
    assert "1 VM is wanted" in action.reason


def test_stocked_out_region_is_passed_over() -> None:
    """The next best is asked at once."""
    (action,) = plan(1, blocks=(blocked("us-central1", 60),))
    assert isinstance(action, Create)
    assert action.region == "us-east1"


def test_slow_region_gets_company_from_the_next_one() -> None:
    """A request that is silent for too long has no credit; it may stand, and the next one is
    asked. One that is still in its time is waited for."""
    slow = vm("vm-1", V.REQUESTED)
    now_s = TIMERS.widen_after_s + 1
    (action,) = plan(1, slow, now_s=now_s)
    assert isinstance(action, Create)
    assert action.region == "us-east1"
    second = vm("vm-2", V.REQUESTED, region="us-east1", requested_at=at(now_s))
    assert plan(1, slow, second, now_s=now_s) == ()


def test_a_machine_of_ones_own_is_asked_again_however_often_it_failed() -> None:
    """At $0 no doubt would be worth its price, next to machines that never failed."""
    whole = cluster(vm_max=3, vm_min=3, pool="static")
    free = tuple(
        replace(r, usd_per_hour=0.0, spot_usd_per_hour=0.0, vm_max=1) for r in whole.regions
    )
    doubtful = SupplyHistory(
        REGIONS[0], "", "g2-standard-4", False, at(-60), 0.0, 9.0, SupplyOutcome.MISS, at(-60)
    )
    well = tuple(vm(f"vm-{n}", region=REGIONS[n]) for n in (1, 2))
    spec = replace(whole, regions=free)
    inputs = PlanInput(spec, Demand("1xl4"), well, (), frozenset(), supply=(doubtful,))
    (action,) = plan_cluster(inputs, NAMES, TIMERS, dice(), NOW)
    assert isinstance(action, Create)
    assert action.region == REGIONS[0]


def test_limit_binds_over_all_regions_and_says_so() -> None:
    """Booting, idle and busy VMs of every region count."""
    vms = (
        vm("vm-1", V.READY, leases=("a",), idle_since=None),
        vm("vm-2", V.BOOTING, region="us-east1"),
        vm("vm-3", V.DELETING, region="europe-west4"),
    )
    actions = plan(5, *vms, spec=cluster(vm_max=3))
    holds = [a for a in actions if isinstance(a, NoAction)]
    assert not [a for a in actions if isinstance(a, Create)]
    assert "cluster limit 3 reached" in holds[0].reason


def test_everything_blocked_names_each_region_and_its_end() -> None:
    """A refusal to act carries its reason, too."""
    actions = plan(1, blocks=tuple(blocked(r, 300 + i) for i, r in enumerate(REGIONS)))
    assert {a.region for a in actions if isinstance(a, NoAction)} == set(REGIONS)
    assert all("stockout until 12:05:0" in a.reason for a in actions if isinstance(a, NoAction))


def test_idle_vm_serves_before_a_new_one_is_made() -> None:
    """The scheduler will place the job on it."""
    assert plan(1, vm("vm-1")) == ()


def test_idle_vm_is_drained_after_its_time() -> None:
    """First drained by compare-and-set, then deleted by name."""
    idled_out = vm("vm-1")
    (action,) = plan(0, idled_out, now_s=TIMERS.idle_timeout_s + 1)
    assert action == Drain("vm-1", "idle for 600 s")
    drained = replace(idled_out, state=V.DRAINING, reason="idle for 600 s")
    (action,) = plan(0, drained, now_s=TIMERS.idle_timeout_s + 2)
    assert isinstance(action, Delete)
    assert (action.names, action.reason) == (("vm-1",), "idle for 600 s")


def test_draining_vm_with_a_lease_is_left_alone() -> None:
    """Scale-in cannot kill work."""
    assert plan(0, vm("vm-1", V.DRAINING, leases=("a",)), now_s=10_000) == ()


def test_a_spot_vm_that_the_cloud_stops_is_not_deleted_under_its_job() -> None:
    """The rest of the notice is for the checkpoint; a VM without a job is deleted at once, one that
    hangs in its stop after a minute."""
    spot = cluster(spot=True)
    stopping = vm(
        "vm-1", V.DELETING, spot=True, taken=True, leases=("a",), boot_nonce="b", state_since=NOW
    )
    assert plan(0, stopping, spec=spot, now_s=29) == ()
    (action,) = plan(0, replace(stopping, leases=()), spec=spot, now_s=29)
    assert isinstance(action, Delete)
    (action,) = plan(0, stopping, spec=spot, now_s=61)
    assert isinstance(action, Delete)


def test_floor_keeps_warm_vms() -> None:
    """vm_min VMs stay, however idle, and are made if they are missing."""
    assert plan(0, vm("vm-1"), spec=cluster(vm_min=1), now_s=10_000) == ()
    (action,) = plan(0, spec=cluster(vm_min=1))
    assert isinstance(action, Create)


def test_vm_that_does_not_boot_is_taken_back() -> None:
    """Its deadline is counted from the request."""
    actions = plan(1, vm("vm-1", V.BOOTING, running_since=NOW), now_s=TIMERS.boot_timeout_s + 1)
    assert any(isinstance(a, Delete) and a.names == ("vm-1",) for a in actions)


def test_vms_in_flight_that_nobody_needs_are_cancelled() -> None:
    """The first to come won; before RUNNING a cancel is free."""
    (action,) = plan(0, vm("vm-1", V.REQUESTED))
    assert isinstance(action, Delete)
    assert plan(0, vm("vm-1", V.BOOTING, running_since=NOW)) == ()


def test_jobs_that_name_regions_are_asked_for_there() -> None:
    """Nowhere else."""
    (action,) = plan(1, regions=("europe-west4",))
    assert isinstance(action, Create)
    assert action.region == "europe-west4"


def test_idle_vm_in_a_region_that_the_job_does_not_allow_is_no_supply() -> None:
    """A VM is made where the job may run, and the idle one is given back in its time."""
    idle = vm("vm-1", region="us-central1")
    actions = plan(1, idle, regions=("us-east1",), now_s=TIMERS.idle_timeout_s + 1)
    made = [a.region for a in actions if isinstance(a, Create)]
    assert (made, [a.vm_name for a in actions if isinstance(a, Drain)]) == (["us-east1"], ["vm-1"])


def test_withdrawn_region_is_drained_at_once() -> None:
    """Its VMs finish their work and go; nothing is made there."""
    stray = vm("vm-1", region="asia-east1")
    (action,) = plan(0, stray)
    assert action == Drain("vm-1", "asia-east1 was withdrawn from the cluster")


def test_delete_is_asked_for_once() -> None:
    """Not again while the first call is under way, nor where the cloud does not answer."""
    leaving = vm("vm-1", V.DELETING)
    inputs = PlanInput(cluster(), Demand("1xl4"), (leaving,), ())
    for quiet in (replace(inputs, asked=frozenset({"vm-1"})), _quiet(inputs)):
        assert plan_cluster(quiet, NAMES, TIMERS, dice(), NOW) == ()
    (action,) = plan_cluster(inputs, NAMES, TIMERS, dice(), NOW)
    assert isinstance(action, Delete)


def _quiet(inputs: PlanInput) -> PlanInput:
    return replace(inputs, quiet=frozenset({"us-central1"}))


def test_region_that_does_not_answer_is_passed_over() -> None:
    """The next best is asked."""
    wanted = Demand("1xl4", (VmRequest(),))
    inputs = _quiet(PlanInput(cluster(), wanted, (), ()))
    (action,) = plan_cluster(inputs, NAMES, TIMERS, dice(), NOW)
    assert isinstance(action, Create)
    assert action.region == "us-east1"


def test_region_limit_counts_vms_that_are_being_deleted() -> None:
    """They are paid for until they are gone."""
    spec = cluster()
    first = replace(spec.regions[0], vm_max=1)
    limited = replace(spec, regions=(first, *spec.regions[1:]))
    actions = plan(1, vm("vm-1", V.DELETING), spec=limited)
    assert [a.region for a in actions if isinstance(a, Create)] == ["us-east1"]


def test_region_limit_sends_the_rest_elsewhere() -> None:
    """An optional limit per region."""
    spec = cluster()
    first = replace(spec.regions[0], vm_max=1)
    actions = plan(3, spec=replace(spec, regions=(first, *spec.regions[1:])))
    made = {a.region: len(a.names) for a in actions if isinstance(a, Create)}
    assert made["us-central1"] == 1
    assert made["us-east1"] >= 2


def test_provisioning_jobs_are_the_demand() -> None:
    """QUEUED ones are not, nor those on VMs."""
    jobs = (job(1), job(2, E.ADMITTED), job(3, E.ADMITTED), job(4, E.ADMITTED, E.PLACED))
    assert len(demand_of("1xl4", jobs).requests) == 2


def inputs_of(demand: tuple[VmRequest, ...], *vms: Vm, **changes: object) -> PlanInput:
    made = PlanInput(cluster(), Demand("1xl4", demand), vms, ())
    return replace(made, **changes)  # type: ignore[arg-type]


def creates(inputs: PlanInput, now_s: float = 0) -> dict[str, int]:
    actions = plan_cluster(inputs, NAMES, TIMERS, dice(), at(now_s))
    return {a.region: len(a.names) for a in actions if isinstance(a, Create)}


def flat(*prices: float) -> ClusterSpec:
    """A cluster whose regions cost this much."""
    spec = cluster()
    pairs = zip(spec.regions, prices, strict=True)
    return replace(spec, regions=tuple(replace(r, usd_per_hour=usd) for r, usd in pairs))


def seen(region: str, last: SupplyOutcome, ago_s: float = 600) -> SupplyHistory:
    hits, misses = (5.0, 0.0) if last is SupplyOutcome.HIT else (0.0, 5.0)
    then = at(-ago_s)
    return SupplyHistory(region, "", "g2-standard-4", False, then, hits, misses, last, then)


def test_region_that_refused_lately_comes_after_one_that_delivers() -> None:
    """Within the price band the success probability decides, beyond it the price."""
    known = (seen("us-central1", SupplyOutcome.MISS), seen("us-east1", SupplyOutcome.HIT))
    near = inputs_of((VmRequest(),), spec=flat(1.0, 1.1, 1.2), supply=known)
    assert creates(near) == {"us-east1": 1}
    assert "us-central1" in creates(replace(near, spec=flat(1.0, 2.0, 3.0)))


def test_doubtful_request_gets_company() -> None:
    """Asked beside the best one, because that one may fail; a sure one stays alone, and so does
    one of which nothing is known."""
    doubtful = replace(seen("us-central1", SupplyOutcome.HIT, 0), last=None, hits=0.0, misses=1.5)
    known = (doubtful, seen("us-east1", SupplyOutcome.HIT))
    unsure = inputs_of((VmRequest(since=NOW),), spec=flat(1.0, 1.2, 9.0), supply=known)
    unsure = replace(unsure, policy=CapacityPolicy(belief_bar=0.4))
    assert creates(unsure) == {"us-central1": 1, "us-east1": 1}
    sure = replace(unsure, supply=(seen("us-central1", SupplyOutcome.HIT), known[1]))
    assert creates(sure) == {"us-central1": 1}
    assert creates(replace(unsure, supply=())) == {"us-central1": 1}


def test_several_requests_need_more_doubt_to_get_company() -> None:
    """One of two may fail: whatever becomes free first serves who is left. Of three, one nearly
    surely does: a fourth is asked for."""
    doubtful = replace(seen("us-central1", SupplyOutcome.HIT, 0), last=None, hits=1.5, misses=1.5)
    known = (doubtful, seen("us-east1", SupplyOutcome.HIT))
    spec = replace(flat(1.0, 1.2, 9.0), vm_max=9)
    two, three = (inputs_of((VmRequest(since=NOW),) * n, spec=spec, supply=known) for n in (2, 3))
    assert [sum(creates(inputs).values()) for inputs in (two, three)] == [2, 4]


def test_many_wishes_are_spread_by_what_regions_give() -> None:
    """A region is asked for as many at once as it has shown that it gives; the rest goes on."""
    small = replace(seen("us-central1", SupplyOutcome.HIT, 0), room=2.0)
    wide = inputs_of(
        (VmRequest(),) * 6, spec=replace(flat(1.0, 1.02, 1.04), vm_max=6), supply=(small,)
    )
    assert creates(wide) == {"us-central1": 2, "us-east1": 4}


def test_dear_region_is_asked_when_the_wait_has_cost_as_much() -> None:
    """Not while the cheap ones are blocked for a moment, but not never."""
    blocks = tuple(blocked(region, 9e6) for region in REGIONS[:2])
    dear = inputs_of((VmRequest(since=NOW),), spec=flat(1.0, 1.0, 9.0), blocks=blocks)
    assert "europe-west4" not in creates(dear, 600)
    look = next_look(dear, TIMERS, NOW)
    assert look is not None
    assert "europe-west4" in creates(dear, 2400)
    nobody = replace(dear, policy=CapacityPolicy(waiting_usd_per_gpu_hour=0.0))
    assert "europe-west4" not in creates(nobody, 10 * 86400)


def test_deadline_lifts_the_price() -> None:
    """A job that must start now takes what there is, within its own cap."""
    blocks = tuple(blocked(region, 9e6) for region in REGIONS[:2])
    late = VmRequest(since=NOW, start_by=NOW)
    urgent = inputs_of((late,), spec=flat(1.0, 1.0, 9.0), blocks=blocks)
    assert creates(urgent)["europe-west4"] == 1
    capped = replace(urgent, demand=Demand("1xl4", (replace(late, max_usd_per_hour=5.0),)))
    assert "europe-west4" not in creates(capped)


def test_drain_is_cancelled_when_work_returns() -> None:
    """Unless the delete was asked for already."""
    leaving = vm("vm-1", V.DRAINING, reason="idle for 300 s")
    back = inputs_of((VmRequest(),), leaving)
    assert plan_cluster(back, NAMES, TIMERS, dice(), NOW) == (
        Undrain("vm-1", "there is work for it again"),
    )
    asked = replace(back, asked=frozenset({"vm-1"}))
    assert creates(asked) == {"us-central1": 1}


def test_refused_request_stands_as_a_probe_and_its_siblings_go() -> None:
    """The group tries again by itself: one name is enough to see the end of a stockout."""
    refused = [vm(f"vm-{i}", V.BOOTING, refused=True) for i in range(3)]
    young = vm("vm-9", V.BOOTING)
    actions = plan(
        4, *refused, young, spec=cluster(vm_max=20), blocks=(blocked("us-central1", 60),)
    )
    deleted = [name for a in actions if isinstance(a, Delete) for name in a.names]
    assert deleted == ["vm-1", "vm-2"]


def test_probes_make_room_for_a_region_that_may_deliver() -> None:
    """The limit counts names without a VM too."""
    standing = [vm(f"vm-{i}", V.BOOTING, refused=True, region=r) for i, r in enumerate(REGIONS[1:])]
    blocks = tuple(blocked(region, 60) for region in REGIONS[1:])
    actions = plan(1, *standing, spec=cluster(vm_max=2), blocks=blocks)
    assert sum(len(a.names) for a in actions if isinstance(a, Delete)) == 1


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
