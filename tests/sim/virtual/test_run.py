"""The whole service in virtual time: with everything failing, every guarantee holds."""

from __future__ import annotations

import json
import os

import pytest

from cli.main import run
from sim.virtual.computations import Computing
from sim.virtual.report import SimulationSummary, command_of, failure_text, simulate_all
from sim.virtual.run import SimulationPlan, simulate

pytestmark = pytest.mark.slow

FIRST_SEED, SEEDS, JOBS = 1_410_000, 60, 210
"""A fixed list: the same source gives the same verdict. `zen simulate --seed N` tries others."""


@pytest.mark.timeout(3600)
def test_seeds_keep_every_guarantee() -> None:
    """200 jobs each over 8 clusters × 4 regions: nothing is lost, nothing runs twice, everything
    comes to rest; every fault fires and every step of the job's table is taken."""
    plans = [SimulationPlan(seed=FIRST_SEED + n, jobs=JOBS) for n in range(SEEDS)]
    summary = SimulationSummary(tuple(simulate_all(plans, workers=os.cpu_count() or 1)))
    assert not summary.failed, "\n\n".join(failure_text(outcome) for outcome in summary.failed)
    again = f"repeat them: zen simulate --seed {FIRST_SEED} --seeds {SEEDS} --jobs {JOBS}"
    assert summary.missing == [], again
    # Messages that name a cluster which is just being drained are refused, and stay so.
    ended = [sum(outcome.statuses.values()) for outcome in summary.outcomes]
    assert min(ended) >= 160
    assert sum(ended) >= 195 * len(plans)
    assert summary.kills >= 5 * len(plans)
    assert summary.bus_shares == pytest.approx(
        {"twice": 0.3, "reordered": 0.3, "delayed": 0.05}, abs=0.02
    )


def test_without_faults_every_job_ends_as_its_nature_says() -> None:
    """One replica, no misfortune: the thin road."""
    outcome = simulate(SimulationPlan(seed=1, jobs=20, replicas=1, faults=False))
    assert not outcome.violations, failure_text(outcome)
    assert sum(outcome.statuses.values()) >= 20, "the last submission may be a gang"
    assert outcome.statuses["SUCCEEDED"] >= 12


def test_the_same_seed_is_the_same_run_event_for_event() -> None:
    """Also in another process, whose sets have another order."""
    plan = SimulationPlan(seed=77, jobs=40)
    here = simulate(plan)
    there, _ = simulate_all([plan, SimulationPlan(seed=78, jobs=5)], workers=2)
    assert (there.digest, there.events) == (here.digest, here.events)
    assert there.virtual_s == here.virtual_s


def test_another_seed_is_another_run() -> None:
    """Or the seed would mean nothing."""
    one, two = (simulate(SimulationPlan(seed=seed, jobs=5)) for seed in (1, 2))
    assert one.digest != two.digest


def test_the_command_that_repeats_a_run_names_all_that_matters() -> None:
    """Seed, size, and whether things failed."""
    plan = SimulationPlan(seed=9, jobs=33, replicas=2, faults=False)
    assert command_of(plan) == "zen simulate --seed 9 --jobs 33 --replicas 2 --no-faults"


def test_command_prints_a_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    """What people and scripts read; a run that held exits with 0."""
    assert run(["simulate", "--jobs", "5", "--no-faults", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["good"]
    assert sum(told["runs"][0]["statuses"].values()) == 5
    assert "PROVISIONING found_by_v1" in told["excluded"]
    assert run(["simulate", "--jobs", "5", "--no-faults"]) == 0
    shown = capsys.readouterr().out
    assert f"log {told['runs'][0]['digest']}" in shown, "the same seed, the same events"
    assert "message_duplicated" in shown


def test_broken_guarantee_is_told_with_its_history(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seed, what was broken, what led to it, and the command that repeats it; exit code 1."""
    monkeypatch.setattr(
        Computing,
        "begins",
        lambda self, order, _: self._broken("I10", "pretended", order.spec.job_id),
    )
    assert run(["simulate", "--seed", "3", "--jobs", "5", "--no-faults"]) == 1
    told = capsys.readouterr().err
    assert "seed 3: I10 broken at" in told
    assert "PROVISIONING -placed-> ASSIGNED" in told
    assert "repeat it: zen simulate --seed 3 --jobs 5 --replicas 3 --no-faults --verbose" in told
