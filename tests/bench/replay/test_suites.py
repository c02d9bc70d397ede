"""What replays guarantee of every policy, the product's and its rivals'."""

from __future__ import annotations

from functools import cache

import pytest

from bench.capacity_verdict import METRICS
from bench.replay.suites import POLICIES, estimate, policy_of
from sim.replay.cases import OURS, ReplayCase, Traces, run_case, run_cases
from sim.replay.figures import ReplayFigures
from sim.replay.physics import Preemption, ReplayPhysics
from sim.replay.product import Setup
from sim.replay.synthetic import Recipe, make_jobs, make_supply

RECIPE = Recipe(seed=3, days=0.4, regions=3, jobs_per_day=150, run_s=1200)
TRACES = Traces({"jobs": make_jobs(RECIPE)}, {"supply": make_supply(RECIPE)}, policy_of)


@cache
def replayed(policy: str, preemption: Preemption = "counts", vm_max: int = 100) -> ReplayFigures:
    physics = ReplayPhysics(preemption=preemption)
    setup = Setup(vm_max, spot=preemption != "none")
    return run_case(ReplayCase("jobs", "supply", policy, physics, setup), TRACES)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_case_gives_the_same_figures(policy: str) -> None:
    """To the last bit: nothing depends on hashes, clocks or the order of sets."""
    setup = Setup(100, spot=True)
    case = ReplayCase("jobs", "supply", policy, ReplayPhysics(preemption="counts"), setup)
    assert run_case(case, TRACES) == replayed(policy)


def test_another_seed_is_another_cloud() -> None:
    """The dice are an argument that matters."""
    case = ReplayCase(
        "jobs", "supply", OURS, ReplayPhysics(preemption="counts"), Setup(100, spot=True), seed=9
    )
    assert run_case(case, TRACES) != replayed(OURS)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("preemption", ["none", "counts"])
def test_every_billed_second_has_one_purpose(policy: str, preemption: Preemption) -> None:
    """Billed = useful + lost + idle + never-ran, and the useful part is what the jobs need."""
    found = replayed(policy, preemption)
    parts = found.useful_h + found.lost_h + found.idle_h + found.never_ran_h
    assert found.billed_h == pytest.approx(parts)
    assert found.useful_h == pytest.approx(TRACES.jobs["jobs"].gpu_hours)
    assert found.jobs == len(TRACES.jobs["jobs"].jobs)
    assert found.requested_h >= found.billed_h - 1e-6 or found.requests > found.jobs
    if preemption == "none":
        assert (found.lost_h, found.taken) == (0.0, 0)


def test_nobody_is_much_cheaper_than_who_knows_the_counts() -> None:
    """Only the boots that a reused VM saves may undercut it."""
    price = METRICS["usd_per_useful_hour"]
    oracle = price(replayed("oracle", "none"))
    for policy in POLICIES:
        assert price(replayed(policy, "none")) > 0.97 * oracle, policy


def test_the_limit_is_never_passed() -> None:
    """Booting + idle + busy over all regions, however long the queue."""
    found = replayed(OURS, "counts", vm_max=4)
    assert found.vms_most == 4
    assert found.wait_mean_s > replayed(OURS).wait_mean_s


def test_replays_come_back_in_the_order_of_their_cases() -> None:
    """However fast each one was; and the caller is told how many are done."""
    physics, setup = ReplayPhysics(), Setup(100)
    cases = [ReplayCase("jobs", "supply", p, physics, setup) for p in ("oracle", "sequential")]
    told: list[tuple[int, int]] = []
    found = run_cases(cases, TRACES, 2, lambda done, of: told.append((done, of)))
    assert found == [replayed(policy, "none") for policy in ("oracle", "sequential")]
    assert told == [(1, 2), (2, 2)]


def test_an_interval_needs_two_values() -> None:
    """Mean and half of the 95 % interval by Student's t."""
    assert estimate([1.0, 2.0, 3.0]).mean == 2.0
    assert estimate([1.0, 2.0, 3.0]).half == pytest.approx(4.30 / 3**0.5)
    assert estimate([1.0]).half != estimate([1.0]).half
