"""A world of v1 workers, with their real waits, in virtual time."""

from __future__ import annotations

import pytest

from bench.worlds.v1_workers import simulate_v1
from sim.virtual.run import SimulationPlan


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_v1_workers_lose_nothing_and_run_nothing_twice(seed: int) -> None:
    """VMs crash, workers freeze, leaders die, messages come late: every job ends, none is on two
    VMs at once, limits hold, no VM is left."""
    outcome = simulate_v1(SimulationPlan(seed, jobs=25, replicas=2))
    assert [str(violation) for violation in outcome.violations] == [], outcome.about
    assert sum(outcome.statuses.values()) >= 20
    assert outcome.faults["v1_crash"] > 0
    assert outcome.transitions["PROVISIONING found_by_v1 ASSIGNED"] > 10


def test_without_misfortune_each_job_runs_once() -> None:
    """No VM is asked for in vain."""
    outcome = simulate_v1(SimulationPlan(4, jobs=10, replicas=1, faults=False))
    assert outcome.violations == []
    assert outcome.faults["v1_crash"] == 0
