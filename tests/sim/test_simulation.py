"""The whole service in virtual time: with everything failing, every promise holds."""

from __future__ import annotations

import os

import pytest

from sim.virtual.report import Summary, command_of, failure_text, simulate_all
from sim.virtual.world import Plan, simulate

pytestmark = pytest.mark.slow

SEEDS = range(1000, 1060)
"""Fixed, so that a rerun repeats."""


@pytest.mark.timeout(1200)
def test_sixty_seeds_keep_every_promise_and_meet_every_fault() -> None:
    """200 jobs each over 6 clusters × 4 regions: nothing is lost, nothing runs twice, everything
    comes to rest; and no fault and no step of the job's table is left out."""
    plans = [Plan(seed=seed) for seed in SEEDS]
    summary = Summary(tuple(simulate_all(plans, workers=os.cpu_count() or 1)))
    assert not summary.failed, "\n\n".join(failure_text(outcome) for outcome in summary.failed)
    assert summary.missing == []
    ended = [sum(outcome.statuses.values()) for outcome in summary.outcomes]
    assert ended == [200] * len(plans)


def test_without_faults_every_job_ends_as_its_nature_says() -> None:
    """One replica, no misfortune: the thin road."""
    outcome = simulate(Plan(seed=1, jobs=20, replicas=1, faults=False))
    assert not outcome.violations, failure_text(outcome)
    assert sum(outcome.statuses.values()) == 20
    assert outcome.statuses["SUCCEEDED"] >= 12


def test_the_same_seed_is_the_same_run_event_for_event() -> None:
    """Also in another process, whose sets have another order."""
    plan = Plan(seed=77, jobs=40)
    here = simulate(plan)
    there, _ = simulate_all([plan, Plan(seed=78, jobs=5)], workers=2)
    assert (there.digest, there.events) == (here.digest, here.events)
    assert there.virtual_s == here.virtual_s


def test_another_seed_is_another_run() -> None:
    """Or the seed would mean nothing."""
    one, two = (simulate(Plan(seed=seed, jobs=5)) for seed in (1, 2))
    assert one.digest != two.digest


def test_the_command_that_repeats_a_run_names_all_that_matters() -> None:
    """Seed, size, and whether things failed."""
    plan = Plan(seed=9, jobs=33, replicas=2, faults=False)
    assert command_of(plan) == "zen simulate --seed 9 --jobs 33 --replicas 2 --no-faults"
