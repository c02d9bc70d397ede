"""Gangs whose VMs come together: one request each, all or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from core.actions import Action, Create, Delete, Drain, NoAction, Queue, Unqueue
from core.clouds import CLOUDS
from core.cluster import ClusterSpec
from core.demand import Demand, VmRequest
from core.job import E
from core.names import gang_of, request_for
from core.region_blocks import BlockKind, RegionBlock
from core.remaining import RunTimes
from core.supply import Arrivals
from core.timers import Timers
from core.vm import Vm, VmState
from orchestrator.planning.analysis import survey
from orchestrator.planning.flex_start import MARGIN_S
from orchestrator.planning.plan import look_again, plan_cluster
from orchestrator.planning.plan_input import NO_ANSWER, PlanInput, request_of
from tests.builders import NAMES, NOW, REGIONS, at, cluster, dice, job, vm

V = VmState
TIMERS = Timers()
HERE, THERE = REGIONS[0], REGIONS[1]
RUN_S = 7200.0


def flex(vm_max: int = 12) -> ClusterSpec:
    return cluster(vm_max=vm_max, flex_start_wait_s=7200.0)


def gang(
    uid: str = "a", size: int = 4, region: str = HERE, **facts: object
) -> tuple[VmRequest, ...]:
    words = {"since": NOW, "run_s": RUN_S, **facts}
    return (VmRequest((region,), gang=uid, **words),) * size  # type: ignore[arg-type]


def queued(uid: str = "a", size: int = 4, **facts: object) -> tuple[Vm, ...]:
    """VMs of one request that waits."""
    words = {"state": V.REQUESTED, "together": request_for(uid, "bcdf"), **facts}
    return tuple(vm(f"{uid}-{n}", **words) for n in range(size))  # type: ignore[arg-type]


def given_vms(uid: str = "a", size: int = 4, **facts: object) -> tuple[Vm, ...]:
    return queued(uid, size, **{"state": V.BOOTING, **facts})


def inputs_of(
    requests: Sequence[VmRequest] = (), vms: Sequence[Vm] = (), spec: ClusterSpec | None = None
) -> PlanInput:
    spec = spec or flex()
    return PlanInput(spec, Demand(spec.name, tuple(requests)), tuple(vms), ())


def planned(inputs: PlanInput, now: datetime = NOW) -> tuple[Action, ...]:
    return plan_cluster(inputs, NAMES, TIMERS, dice(), now)


def calls(inputs: PlanInput, now: datetime = NOW) -> list[Action]:
    return [a for a in planned(inputs, now) if not isinstance(a, NoAction)]


def block(region: str, kind: BlockKind) -> RegionBlock:
    return RegionBlock(region, "", "g2-standard-4", False, kind, NOW, NOW, at(600), 1, "none")


# --- asking ------------------------------------------------------------------------------


def test_gang_is_one_request() -> None:
    """All that the gang lacks, by name, in its region, for as long as it may run, and no more."""
    (ask,) = calls(inputs_of(gang(size=4)))
    assert isinstance(ask, Queue)
    assert (ask.region, len(set(ask.names)), gang_of(ask.name)) == (HERE, 4, "a")
    assert ask.run_s == RUN_S + TIMERS.boot_timeout_s + MARGIN_S
    assert "4 VMs" in ask.reason


def test_each_gang_has_its_own() -> None:
    """Two gangs need not come at the same time; names are nobody else's."""
    first, second = calls(inputs_of((*gang("a", 2), *gang("b", 3, THERE))))
    assert isinstance(first, Queue)
    assert isinstance(second, Queue)
    assert [(gang_of(a.name), a.region, len(a.names)) for a in (first, second)] == [
        ("a", HERE, 2),
        ("b", THERE, 3),
    ]


def test_run_is_within_what_google_takes() -> None:
    """Ten minutes at least, seven days at most."""
    runs = [
        ask.run_s
        for run_s in (1.0, 30 * 86400.0)
        for ask in calls(inputs_of(gang(run_s=run_s)))
        if isinstance(ask, Queue)
    ]
    assert runs == [
        max(CLOUDS["mig"].request_run_min_s, 1.0 + TIMERS.boot_timeout_s + MARGIN_S),
        CLOUDS["mig"].request_run_max_s,
    ]


