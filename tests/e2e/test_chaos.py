"""Leaders, workers, bus and database die and freeze while jobs flow. `zen chaos` runs longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.chaos.outages import come_through, outage_faults
from cli.chaos.scenarios import ChaosLog, ChaosPlan, Outage, Scenario, plan_for
from cli.chaos.verdict import AttemptProcess, double_runs, read_ticks
from cli.commands.chaos import unleash

ACTS = ("kill leader", "kill agent", "freeze leader", "kill bus", "hand over", "stop postgres")


@pytest.mark.slow
def test_short_chaos_loses_nothing_and_runs_nothing_twice() -> None:
    """Every accepted job ends, none runs twice at once, nobody writes after their term."""
    plan = ChaosPlan(
        seconds=30, jobs=90, lease_s=4.5, frozen_s=1.5, vm_max=4, ticks_max=60, acts=ACTS, seed=1
    )
    said: list[str] = []
    verdict = unleash(plan, said.append)
    assert verdict.faults == [], said
    assert verdict.story.acts == dict.fromkeys(ACTS, 1)
    assert len(verdict.story.accepted) > 30
    assert verdict.statuses["SUCCEEDED"] > 0
    # Killed, frozen, handed over: others went on (a short reign may have had nothing to write).
    assert len(verdict.takeovers_s) >= 2
    assert verdict.writes > 0
    assert verdict.runs_seen >= verdict.statuses["SUCCEEDED"]


def test_overlapping_attempts_are_seen() -> None:
    """Two attempts at once and one attempt twice are faults; one after the other is none."""
    first = AttemptProcess(1, 10, 0.0, 5.0)
    assert double_runs("j", [first, AttemptProcess(2, 11, 6.0, 7.0)]) == []
    assert "ran at once for 2.0 s" in double_runs("j", [first, AttemptProcess(2, 11, 3.0, 7.0)])[0]
    assert double_runs("j", [first, AttemptProcess(1, 12, 6.0, 7.0)]) == ["j: attempt 1 ran twice"]


def test_ticks_become_spans(tmp_path: Path) -> None:
    """Lines of several processes, mixed as they come."""
    path = tmp_path / "ticks"
    path.write_text("a 1 10 1.0\nb 1 11 1.5\na 1 10 2.0\na 2 12 3.0\n")
    assert read_ticks(tmp_path) == {
        "a": [AttemptProcess(1, 10, 1.0, 2.0), AttemptProcess(2, 12, 3.0, 3.0)],
        "b": [AttemptProcess(1, 11, 1.5, 1.5)],
    }
    assert read_ticks(tmp_path / "none") == {}


def test_jobs_through_an_outage_are_judged_by_their_own_lines(tmp_path: Path) -> None:
    """One run and all its lines, no long pause without a database, soon again after the bus."""
    path = tmp_path / "ticks"
    path.write_text("a 1 10 1.0\na 1 10 9.0\na 1 10 21.0\nb 1 11 1.0\nb 2 12 60.0\n")
    bus = Outage("bus", began=10.0, back=20.0, steady={"a": 3, "b": 2})
    database = Outage("postgres", began=10.0, back=20.0, steady={"a": 4})
    story = ChaosLog(away=[bus, database], refusals_s=[0.5, 2.5])
    found = {outage.part: come_through(outage, tmp_path) for outage in story.away}
    assert [(one.again_s, one.runs) for one in found["bus"]] == [(1.0, 1), (40.0, 2)]
    assert outage_faults(story, found) == [
        "b ran 2 times, not once",
        "b ran again 40.0 s after the bus was back",
        "a wrote 3 lines, not 4",
        "a stood still for 12.0 s",
        "1 answers took longer than 2 s: 2.50 s",
    ]


@pytest.mark.parametrize("scenario", list(Scenario))
def test_every_scenario_has_a_plan(scenario: Scenario) -> None:
    """Its usual length, or the one that was asked for."""
    usual, short = (plan_for(scenario, minutes, None, 3, 1) for minutes in (None, 1.0))
    assert usual.seconds > short.seconds > 0
    assert plan_for(scenario, 1.0, 7, 2, 5).jobs == 7
