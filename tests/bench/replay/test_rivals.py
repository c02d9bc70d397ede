"""The rival policies, on supplies small enough to reckon by hand."""

from __future__ import annotations

import pytest

from bench.replay.rivals import CountOracle, Failover, ScaleEveryRegion, single_region
from sim.replay.engine import ReplayCloud
from sim.replay.physics import RandomDuration, ReplayPhysics
from sim.replay.supply import Supply, make_zone
from sim.replay.workload import TraceJob, Workload

DAY_S = 86_400.0
# No spread, and polls so close that nothing is rounded: times can be reckoned.
EXACT = ReplayPhysics(granted=RandomDuration(46, 46), refused=RandomDuration(57, 57), observe_s=0.5)


def supply(**zones: tuple[float, list[tuple[float, int]]]) -> Supply:
    """Zones by name: (price, series)."""
    made = [make_zone(n.replace("_", "-"), s, DAY_S, p) for n, (p, s) in zones.items()]
    return Supply("by hand", tuple(made), DAY_S)


def jobs(*pairs: tuple[float, float]) -> Workload:
    return Workload("by hand", tuple(TraceJob(at, runs_s) for at, runs_s in pairs))


ALWAYS = [(0.0, 99)]
NEVER = [(0.0, 0)]


def test_the_oracle_takes_the_cheapest_that_can_give() -> None:
    """It is never refused, and waits when nobody can give."""
    series = [(0.0, 1), (1000.0, 2)]
    cloud = ReplayCloud(supply(cheap=(1.0, NEVER), dear=(3.0, series)), EXACT, seed=1)
    found = cloud.play(jobs((0, 5000), (0, 5000)), CountOracle(cloud, 9))
    assert found.refused == 0
    assert found.wait_mean_s == pytest.approx((136 + 1136) / 2)
    assert found.usd_useful == pytest.approx(3.0 * 10_000 / 3600)


def test_failover_pays_for_each_refusal_with_time() -> None:
    """Cheapest first: 57 s until the refusal, then the next place from the start."""
    cloud = ReplayCloud(supply(cheap=(1.0, NEVER), dear=(3.0, ALWAYS)), EXACT, seed=1)
    found = cloud.play(jobs((0, 60), (500, 60)), Failover(cloud, 9))
    assert found.wait_mean_s == pytest.approx(57 + 136)  # learned nothing from the first job
    assert (found.requests, found.refused, found.never_ran_h) == (4, 2, 0.0)


def test_failover_begins_anew_when_every_place_refused() -> None:
    """A minute later, as long as it takes."""
    cloud = ReplayCloud(supply(a=(1.0, [(0.0, 0), (100.0, 1)])), EXACT, seed=1)
    found = cloud.play(jobs((0, 60)), Failover(cloud, 9))
    assert found.wait_mean_s == pytest.approx(57 + 60 + 136)


def test_failover_holds_its_limit() -> None:
    """The next launch waits for a VM to be given back."""
    cloud = ReplayCloud(supply(a=(1.0, ALWAYS)), EXACT, seed=1)
    found = cloud.play(jobs((0, 600), (0, 600)), Failover(cloud, 1))
    assert found.vms_most == 1
    assert found.wait_mean_s == pytest.approx((136 + 136 + 600 + 136) / 2)


def test_scaling_every_region_buys_one_vm_in_each() -> None:
    """One job, four regions: three VMs boot for nothing."""
    cloud = ReplayCloud(
        supply(a=(1.0, ALWAYS), b=(1.0, ALWAYS), c=(1.0, ALWAYS), d=(1.0, ALWAYS)), EXACT, seed=1
    )
    found = cloud.play(jobs((0, 3600)), ScaleEveryRegion(9, loop_s=0))
    assert found.requests == 4
    assert found.wait_mean_s == pytest.approx(136)
    assert found.never_ran_h * 3600 == pytest.approx(3 * 90)


def test_scaling_every_region_counts_its_limit_in_each() -> None:
    """A limit of one VM per region is four VMs."""
    zones = supply(a=(1.0, ALWAYS), b=(1.0, ALWAYS), c=(1.0, ALWAYS), d=(1.0, ALWAYS))
    cloud = ReplayCloud(zones, EXACT, seed=1)
    found = cloud.play(jobs(*((0, 600),) * 8), ScaleEveryRegion(1, loop_s=0))
    assert found.vms_most == 4


def test_scaling_every_region_acts_at_its_own_pace() -> None:
    """Targets are set every half minute; a job that comes between waits for it."""
    cloud = ReplayCloud(supply(a=(1.0, ALWAYS)), EXACT, seed=1)
    found = cloud.play(jobs((10, 60)), ScaleEveryRegion(9, loop_s=30))
    assert found.wait_mean_s == pytest.approx(20 + 136)


@pytest.mark.parametrize(("reuse", "billed_s"), [(False, 190 + 190), (True, 90 + 200)])
def test_a_vm_may_look_for_the_next_job(reuse: bool, billed_s: float) -> None:
    """With reuse, the job that waits when another ends gets its VM; the one that was asked for
    it is cancelled before it runs."""
    cloud = ReplayCloud(supply(a=(1.0, ALWAYS)), EXACT, seed=1)
    found = cloud.play(jobs((0, 100), (230, 100)), ScaleEveryRegion(9, reuse=reuse, loop_s=0))
    assert found.requests == 2
    assert found.billed_h * 3600 == pytest.approx(billed_s)


def test_a_single_region_is_the_one_that_gives_most() -> None:
    """Its zones alone are asked, the cheapest first."""
    zones = supply(
        us_east4_a=(1.0, [(0.0, 1)]), us_west1_a=(2.0, [(0.0, 5)]), us_west1_b=(2.0, [(0.0, 5)])
    )
    cloud = ReplayCloud(zones, EXACT, seed=1)
    found = cloud.play(jobs((0, 3600)), single_region(cloud, 9))
    assert found.usd_useful == pytest.approx(2.0)
