"""The product's planners behind the replayed cloud."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.replay.engine import ReplayCloud
from sim.replay.figures import ReplayFigures
from sim.replay.physics import RandomDuration, ReplayPhysics
from sim.replay.product import Product, Setup
from sim.replay.supply import Supply, make_zone
from sim.replay.workload import TraceJob, Workload

EXACT = ReplayPhysics(granted=RandomDuration(46, 46), refused=RandomDuration(57, 57))


def _zones(*prices: float) -> Supply:
    zones = [make_zone(f"place-{i}", [(0.0, 99)], 86_400.0, p) for i, p in enumerate(prices)]
    return Supply("by hand", tuple(zones), 86_400.0)


def _play(supply: Supply, *jobs: tuple[float, float], vm_max: int = 9) -> ReplayFigures:
    cloud = ReplayCloud(supply, EXACT, seed=1)
    work = Workload("by hand", tuple(TraceJob(at, runs_s) for at, runs_s in jobs))
    return cloud.play(work, Product(cloud, Setup(vm_max), seed=1))


def test_our_planner_starts_a_job_after_one_cold_start() -> None:
    """Create, boot, start: the road of the real planners in virtual time."""
    found = _play(_zones(1.0), (0, 600))
    assert found.wait_mean_s == pytest.approx(136, abs=1)
    assert found.useful_h * 3600 == pytest.approx(600)


def test_our_planner_lets_a_finished_vm_take_the_next_job() -> None:
    """A job that waits when another ends is placed on its VM at once."""
    found = _play(_zones(1.0), (0, 600), (700, 600), vm_max=1)
    assert found.starts == 2
    assert found.requests == 1
    assert found.wait_mean_s == pytest.approx((136 + 36) / 2, abs=1)


def test_our_planner_asks_elsewhere_when_a_place_is_empty() -> None:
    """The cheap place never gives: the job runs in the other one."""
    cheap = make_zone("cheap", [(0.0, 0)], 86_400.0, 1.0)
    supply = replace(_zones(1.2), zones=(cheap, *_zones(1.2).zones))
    found = _play(supply, (0, 3600))
    assert found.usd_useful == pytest.approx(1.2)
    assert found.wait_mean_s < 57 + 136 + 10
