"""Many VMs are wanted and a refusal is likely: no place is asked for all of them at once."""

from dataclasses import replace

from core.capacity import ClusterSpec, Create, Demand, Hold, RegionSpec, Vm, VmState, Wish
from core.knowledge import Experience, Outcome
from core.timers import Timers
from orchestrator.picture import Picture
from orchestrator.plan import plan_cluster
from tests.builders import NAMES, NOW, at, cluster, dice, vm

TIMERS = Timers()
V = VmState
HERE, THERE = "us-central1", "europe-west4"
USD = 2.0


def place(spot: bool, *names: str) -> ClusterSpec:
    regions = tuple(RegionSpec(name, (f"{name}-a",), USD, USD) for name in names)
    return cluster(vm_max=60, spot=spot, regions=regions)


def refused_lately(spec: ClusterSpec, region: str, room: float) -> Experience:
    """Asked half an hour ago, in vain: its block is over."""
    then = at(-1800)
    return Experience(
        region, "", spec.machine_type, spec.spot, then, hits=3.0, misses=3.0,
        last=Outcome.MISS, last_at=then, room=room,
    )  # fmt: skip


def planned(
    spec: ClusterSpec,
    experience: tuple[Experience, ...],
    vms: tuple[Vm, ...] = (),
    wanted: int = 20,
) -> tuple[dict[str, int], dict[str, str]]:
    """VMs asked for by region, and what is held with which words."""
    demand = Demand(spec.name, (Wish(since=NOW),) * wanted)
    picture = Picture(spec, demand, vms, (), experience=experience)
    actions = plan_cluster(picture, NAMES, TIMERS, dice(), NOW)
    asked = {a.region: len(a.names) for a in actions if isinstance(a, Create)}
    return asked, {a.region: a.reason for a in actions if isinstance(a, Hold)}


def test_a_place_that_refused_is_asked_for_what_it_usually_gives() -> None:
    """Spot, one region, twenty wanted: some are asked for, the others when these have come."""
    spec = place(True, HERE)
    asked, held = planned(spec, (refused_lately(spec, HERE, 2.0),))
    assert 1 <= asked[HERE] <= 4
    assert held[HERE] == "asked for as many as it usually gives at once, more when these come"


def test_a_place_that_nobody_asked_yet_is_asked_for_all() -> None:
    """There is no reason to doubt it: a burst is not made to wait."""
    asked, held = planned(place(True, HERE), ())
    assert asked == {HERE: 20}
    assert not held


def test_a_place_that_delivers_gets_what_others_cannot_be_asked_for() -> None:
    """Beside one that refused, one that has just delivered: it is asked for the rest."""
    spec = place(True, HERE, THERE)
    good = replace(refused_lately(spec, THERE, 4.0), last=Outcome.HIT, last_at=at(-5), hits=9.0)
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