def test_others_come_one_by_one() -> None:
    """A job that is no gang is asked for as ever, beside a gang; and so is a gang in a cluster that
    does not say otherwise."""
    kinds = Counter(type(a) for a in calls(inputs_of((*gang(), VmRequest(since=at(1))))))
    assert kinds == {Queue: 1, Create: 1}
    plain = calls(inputs_of(gang(), spec=cluster(vm_max=12)))
    assert {type(a) for a in plain} == {Create}


def test_gangs_are_not_stocked_up_for() -> None:
    """Jobs that come in numbers are expected where they come one by one; a spare VM is of no use
    to a gang."""
    times = tuple(at(-s) for s in (40, 30, 20, 10, 1))
    stream = replace(inputs_of((VmRequest(since=NOW),)), arrivals=Arrivals(at(-7200), times))
    plain = replace(stream, spec=cluster(vm_max=12))
    made = [sum(len(a.names) for a in calls(p) if isinstance(a, Create)) for p in (stream, plain)]
    assert made[0] == 1 < made[1]


def test_a_waiting_request_is_waited_for() -> None:
    """Hours later nothing is late, hedged, probed or taken back; the region says since when."""
    inputs = inputs_of(gang(), queued())
    assert calls(inputs, at(7000)) == []
    words = [a.reason for a in planned(inputs, at(7000)) if isinstance(a, NoAction)]
    assert words == [
        "4 VMs were asked for together at 12:00 UTC, they come when there is room for all"
    ]


def test_gang_uses_what_is_there() -> None:
    """Only what it lacks beside idle VMs of its region is asked for."""
    (ask,) = calls(inputs_of(gang(size=4), [vm("idle-1"), vm("idle-2", region=THERE)]))
    assert isinstance(ask, Queue)
    assert len(ask.names) == 3


def test_stockout_is_what_the_queue_is_for() -> None:
    """A gang may wait in a region that is stocked out; any other block, a failed request a moment
    ago, a silent cloud, deadly settings: it is told why not."""
    inputs = inputs_of(gang())
    stocked_out = replace(inputs, blocks=(block(HERE, BlockKind.STOCKOUT),))
    assert isinstance(calls(stocked_out)[0], Queue)
    refused = (
        replace(inputs, blocks=(block(HERE, BlockKind.QUOTA),)),
        replace(inputs, spurned=frozenset({HERE})),
        replace(inputs, quiet={HERE: NO_ANSWER}),
        replace(inputs, refused={HERE: "an autoscaler"}),
        inputs_of(gang(max_usd_per_hour=0.1)),
    )
    for bad in refused:
        assert calls(bad) == []
        assert any(
            isinstance(a, NoAction) and "4 VMs, all or none" in a.reason for a in planned(bad)
        )


# --- limits ------------------------------------------------------------------------------


def test_no_room_for_all_is_no_room() -> None:
    """With three places left under the limit a gang of four gets none, and keeps them: a job
    behind it waits, a job ahead goes on."""
    busy = [vm(f"busy-{n}", leases=("lease",), idle_since=None) for n in range(3)]
    behind, ahead = VmRequest(since=at(1), position=9), VmRequest(since=at(-1), position=-1)
    waiting = inputs_of((*gang(), behind), busy, flex(vm_max=6))
    assert calls(waiting) == []
    holds = [a.reason for a in planned(waiting) if isinstance(a, NoAction)]
    assert any("3 places are left under the cluster's limit 6" in words for words in holds)
    (made,) = calls(inputs_of((ahead, *gang()), busy, flex(vm_max=6)))
    assert isinstance(made, Create)
    assert len(made.names) == 1


def test_gang_that_never_fits_holds_nobody_up() -> None:
    """One that is larger than the cluster keeps no places."""
    (made,) = calls(inputs_of((*gang(size=7), VmRequest(since=at(1))), (), flex(vm_max=6)))
    assert isinstance(made, Create)


def test_region_limit_counts_all_of_them() -> None:
    """Four do not fit where three may be."""
    spec = flex()
    spec = replace(spec, regions=(replace(spec.regions[0], vm_max=3), *spec.regions[1:]))
    assert calls(inputs_of(gang(), spec=spec)) == []
    assert len(calls(inputs_of(gang(size=3), spec=spec))) == 1


def test_lowered_limit_takes_back_whole_requests() -> None:
    """The newest goes first, and only as many as must."""
    old = queued("a", 3, requested_at=at(-60))
    new = queued("b", 2, requested_at=at(-30), region=THERE)
    inputs = inputs_of((*gang("a", 3), *gang("b", 2, THERE)), (*old, *new), flex(vm_max=4))
    (back,) = calls(inputs)
    assert isinstance(back, Unqueue)
    assert set(back.names) == {v.name for v in new}


