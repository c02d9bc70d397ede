"""How far a run is, told while it goes on."""

from __future__ import annotations

import io
from datetime import datetime

import pytest

from cli.main import run
from sim.virtual import progress
from sim.virtual.loop import EPOCH
from sim.virtual.progress import LINE_S, OVER_S, ProgressReporter
from sim.virtual.run import SimulationPlan, simulate


class Wall:
    """A clock that moves by hand."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> datetime:
        return EPOCH

    def monotonic(self) -> float:
        return self.at


class Walk:
    """Somebody under way."""

    def progress(self) -> str:
        return "half of it"


def test_a_line_now_and_then_where_it_cannot_be_written_over() -> None:
    """Not before the first half minute, and once in each."""
    out, wall = io.StringIO(), Wall()
    told = ProgressReporter(out, clock=wall)
    for wall.at in (1.0, LINE_S - 1, LINE_S, LINE_S + 1, 2 * LINE_S):
        told(Walk())
    told.close()
    assert out.getvalue() == "half of it, 30 s\nhalf of it, 60 s\n"


def test_one_line_on_a_terminal_and_nothing_is_left_of_it() -> None:
    """It is erased before it is written again, and in the end."""
    out, wall = io.StringIO(), Wall()
    told = ProgressReporter(out, over=True, clock=wall)
    for wall.at in (OVER_S, 2 * OVER_S):
        told(Walk())
    told.close()
    erase = "\r\x1b[K"
    assert out.getvalue() == f"{erase}half of it, 0 s{erase}half of it, 1 s{erase}"


def test_an_observer_changes_nothing_of_the_run() -> None:
    """The same events, and every word about it is true."""
    plan, seen = SimulationPlan(seed=5, jobs=4, replicas=1, faults=False), []
    alone = simulate(plan)
    watched = simulate(plan, lambda run: seen.append(run.progress()))
    assert watched.digest == alone.digest
    assert seen[0] == "seed 5: 0.00 virtual hours, 0 jobs ended of 4 submissions"
    assert seen[-1].endswith("4 jobs ended of 4 submissions")


def test_json_comes_without_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, so that a table can go elsewhere; a script is not disturbed at all."""
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    arguments = ["simulate", "--jobs", "2", "--no-faults"]
    assert run(arguments) == 0
    assert "virtual hours, 0 jobs ended of 2 submissions" in capsys.readouterr().err
    assert run([*arguments, "--json"]) == 0
    assert capsys.readouterr().err == ""
