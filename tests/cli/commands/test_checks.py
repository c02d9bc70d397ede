"""zen test: its parts, and the table at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.commands import checks
from cli.commands.checks import PATIENT, PYTEST, CheckStep, parts_of_tests
from cli.main import run
from cli.paths import ROOT
from tests.conftest import LONG_FILES

GOOD = (
    "import pytest\n\ndef test_one(): pass\n\n@pytest.mark.skip('why not')\ndef test_two(): pass\n"
)
BAD = "def test_one(): assert 1 == 2\n\ndef test_two(): pass\n"


@pytest.fixture
def three_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A good one, a bad one, and one that cannot begin."""
    # A configuration of its own: pytest would go up to ours.
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, text in (("test_good.py", GOOD), ("test_bad.py", BAD)):
        (tmp_path / name).write_text(text)
    parts = (
        CheckStep("good", (*PYTEST, str(tmp_path / "test_good.py")), aside=True),
        CheckStep("bad", (*PYTEST, str(tmp_path / "test_bad.py"))),
        CheckStep("none", (*PYTEST, str(tmp_path / "missing.py"))),
    )
    monkeypatch.setattr(checks, "parts_of_tests", lambda: parts)


@pytest.mark.slow
def test_table_of_the_parts(three_parts: None, capfd: pytest.CaptureFixture[str]) -> None:
    """Counts, seconds and result of each part; skipped tests with their reason; the worst code."""
    assert run(["test"]) == 4
    told = capfd.readouterr().out
    rows = [" ".join(line.split()) for line in told.splitlines()]
    assert rows[-4] == "PART PASSED FAILED SKIPPED SECONDS RESULT"
    assert rows[-3].startswith("good 1 0 1 ")
    assert rows[-3].endswith(" ok")
    assert rows[-2].startswith("bad 1 1 0 ")
    assert rows[-2].endswith("FAILED (exit code 1)")
    assert rows[-1].startswith("none 0 0 0 ")
    assert "why not" in told


def test_what_only_computes_leaves_the_processors_to_the_rest() -> None:
    """It runs beside the others, is never in their way, and may take as long as they do."""
    aside = [step for step in parts_of_tests() if step.aside]
    assert [step.name for step in aside] == ["simulation"]
    assert PATIENT in aside[0].argv


@pytest.mark.slow
def test_json_of_the_parts(three_parts: None, capfd: pytest.CaptureFixture[str]) -> None:
    """stdout is JSON and nothing else; pytest's own words are on stderr."""
    assert run(["test", "--json"]) == 4
    out, err = capfd.readouterr()
    told = json.loads(out)
    assert not told["ok"]
    good, bad, _ = told["steps"]
    assert {**good, "seconds": 0} == {
        "name": "good",
        "exit_code": 0,
        "seconds": 0,
        "passed": 1,
        "failed": 0,
        "skipped": 1,
    }
    assert (bad["exit_code"], bad["failed"]) == (1, 1)
    assert "why not" in err


def test_every_test_is_in_one_part() -> None:
    """What one part names, the part of the rest leaves out, and nothing else."""
    rest = next(step for step in parts_of_tests() if any("--ignore=" in w for w in step.argv))
    ignored = {w.removeprefix("--ignore=") for w in rest.argv if w.startswith("--ignore=")}
    named = [w for step in parts_of_tests() for w in step.argv if w.startswith("tests/")]
    assert sorted(named) == sorted(ignored)
    assert all((ROOT / path).exists() for path in named)


def test_long_files_are_there() -> None:
    """A file that was renamed would silently come last."""
    assert [name for name in LONG_FILES if not (ROOT / name).is_file()] == []