# --- giving up ---------------------------------------------------------------------------


def test_request_goes_with_its_gang() -> None:
    """A gang that is gone, looks elsewhere, or has found all its VMs gives up its request whole;
    so does one whose region is withdrawn, or whose cluster asks one by one now."""
    request = queued()
    here = [vm(f"idle-{n}") for n in range(4)]
    elsewhere = replace(flex(), regions=flex().regions[1:])
    for inputs in (
        inputs_of((), request),
        inputs_of(gang(region=THERE), request),
        inputs_of(gang(), (*request, *here)),
        inputs_of(gang(), request, elsewhere),
        inputs_of(gang(), request, cluster(vm_max=12)),
    ):
        back = [a for a in planned(inputs) if isinstance(a, Unqueue)]
        assert [(a.name, set(a.names)) for a in back] == [
            (request[0].together, {v.name for v in request})
        ]
        assert not [a for a in planned(inputs) if isinstance(a, Delete)]


def test_request_under_way_is_not_given_up_twice() -> None:
    """Nor in a region that does not answer."""
    inputs = inputs_of((), queued())
    assert calls(replace(inputs, asked=frozenset({"a-0", "a-1", "a-2", "a-3"}))) == []
    assert calls(replace(inputs, quiet={HERE: NO_ANSWER})) == []


def test_boot_time_counts_from_the_gift() -> None:
    """What waited for hours has the whole boot time-out once it is given."""
    given_at = at(5000)
    inputs = inputs_of(gang(), given_vms(state_since=given_at))
    limit = 5000 + TIMERS.boot_timeout_s
    assert calls(inputs, at(limit)) == []
    assert look_again(survey(inputs, TIMERS, given_at)) is not None
    late = [a for a in calls(inputs, at(limit + 1)) if isinstance(a, Delete)]
    assert [len(a.names) for a in late] == [4]


def ready_vms(uid: str = "a", size: int = 4, **facts: object) -> tuple[Vm, ...]:
    words = {"state": V.READY, "running_since": NOW, "boot_nonce": "n", "idle_since": NOW}
    return queued(uid, size, **{**words, "ends_at": at(10_000), **facts})


def test_given_vms_are_kept_for_their_gang() -> None:
    """While it waits for the rest of them, others ask for VMs of their own."""
    assert calls(inputs_of(gang(), ready_vms())) == []
    (made,) = calls(inputs_of((*gang(), VmRequest(since=NOW)), ready_vms()))
    assert isinstance(made, Create)


def test_what_a_gang_leaves_serves_those_that_end_in_time() -> None:
    """Another gang, or a single job, that ends before the cloud ends the VMs needs no other ones;
    gangs that may run for a week are content with six days; where the end is not known yet, nobody
    is sent."""
    other = gang("b", run_s=5000.0)
    assert calls(inputs_of(other, ready_vms())) == []
    assert calls(inputs_of((VmRequest(since=NOW, run_s=5000.0),) * 4, ready_vms())) == []
    (ask,) = calls(inputs_of(gang("b", run_s=10_001.0), ready_vms()))
    assert isinstance(ask, Queue)
    week = gang("b", run_s=7 * 86400.0)
    assert calls(inputs_of(week, ready_vms(ends_at=at(6.5 * 86400)))) == []
    assert len(calls(inputs_of(other, ready_vms(ends_at=None)))) == 1


def test_what_a_gang_leaves_idles_out() -> None:
    """As any other VM; what was given for it but does not run yet goes at once."""
    late = TIMERS.idle_timeout_s + 1
    done = calls(inputs_of((), ready_vms()), at(late))
    assert [a.vm_name for a in done if isinstance(a, Drain)] == [v.name for v in ready_vms()]
    (back,) = calls(inputs_of((), given_vms()))
    assert isinstance(back, Delete)
    assert len(back.names) == 4


def test_gang_begins_again_on_its_own() -> None:
    """One VM was lost: the other three are its own still, one more is asked for."""
    (ask,) = calls(inputs_of(gang(size=4, run_s=1e6), ready_vms(size=3)))
    assert isinstance(ask, Queue)
    assert len(ask.names) == 1


