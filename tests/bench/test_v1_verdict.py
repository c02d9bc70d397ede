"""The judge of v1 runs sees what it must see."""

from __future__ import annotations

from pathlib import Path

from bench.v1_verdict import ExpectedJob, JobProcess, V1Verdict, WorkerChaosLog, judge, read_ledger

EXPECTED = ExpectedJob("ada", "j", "1xl4", ticks=3, ends=frozenset({"COMPLETED"}))


def judged(status: str, *runs: JobProcess, struck: frozenset[str] = frozenset()) -> V1Verdict:
    story = WorkerChaosLog(struck=set(struck))
    verdict = V1Verdict([EXPECTED], {"ada/j": status}, {"ada/j": runs}, [], story)
    judge(verdict)
    return verdict


def test_lines_become_runs(tmp_path: Path) -> None:
    """Of several VMs, mixed as they come."""
    path = tmp_path / "ledger"
    path.write_text("ada/j 1 vm-a 7 1.0\nada/j 2 vm-b 8 3.0\nada/j 1 vm-a 7 2.0\n")
    assert read_ledger(path) == {
        "ada/j": [JobProcess("vm-a", 7, 1.0, 2.0), JobProcess("vm-b", 8, 3.0, 3.0)]
    }
    assert read_ledger(tmp_path / "none") == {}


def test_a_second_run_needs_a_kill() -> None:
    """And two runs at once are never explained."""
    one, after, beside = (
        JobProcess("a", 1, 0.0, 2.0),
        JobProcess("b", 2, 3.0, 4.0),
        JobProcess("b", 2, 1.0, 4.0),
    )
    assert judged("COMPLETED", one).faults == []
    assert len(judged("COMPLETED", one, after).twice) == 1
    assert judged("COMPLETED", one, after, struck=frozenset({"a"})).explained == 1
    assert len(judged("COMPLETED", one, beside, struck=frozenset({"a"})).at_once) == 1


def test_a_wrong_end_and_a_run_that_never_was_are_losses() -> None:
    """Also if the status says that all is well."""
    assert judged("FAILED", JobProcess("a", 1, 0.0, 2.0)).lost != []
    assert judged("COMPLETED").lost != []
