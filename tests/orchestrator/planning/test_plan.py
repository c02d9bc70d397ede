"""How many VMs, where, and why."""

from __future__ import annotations

from dataclasses import replace

from core.actions import Create, Delete, Drain, NoAction
from core.demand import Demand, VmRequest
from core.job import E
from core.supply import SupplyHistory, SupplyOutcome
from orchestrator.planning.plan import plan_cluster
from orchestrator.planning.plan_input import NO_ANSWER, PlanInput, demand_of
from tests.builders import NAMES, NOW, REGIONS, at, cluster, dice, job, vm
from tests.orchestrator.planning.planned import TIMERS, V, blocked, plan


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


def test_a_static_machine_is_asked_again_however_often_it_failed() -> None:
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
    return replace(inputs, quiet={"us-central1": NO_ANSWER})


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