def test_vm_request_of_a_member() -> None:
    """It says whose it is and how long it may run; a job of its own is nobody's."""
    alone = request_of(job(1, E.ADMITTED, max_runtime_s=60.0), RunTimes())
    assert (alone.gang, alone.run_s) == ("", 60.0)


# --- always ------------------------------------------------------------------------------


@st.composite
def inputs_strategy(draw: st.DrawFn) -> PlanInput:
    requests: list[VmRequest] = []
    vms: list[Vm] = []
    for uid in ("a", "b", "c"):
        region = draw(st.sampled_from(REGIONS))
        since = at(-draw(st.integers(0, 100)))
        requests += gang(uid, draw(st.integers(0, 4)), region, since=since)
        state = draw(st.sampled_from([V.REQUESTED, V.REQUESTED, V.BOOTING, V.READY, V.DELETING]))
        ran = state is V.READY or (state is V.BOOTING and draw(st.booleans()))
        facts: dict[str, object] = {
            "state": state,
            "region": draw(st.sampled_from((region, "asia-east1", THERE))),
        }
        facts |= {"requested_at": since, "running_since": since if ran else None}
        facts["ends_at"] = draw(st.sampled_from([None, at(9000)])) if ran else None
        vms += queued(uid, draw(st.integers(0, 4)), **facts)
        if state is V.REQUESTED and vms and draw(st.booleans()):  # the first is seen to be given
            vms[-1] = replace(vms[-1], state=V.BOOTING)
    for number in range(draw(st.integers(0, 4))):
        requests.append(VmRequest(since=at(-number)))
        vms.append(vm(f"loose-{number}", draw(st.sampled_from([V.REQUESTED, V.READY]))))
    spec = flex(vm_max=draw(st.integers(0, 16)))
    spec = replace(spec, flex_start_wait_s=draw(st.sampled_from([60.0, 60.0, None])))
    limit = draw(st.sampled_from([None, 2, 5]))
    spec = replace(spec, regions=(replace(spec.regions[0], vm_max=limit), *spec.regions[1:]))
    kind = draw(st.sampled_from(BlockKind))
    return replace(
        inputs_of(requests, vms, spec),
        blocks=tuple(draw(st.lists(st.just(block(HERE, kind)), max_size=1))),
        quiet=draw(st.dictionaries(st.sampled_from(REGIONS), st.just(NO_ANSWER), max_size=1)),
        spurned=frozenset(draw(st.sets(st.sampled_from(REGIONS), max_size=1))),
    )


@settings(max_examples=150)
@given(inputs_strategy(), st.integers(0, 5000))
def test_all_or_none(inputs: PlanInput, later_s: int) -> None:
    """Never a part of a gang, never above a limit, never one queued VM of several; the same plan
    input gives the same plan, and each action its reason."""
    now = at(later_s)
    actions = planned(inputs, now)
    assert actions == planned(inputs, now)
    assert all(a.reason for a in actions)
    asks = [a for a in actions if isinstance(a, Queue)]
    made = [n for a in actions if isinstance(a, Queue | Create) for n in a.names]
    assert len(set(made)) == len(made)
    assert not made or len(made) + len(inputs.vms) <= inputs.spec.vm_max
    here = Counter(v.region for v in inputs.vms)
    here.update(a.region for a in actions if isinstance(a, Queue | Create) for _ in a.names)
    for region in inputs.spec.regions:
        grown = any(isinstance(a, Queue | Create) and a.region == region.region for a in actions)
        assert not grown or region.vm_max is None or here[region.region] <= region.vm_max
    for ask in asks:
        _whole(ask, inputs)
    waiting = {v.name: v for v in inputs.vms if v.queued}
    deleted = {n for a in actions if isinstance(a, Delete) for n in a.names}
    assert not deleted & waiting.keys()
    for action in actions:
        if isinstance(action, Unqueue):
            mine = {v.name for v in inputs.vms if v.together == action.name}
            assert set(action.names) == mine
            assert mine <= waiting.keys(), "what was given is not given up with it"


def _whole(ask: Queue, inputs: PlanInput) -> None:
    """With what it has and what comes there for it, the gang is complete."""
    uid = gang_of(ask.name)
    size = sum(request.gang == uid for request in inputs.demand.requests)
    usable = [v for v in inputs.vms if v.region == ask.region and v.state is not V.DELETING]
    assert len(ask.names) <= size <= len(ask.names) + len(usable)
    assert inputs.spec.flex_start_wait_s is not None
    assert ask.region not in inputs.quiet.keys() | inputs.spurned
