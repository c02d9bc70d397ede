"""Many VMs are wanted and a refusal is likely: no place is asked for all of them at once."""

from dataclasses import replace

from core.actions import Create, NoAction
from core.cluster import ClusterSpec, RegionSpec
from core.demand import Demand, VmRequest
from core.supply import Shortage, SupplyHistory, SupplyOutcome
from core.timers import Timers
from core.vm import Vm, VmState
from orchestrator.planning.analysis import survey
from orchestrator.planning.plan import look_again, plan_cluster
from orchestrator.planning.plan_input import PlanInput
from orchestrator.planning.vm_requests import LONG_WAIT_S
from tests.builders import NAMES, NOW, at, cluster, dice, vm

TIMERS = Timers()
V = VmState
HERE, THERE = "us-central1", "europe-west4"
USD = 2.0


def place(spot: bool, *names: str) -> ClusterSpec:
    regions = tuple(RegionSpec(name, (f"{name}-a",), USD, USD) for name in names)
    return cluster(vm_max=60, spot=spot, regions=regions)


def refused_lately(spec: ClusterSpec, region: str, room: float) -> SupplyHistory:
    """Asked half an hour ago, in vain: its block is over."""
    then = at(-1800)
    return SupplyHistory(
        region, "", spec.machine_type, spec.spot, then, hits=3.0, misses=3.0,
        last=SupplyOutcome.MISS, last_at=then, room=room,
    )  # fmt: skip


def planned(
    spec: ClusterSpec,
    supply: tuple[SupplyHistory, ...],
    vms: tuple[Vm, ...] = (),
    waited_s: float = 0.0,
) -> tuple[dict[str, int], dict[str, str]]:
    """For twenty jobs: VMs asked for by region, and what is held with which words."""
    demand = Demand(spec.name, (VmRequest(since=at(-waited_s)),) * 20)
    inputs = PlanInput(spec, demand, vms, (), supply=supply)
    actions = plan_cluster(inputs, NAMES, TIMERS, dice(), NOW)
    asked = {a.region: len(a.names) for a in actions if isinstance(a, Create)}
    return asked, {a.region: a.reason for a in actions if isinstance(a, NoAction)}


def test_a_place_that_refused_is_asked_for_what_it_usually_gives() -> None:
    """Spot, one region, twenty wanted: some are asked for, the others when these have come."""
    spec = place(True, HERE)
    asked, held = planned(spec, (refused_lately(spec, HERE, 2.0),))
    assert 1 <= asked[HERE] <= 4
    assert held[HERE] == "asked for as many as it is likely to give at once, more when these come"


def test_a_place_that_nobody_asked_yet_is_asked_for_all() -> None:
    """There is no reason to doubt it: a burst is not made to wait."""
    asked, held = planned(place(True, HERE), ())
    assert asked == {HERE: 20}
    assert not held


def test_a_place_that_delivers_gets_what_others_cannot_be_asked_for() -> None:
    """Beside one that refused, one that has just delivered: it is asked for the rest."""
    spec = place(True, HERE, THERE)
    good = replace(
        refused_lately(spec, THERE, 4.0), last=SupplyOutcome.HIT, last_at=at(-5), hits=9.0
    )
    asked, _ = planned(spec, (refused_lately(spec, HERE, 2.0), good))
    assert sum(asked.values()) == 20
    assert asked.get(HERE, 0) <= 4 < asked[THERE]


def test_standard_vms_are_held_back_only_while_a_request_is_late() -> None:
    """Nothing is late: all twenty at once. One is silent in another region: what is usual."""
    spec = place(False, HERE, THERE)
    known = (refused_lately(spec, HERE, 2.0), refused_lately(spec, THERE, 2.0))
    assert sum(planned(spec, known)[0].values()) == 20
    silent = vm("silent", V.REQUESTED, region=THERE, requested_at=at(-400), running_since=None)
    asked, _ = planned(spec, known, (silent,))
    assert 1 <= asked[HERE] <= 4
    assert THERE not in asked


def delivers(spec: ClusterSpec, short_s: float | None = None) -> SupplyHistory:
    """It has just delivered; so many seconds ago it had no room for one more."""
    known = replace(
        refused_lately(spec, HERE, 4.0), last=SupplyOutcome.HIT, last_at=at(-5), hits=9.0
    )
    return known if short_s is None else replace(known, shortages=(Shortage(3, at(-short_s)),))


