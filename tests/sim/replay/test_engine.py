"""The replayed cloud, on supplies small enough to reckon by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bench.replay.rivals import CountOracle
from sim.replay.engine import ReplayCloud, ReplayStuck, VmPolicy
from sim.replay.figures import ReplayFigures
from sim.replay.physics import News, RandomDuration, ReplayJob, ReplayPhysics, ReplayVm
from sim.replay.supply import Supply, make_zone
from sim.replay.workload import TraceJob, Workload

DAY_S = 86_400.0
# No spread, and polls so close that nothing is rounded: times can be reckoned.
EXACT = ReplayPhysics(granted=RandomDuration(46, 46), refused=RandomDuration(57, 57), observe_s=0.5)
SPOT = ReplayPhysics(
    granted=RandomDuration(46, 46),
    refused=RandomDuration(57, 57),
    observe_s=0.5,
    preemption="counts",
    checkpoint_s=600,
)


def supply(**zones: tuple[float, list[tuple[float, int]]]) -> Supply:
    """Zones by name: (price, series)."""
    made = [make_zone(n.replace("_", "-"), s, DAY_S, p) for n, (p, s) in zones.items()]
    return Supply("by hand", tuple(made), DAY_S)


def jobs(*pairs: tuple[float, float]) -> Workload:
    return Workload("by hand", tuple(TraceJob(at, runs_s) for at, runs_s in pairs))


ALWAYS = [(0.0, 99)]
NEVER = [(0.0, 0)]


def test_a_cold_start_is_the_create_and_the_boot() -> None:
    """46 s until RUNNING, 90 s until READY; the bill begins at RUNNING."""
    cloud = ReplayCloud(supply(a=(2.0, ALWAYS)), EXACT, seed=1)
    found = cloud.play(jobs((0, 3600)), CountOracle(cloud, 9))
    assert found.wait_mean_s == pytest.approx(136)
    assert found.billed_h * 3600 == pytest.approx(3690)
    assert (found.useful_h, found.never_ran_h, found.lost_h) == (1.0, 0.0, 0.0)
    assert found.usd_useful == pytest.approx(2.0)
    assert found.usd_wasted == pytest.approx(2.0 * 90 / 3600)


def test_a_zone_gives_no_more_than_it_has() -> None:
    """What is held counts; what is given back is there again."""
    cloud = ReplayCloud(supply(a=(1.0, [(0.0, 1)])), EXACT, seed=1)
    found = cloud.play(jobs((0, 600), (0, 600)), CountOracle(cloud, 9))
    assert found.vms_most == 1
    assert found.wait_mean_s == pytest.approx((136 + 136 + 600 + 136) / 2)


def test_the_cloud_takes_what_it_cannot_hold() -> None:
    """When the count falls below what is held, the surplus goes half a minute later, and its job
    goes on from its last checkpoint."""
    zones = supply(a=(1.0, [(0.0, 1), (1136.0, 0), (1200.0, 1)]))
    cloud = ReplayCloud(zones, SPOT, seed=1)
    found = cloud.play(jobs((0, 3600)), CountOracle(cloud, 9))
    assert (found.taken, found.starts) == (1, 2)
    assert found.lost_h * 3600 == pytest.approx(430)  # 1030 s worked, 600 s saved
    assert found.useful_h == pytest.approx(1.0)
    ended = 1200 + 136 + 3000
    assert found.inflation == pytest.approx(ended / 3600)


def test_a_job_that_is_told_saves_all_it_has_done() -> None:
    """It works until the notice, saves for 20 s, and goes on from there elsewhere."""
    zones = supply(a=(1.0, [(0.0, 1), (1136.0, 0)]), b=(2.0, [(0.0, 0), (1100.0, 1)]))
    cloud = ReplayCloud(zones, SPOT, seed=1)
    found = cloud.play(jobs((0, 3600)), CountOracle(cloud, 9, heeds_notices=True))
    assert (found.taken, found.starts) == (1, 2)
    assert found.lost_h * 3600 == pytest.approx(20)
    assert found.inflation == pytest.approx((1136 + 20 + 136 + 2600) / 3600)
    assert found.billed_h * 3600 == pytest.approx(90 + 1000 + 20 + 90 + 2600)


def test_a_job_that_is_told_right_before_its_end_does_not_reach_it() -> None:
    """It was stopped to save: what was left is done elsewhere."""
    zones = supply(a=(1.0, [(0.0, 1), (1136.0, 0), (1200.0, 1)]))
    cloud = ReplayCloud(zones, SPOT, seed=1)
    found = cloud.play(jobs((0, 1010)), CountOracle(cloud, 9, heeds_notices=True))
    assert found.starts == 2
    assert found.inflation == pytest.approx((1200 + 136 + 10) / 1010)


def test_a_job_that_is_not_told_may_end_before_its_vm() -> None:
    """The last half minute is good for work that ends within it."""
    zones = supply(a=(1.0, [(0.0, 1), (1136.0, 0), (1200.0, 1)]))
    cloud = ReplayCloud(zones, SPOT, seed=1)
    found = cloud.play(jobs((0, 1010)), CountOracle(cloud, 9))
    assert (found.starts, found.taken, found.lost_h) == (1, 0, 0.0)


def test_without_spot_what_is_held_is_kept() -> None:
    """The same fall of the supply takes nothing."""
    zones = supply(a=(1.0, [(0.0, 1), (1136.0, 0), (1200.0, 1)]))
    cloud = ReplayCloud(zones, EXACT, seed=1)
    found = cloud.play(jobs((0, 3600)), CountOracle(cloud, 9))
    assert (found.taken, found.lost_h) == (0, 0.0)


def test_lifetimes_end_vms_wherever_they_are() -> None:
    """The other model of preemption: each VM draws how long it lives."""
    physics = ReplayPhysics(
        granted=RandomDuration(46, 46),
        preemption="lifetimes",
        lifetimes_s=(1290.0,),
        checkpoint_s=600,
    )
    cloud = ReplayCloud(supply(a=(1.0, ALWAYS)), physics, seed=1)
    found = cloud.play(jobs((0, 3000)), CountOracle(cloud, 9))
    assert found.taken == 2
    assert found.lost_h == 0.0  # 1200 s each: at a checkpoint


def test_the_supply_repeats_and_rotates() -> None:
    """A rotation by half a day begins in the middle of the series; its end is its beginning."""
    zones = supply(a=(1.0, [(0.0, 0), (DAY_S / 2, 1)]))
    early = ReplayCloud(zones, EXACT, seed=1)
    late = ReplayCloud(zones, EXACT, seed=1, offset_s=DAY_S / 2)
    work = jobs((0, 60))
    waits = [c.play(work, CountOracle(c, 9)).wait_mean_s for c in (early, late)]
    assert waits == [pytest.approx(DAY_S / 2 + 136), pytest.approx(136)]
    again = ReplayCloud(zones, EXACT, seed=1, offset_s=DAY_S / 2)
    second_day = again.play(jobs((DAY_S / 2 + 1, 60)), CountOracle(again, 9))
    assert second_day.wait_mean_s == pytest.approx(DAY_S / 2 - 1 + 136)


class Impatient:
    """Asks for two VMs and gives the second back as soon as it hears `when` of it."""

    hears_supply = False
    heeds_notices = False

    def __init__(self, when: str) -> None:
        self._when = when
        self._jobs: list[ReplayJob] = []
        self._second: ReplayVm | None = None

    def step(self, cloud: ReplayCloud, news: Sequence[News]) -> float | None:
        for item in news:
            if item.kind == "arrived" and item.job is not None:
                self._jobs.append(item.job)
                cloud.create(0)
                self._second = cloud.create(0)
            second = self._second
            if second is not None and self._when in (item.kind, "at once") and not second.gone_at:
                cloud.delete(second)
            ready = item.machine if item.kind == "ready" else None
            if ready is not None and ready.idle and self._jobs:
                cloud.start(self._jobs.pop(), ready)
        return None


@pytest.mark.parametrize(("when", "billed_s"), [("at once", 0.0), ("running", 60.0)])
def test_cancelling_before_running_is_free(when: str, billed_s: float) -> None:
    """After that a minute is billed at least."""
    found = _play(Impatient(when), supply(a=(1.0, ALWAYS)), jobs((1, 600)))
    assert found.never_ran_h * 3600 == pytest.approx(billed_s)
    assert found.billed_h * 3600 == pytest.approx(690 + billed_s)


class Patient:
    """Asks once and waits."""

    hears_supply = False
    heeds_notices = False

    def __init__(self) -> None:
        self._jobs: list[ReplayJob] = []
        self.refusals = 0

    def step(self, cloud: ReplayCloud, news: Sequence[News]) -> float | None:
        for item in news:
            self.refusals += item.kind == "refused"
            if item.kind == "arrived" and item.job is not None:
                self._jobs.append(item.job)
                cloud.create(0)
            if item.kind == "ready" and item.machine is not None:
                cloud.start(self._jobs.pop(), item.machine)
        return None


def test_the_group_tries_again_by_itself() -> None:
    """A request that was refused stands until it is deleted: it is granted when there is room."""
    policy = Patient()
    found = _play(policy, supply(a=(1.0, [(0.0, 0), (100.0, 1)])), jobs((0, 60)))
    assert policy.refusals == 2  # the attempt that began at 57 s is refused at 114 s
    assert found.wait_mean_s == pytest.approx(114 + 136)


def _play(policy: VmPolicy, zones: Supply, work: Workload) -> ReplayFigures:
    return ReplayCloud(zones, EXACT, seed=1).play(work, policy)


def test_a_policy_that_does_nothing_is_caught() -> None:
    """Jobs that are left behind end the replay with an error, not with a figure."""

    class Idle:
        hears_supply = False
        heeds_notices = False

        def step(self, _: ReplayCloud, __: Sequence[News]) -> float | None:
            return None

    with pytest.raises(ReplayStuck, match="1 of 1 jobs"):
        _play(Idle(), supply(a=(1.0, ALWAYS)), jobs((0, 60)))
