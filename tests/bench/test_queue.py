"""The command that compares queues: its words, its files, its verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.queue import main
from bench.queue_verdict import QueueVerdict
from bench.study import StudyCheck
from sim.replay.synthetic import Recipe, jobs_csv, make_jobs


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(jobs_csv(make_jobs(Recipe(seed=2, days=0.6))))
    return path


def test_the_same_file_gives_the_same_report(
    jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures, verdicts and plots, twice the same."""
    words = ["--jobs", f"mine={jobs}", "--loads", "0.9", "--workers", "1", "--json"]
    reports = []
    for name in ("a", "b"):
        assert main([*words, "--plots", str(tmp_path / name)]) == 0
        reports.append(capsys.readouterr().out)
    assert reports[0] == reports[1]
    runs, _ = json.loads(reports[0])["suites"].values()
    assert runs["oracle"]["completion_mean"] <= runs["fifo"]["completion_mean"]
    plots = [(tmp_path / name / "queue-completion.svg").read_bytes() for name in ("a", "b")]
    assert plots[0] == plots[1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--jobs", "nothing"], "NAME=FILE"),
        (["--jobs", "x=/nowhere.csv"], "there is no such file"),
        (["--loads", "9"], "between 0.05 and 2"),
    ],
)
def test_bad_input_is_said_in_one_line(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback."""
    assert main(words) == 1
    assert expected in capsys.readouterr().err


def test_verdicts_and_checks() -> None:
    """Within stretch, within must, missed; a rival that is off by a fifth is not valid."""
    words = [QueueVerdict("s", "t", value, 1.35, 1.30).words for value in (1.2, 1.32, 1.4)]
    assert words == ["stretch", "must", "MISSED"]
    assert QueueVerdict("s", "p90", 0.97, 0.95, 0.95, least=0.85).words == "MISSED"
    assert StudyCheck("s", "fifo", 100.0, 110.0).valid
    assert not StudyCheck("s", "fifo", 132.0, 110.0).valid
