"""How many VMs, where, and why."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from core.capacity import (
    Action,
    ClusterSpec,
    Create,
    Delete,
    Demand,
    Drain,
    Hold,
    Trouble,
    TroubleKind,
    Vm,
    VmState,
)
from core.job import E
from core.timers import Timers
from orchestrator.plan import SLACK, Picture, demand_by_cluster, plan_cluster
from tests.builders import NAMES, NOW, REGIONS, at, cluster, dice, job, vm

TIMERS = Timers()
V = VmState


def plan(
    demand: int = 0,
    *vms: Vm,
    spec: ClusterSpec | None = None,
    troubles: tuple[Trouble, ...] = (),
    regions: tuple[str, ...] = (),
    now_s: float = 0,
) -> tuple[Action, ...]:
    wanted = Demand("1xl4", (regions,) * demand)
    picture = Picture(spec or cluster(), wanted, vms, troubles, frozenset())
    return plan_cluster(picture, NAMES, TIMERS, dice(), at(now_s))


def blocked(region: str, until_s: float, kind: TroubleKind = TroubleKind.STOCKOUT) -> Trouble:
    return Trouble(region, "", "g2-standard-4", False, kind, NOW, NOW, at(until_s), 1, "no GPUs")


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
    (action,) = plan(1, troubles=(blocked("us-central1", 60),))
    assert isinstance(action, Create)
    assert action.region == "us-east1"


def test_slow_region_gets_company_from_the_next_one() -> None:
    """A request that is silent for too long has no credit, but at most one VM more is in flight."""
    slow = vm("vm-1", V.REQUESTED)
    (action,) = plan(1, slow, now_s=TIMERS.widen_after_s + 1)
    assert isinstance(action, Create)
    assert action.region == "us-east1"
    second = vm("vm-2", V.REQUESTED, region="us-east1")
    assert plan(1, slow, second, now_s=TIMERS.widen_after_s + 1) == ()


def test_limit_binds_over_all_regions_and_says_so() -> None:
    """Booting, idle and busy VMs of every region count."""
    vms = (
        vm("vm-1", V.READY, leases=("a",), idle_since=None),
        vm("vm-2", V.BOOTING, region="us-east1"),
        vm("vm-3", V.DELETING, region="europe-west4"),
    )
    actions = plan(5, *vms, spec=cluster(vm_max=3))
    holds = [a for a in actions if isinstance(a, Hold)]
    assert not [a for a in actions if isinstance(a, Create)]
    assert "cluster limit 3 reached" in holds[0].reason


def test_everything_blocked_names_each_region_and_its_end() -> None:
    """A refusal to act carries its reason, too."""
    actions = plan(1, troubles=tuple(blocked(r, 300 + i) for i, r in enumerate(REGIONS)))
    assert {a.region for a in actions if isinstance(a, Hold)} == set(REGIONS)
    assert all("stockout until 12:05:0" in a.reason for a in actions if isinstance(a, Hold))


def test_idle_vm_serves_before_a_new_one_is_made() -> None:
    """The scheduler will place the job on it."""
    assert plan(1, vm("vm-1")) == ()


def test_idle_vm_is_drained_after_its_time() -> None:
    """First drained by compare-and-set, then deleted by name."""
    tired = vm("vm-1")
    (action,) = plan(0, tired, now_s=TIMERS.idle_timeout_s + 1)
    assert action == Drain("vm-1", "idle for 300 s")
    drained = replace(tired, state=V.DRAINING, reason="idle for 300 s")
    (action,) = plan(0, drained, now_s=TIMERS.idle_timeout_s + 2)
    assert isinstance(action, Delete)
    assert (action.names, action.reason) == (("vm-1",), "idle for 300 s")


def test_draining_vm_with_a_lease_is_left_alone() -> None:
    """Scale-in cannot kill work."""
    assert plan(0, vm("vm-1", V.DRAINING, leases=("a",)), now_s=10_000) == ()


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
    picture = Picture(cluster(), Demand("1xl4"), (leaving,), ())
    for quiet in (replace(picture, asked=frozenset({"vm-1"})), _quiet(picture)):
        assert plan_cluster(quiet, NAMES, TIMERS, dice(), NOW) == ()
    (action,) = plan_cluster(picture, NAMES, TIMERS, dice(), NOW)
    assert isinstance(action, Delete)


def _quiet(picture: Picture) -> Picture:
    return replace(picture, quiet=frozenset({"us-central1"}))


def test_region_that_does_not_answer_is_passed_over() -> None:
    """The next best is asked."""
    wanted = Demand("1xl4", ((),))
    picture = _quiet(Picture(cluster(), wanted, (), ()))
    (action,) = plan_cluster(picture, NAMES, TIMERS, dice(), NOW)
    assert isinstance(action, Create)
    assert action.region == "us-east1"


def test_old_stockouts_do_not_count_for_ever() -> None:
    """Past its memory the cheapest region is the best one again."""
    old = replace(blocked("us-central1", -10), last_seen=at(-TIMERS.stockout_memory_s - 1))
    (action,) = plan(1, troubles=(old,))
    assert isinstance(action, Create)
    assert action.region == "us-central1"
    young = replace(old, last_seen=at(-60))
    (action,) = plan(1, troubles=(young,))
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
    assert made == {"us-central1": 1, "us-east1": 2}


def test_provisioning_jobs_are_the_demand() -> None:
    """QUEUED ones are not, nor those on VMs."""
    jobs = (job(1), job(2, E.ADMITTED), job(3, E.ADMITTED), job(4, E.ADMITTED, E.PLACED))
    assert len(demand_by_cluster(jobs)["1xl4"].wishes) == 2


@given(
    demand=st.integers(0, 12),
    vm_max=st.integers(0, 10),
    states=st.lists(
        st.tuples(
            st.sampled_from([s for s in V if s is not V.GONE]),
            st.sampled_from(REGIONS),
            st.booleans(),
            st.floats(-2000, 0),
        ),
        max_size=10,
    ),
    blocks=st.sets(st.sampled_from(REGIONS)),
)
def test_plans_keep_their_promises(
    demand: int,
    vm_max: int,
    states: list[tuple[VmState, str, bool, float]],
    blocks: set[str],
) -> None:
    """Never above the limit, never in a blocked region, never a VM with a lease, always a why."""
    vms = tuple(
        vm(
            f"vm-{number}",
            state,
            region=region,
            leases=("lease",) if held and state in (V.READY, V.DRAINING) else (),
            requested_at=at(since),
            idle_since=at(since),
        )
        for number, (state, region, held, since) in enumerate(states)
    )
    spec = cluster(vm_max=vm_max)
    actions = plan(demand, *vms, spec=spec, troubles=tuple(blocked(r, 60) for r in blocks))
    created = [name for a in actions if isinstance(a, Create) for name in a.names]
    deleted = {name for a in actions if isinstance(a, Delete) for name in a.names}
    drained = {a.vm_name for a in actions if isinstance(a, Drain)}
    by_name = {v.name: v for v in vms}
    assert len(set(created)) == len(created)
    if created:
        assert len(created) + len(vms) <= vm_max
    assert not {a.region for a in actions if isinstance(a, Create)} & blocks
    for name in deleted:
        assert not by_name[name].leases or by_name[name].state is V.DELETING
    for name in drained:
        assert by_name[name].idle
    in_flight = [v for v in vms if v.state in (V.REQUESTED, V.BOOTING) and v.name not in deleted]
    assert len(created) <= max(0, demand + SLACK - len(in_flight))
    assert all(a.reason for a in actions)
