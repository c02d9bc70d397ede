"""Spot VMs: the more are held in one place, the more of them a shortage there takes at once."""

from dataclasses import replace

import pytest

from core.actions import Create, Drain
from core.cluster import ClusterSpec, RegionSpec
from core.demand import Demand, VmRequest
from core.supply import SupplyHistory
from core.timers import Timers
from core.vm import Vm, VmState
from orchestrator.planning.plan import plan_cluster
from orchestrator.planning.plan_input import PlanInput
from orchestrator.planning.region_estimates import CROWD_MAX, Outlooks, crowding
from tests.builders import NAMES, NOW, at, cluster, dice, vm

TIMERS = Timers()
V = VmState
HERE, THERE = "us-central1", "europe-west4"


def spot(here_usd: float, there_usd: float) -> ClusterSpec:
    prices = {HERE: here_usd, THERE: there_usd}
    regions = [RegionSpec(name, (f"{name}-a",), 9.0, usd) for name, usd in prices.items()]
    return cluster(vm_max=60, spot=True, regions=tuple(regions))


def working(count: int, region: str = HERE) -> list[Vm]:
    return [
        vm(f"{region}-{i}", V.READY, region=region, leases=(f"lease-{i}",), idle_since=None)
        for i in range(count)
    ]


def asked(spec: ClusterSpec, vms: list[Vm], wanted: int = 1) -> dict[str, int]:
    demand = Demand(spec.name, (VmRequest(since=NOW),) * wanted)
    actions = plan_cluster(PlanInput(spec, demand, tuple(vms), ()), NAMES, TIMERS, dice(), NOW)
    return {a.region: len(a.names) for a in actions if isinstance(a, Create)}


def test_next_vm_goes_where_fewer_are_if_the_prices_are_alike() -> None:
    """Two places, one a little cheaper: once it holds many, the other is the better one."""
    spec = spot(2.0, 2.1)
    assert asked(spec, []) == {HERE: 1}
    assert asked(spec, working(12)) == {THERE: 1}


def test_many_at_once_are_spread() -> None:
    """VMs that are requested in the same moment are company for each other."""
    assert set(asked(spot(2.0, 2.1), [], wanted=16)) == {HERE, THERE}


def test_standard_vms_are_not_taken_so_they_stay_together() -> None:
    spec = replace(spot(2.0, 2.1), spot=False)
    regions = tuple(replace(r, usd_per_hour=r.spot_usd_per_hour) for r in spec.regions)
    assert asked(replace(spec, regions=regions), working(12)) == {HERE: 1}


@pytest.mark.parametrize("usual", [0.0, 1.0, 7.5, 300.0])
def test_risk_grows_with_the_number_and_is_bounded(usual: float) -> None:
    risks = [crowding(number, usual) for number in range(1, 2000)]
    assert risks == sorted(risks)
    assert 0 < risks[0] <= risks[-1] <= CROWD_MAX


def test_what_was_usual_there_is_no_crowd() -> None:
    """A place that held many all the time has shown what that means: its rate says it already."""
    seen = SupplyHistory(
        HERE, "", "g2-standard-4", True, updated_at=NOW, preempted=10.0, vm_hours=400.0
    )
    rare = replace(seen, vm_hours=20.0, preempted=0.5)
    spec = spot(2.0, 2.1)
    inputs_strategy = [
        PlanInput(spec, Demand(spec.name), tuple(working(11)), (), supply=(known,))
        for known in (seen, rare)
    ]
    usual, crowded = (Outlooks(inputs, TIMERS, NOW)[HERE] for inputs in inputs_strategy)
    assert usual.price < crowded.price


def test_one_vm_waits_for_a_user_who_looks_at_the_result_and_only_one() -> None:
    """Ten jobs end together and nobody has come for an hour: nine VMs are given back at once."""
    done = [vm(f"vm-{i}", V.READY, running_since=at(-600), idle_since=at(-5)) for i in range(10)]
    spec = cluster(vm_max=20)
    inputs = PlanInput(spec, Demand(spec.name), tuple(done), ())
    drained = [a for a in plan_cluster(inputs, NAMES, TIMERS, dice(), NOW) if isinstance(a, Drain)]
    assert len(drained) == 9
    later = plan_cluster(inputs, NAMES, TIMERS, dice(), at(120))
    assert sum(isinstance(a, Drain) for a in later) == 10