def test_a_place_that_was_short_within_the_hour_is_not_asked_for_all() -> None:
    """It gave one, and refused others not long ago: the rest is asked for when these have come. One
    that was short in the morning is like any other."""
    spec = place(True, HERE)
    asked, held = planned(spec, (delivers(spec, short_s=1800),))
    assert asked == {HERE: 4}
    assert "more when these come" in held[HERE]
    assert planned(spec, (delivers(spec, short_s=3601),))[0] == {HERE: 20}
    assert planned(spec, (delivers(spec),))[0] == {HERE: 20}


def test_an_opening_is_not_missed_by_those_who_have_waited_for_long() -> None:
    """Nothing was to be had for minutes, and now one has come: nobody waits to see how many."""
    spec = place(True, HERE)
    known = (delivers(spec, short_s=1800),)
    assert planned(spec, known, waited_s=LONG_WAIT_S - 1)[0] == {HERE: 4}
    assert planned(spec, known, waited_s=LONG_WAIT_S + 1)[0] == {HERE: 20}
    waits = PlanInput(spec, Demand(spec.name, (VmRequest(since=NOW),) * 9), (), (), supply=known)
    soon = look_again(survey(waits, TIMERS, at(LONG_WAIT_S - 5)))
    assert soon is not None
    assert soon <= at(LONG_WAIT_S + 0.01)


def test_the_less_is_believed_of_a_place_the_fewer_it_is_asked_for() -> None:
    """Room for eight: all of it, about a half, one; never none, for somebody has to try."""
    spec = place(True, HERE)
    sure = replace(delivers(spec, short_s=1800), room=8.0)
    doubtful = replace(refused_lately(spec, HERE, 8.0), hits=9.0, misses=0.0, last_at=at(-7200))
    hopeless = replace(doubtful, last_at=at(-1))
    counts = [planned(spec, (known,))[0][HERE] for known in (sure, doubtful, hopeless)]
    assert counts[0] == 8
    assert 3 <= counts[1] <= 5
    assert counts[2] == 1


def test_a_place_that_takes_vms_back_is_asked_last() -> None:
    """From the notice on: it is no time to ask there, though it has always delivered. One VM is
    tried, also if there is no other place."""
    both, alone = place(True, HERE, THERE), place(True, HERE)
    told = vm(
        "told", V.DRAINING, region=HERE, spot=True, taken=True, leases=("lease",), state_since=NOW
    )
    known = (delivers(both), replace(delivers(both), region=THERE))
    assert planned(both, known)[0][HERE] > 1
    assert planned(both, known, (told,))[0] == {HERE: 1, THERE: 19}
    assert planned(alone, known[:1], (told,))[0] == {HERE: 1}


def test_a_taking_is_overtaken_by_what_the_place_gave_since() -> None:
    """A VM that was taken before the last delivery, and is still being deleted, says nothing."""
    spec = place(True, HERE)
    old, new = (
        vm(f"vm{s}", V.DELETING, region=HERE, spot=True, taken=True, state_since=at(s))
        for s in (-3600, -1)
    )
    assert planned(spec, (delivers(spec),), (old,))[0] == {HERE: 20}
    assert planned(spec, (delivers(spec),), (new,))[0] == {HERE: 1}


def test_one_of_many_that_is_taken_says_little() -> None:
    """In a large fleet some are taken all the time; it is short when it takes a tenth."""
    spec = replace(place(True, HERE), vm_max=99)
    fleet = [
        vm(f"vm{i}", V.READY, region=HERE, spot=True, leases=("lease",), state_since=NOW)
        for i in range(30)
    ]
    one, three = ((*(replace(v, taken=True) for v in fleet[:n]), *fleet[n:]) for n in (1, 3))
    assert planned(spec, (delivers(spec),), one)[0] == {HERE: 20}
    assert planned(spec, (delivers(spec),), three)[0] == {HERE: 1}


def test_the_end_of_the_time_that_was_asked_for_is_no_taking() -> None:
    """A VM that came together with others ends by the clock: its place gives as before."""
    spec = place(True, HERE)
    ended = vm(
        "ended", V.DRAINING, region=HERE, spot=True, taken=True, leases=("lease",), together="r-1"
    )
    assert planned(spec, (delivers(spec),), (ended,))[0] == {HERE: 20}
