"""zen clients: what is recognised, what is recorded, how a program's own suite is read."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.main import run
from tests.clients.programs import alnair, gpu_scheduler
from tests.clients.programs.frame import (
    ClientCheck,
    ClientFailed,
    ClientProgram,
    ClientSetup,
    Done,
    judged,
    pytest_checks,
)
from tests.clients.programs.known import PROGRAMS
from tests.clients.programs.record import BEGIN, END, merged
from tests.clients.programs.verify import Verified, recognised


def nothing(_: ClientSetup) -> Iterator[ClientCheck]:
    yield from ()


def program(name: str, *differences: str) -> ClientProgram:
    return ClientProgram(name, ("a-file",), nothing, differences=differences)


def setup(tmp_path: Path) -> ClientSetup:
    return ClientSetup(tmp_path, tmp_path, "", {}, os.environ)


def test_unknown_checkout_is_refused_by_name(tmp_path: Path) -> None:
    """A directory that holds no known program is named, and where to look."""
    with pytest.raises(ClientFailed, match=f"{tmp_path}; zen clients list"):
        recognised([tmp_path])


def test_program_is_known_by_all_its_marks(tmp_path: Path) -> None:
    """One of two files is not enough."""
    both = ClientProgram("o/n", ("one", "two/three"), nothing)
    (tmp_path / "one").touch()
    assert not both.is_at(tmp_path)
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "three").touch()
    assert both.is_at(tmp_path)


def test_names_of_programs_are_distinct() -> None:
    """Results are recorded by name."""
    names = [program.name for program in PROGRAMS]
    assert len(names) == len(set(names))


def test_results_replace_those_of_the_same_program_only() -> None:
    """The others stay, the words around stay, differences come from the program's own list."""
    programs = [program("a/a", "no X"), program("b/b")]
    first = merged(
        "# Head\n\nwords\n",
        programs,
        [
            Verified("a/a", "c1", (ClientCheck("one", "passed"),)),
            Verified("b/b", "c2", (ClientCheck("two", "failed", "why"),)),
        ],
    )
    second = merged(first, programs, [Verified("b/b", "c3", (ClientCheck("two", "passed"),))])
    assert second.startswith("# Head\n\nwords\n")
    assert second.index(BEGIN) < second.index("### a/a") < second.index("### b/b")
    assert second.rstrip().endswith(END)
    assert "Commit `c1`: 1 of 1 checks passed." in second
    assert "* no X" in second
    assert "c2" not in second
    assert "Commit `c3`: 1 of 1 checks passed." in second
    assert merged(second, programs, []) == second


def test_judgement_needs_code_and_words() -> None:
    """An exit code alone proves little."""
    assert judged("n", Done(0, "all well"), "well").outcome == "passed"
    assert judged("n", Done(1, "all well"), "well").outcome == "failed"
    assert judged("n", Done(0, "nothing"), "well").words.startswith("did not say 'well'")


def test_suite_of_a_program_is_a_check_per_test(tmp_path: Path) -> None:
    """Passed, failed, skipped, and what was left out with its reason."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert 1 == 2\n"
        "def test_skipped(): pytest.skip('no tool')\n"
        "def test_daemon(): raise SystemError\n"
    )
    found = pytest_checks(
        setup(tmp_path),
        sys.executable,
        ("-p", "no:cacheprovider", str(tmp_path)),
        not_run={"daemon": "needs a daemon"},
    )
    told = {check.name: check for check in found}
    assert told["test_good"].outcome == "passed"
    assert told["test_bad"].outcome == "failed"
    assert "1 == 2" in told["test_bad"].words
    assert told["test_skipped"].outcome == "not run"
    assert (told["daemon"].outcome, told["daemon"].words) == ("not run", "needs a daemon")


def test_program_that_hangs_is_ended(tmp_path: Path) -> None:
    """Everything has a bound."""
    done = setup(tmp_path).call(sys.executable, "-c", "input()", timeout_s=30, stdin="x")
    assert done.code == 0
    hung = setup(tmp_path).call("sleep", "60", timeout_s=0.05)
    assert hung.code == 124


README = """
```bash
docker run -d postgres
curl http://localhost:8080/api/v1/health
```
```bash
TENANT_ID="tenant-1234567890"
curl -X POST http://localhost:8080/api/v1/jobs \\
  -d "{}"
```
```bash
curl -X POST http://localhost:8080/api/v1/tenants -d '{
    "max_gpus": 8,    # Required!
  }'
```
```json
{"curl": "http://localhost:8080"}
```
```bash
./bin/gpu-cli submit --gpus 2
```
"""


def test_blocks_of_a_readme_that_are_client_calls() -> None:
    """Not commands that start a server, nor JSON with remarks in it."""
    found = gpu_scheduler.blocks(README)
    assert len(found) == 2
    assert "tenant-1234567890" in found[0]
    assert "gpu-cli submit" in found[1]


def test_manifests_in_a_checkout(tmp_path: Path) -> None:
    """Found by what they say; the definition of the kind is none of them."""
    (tmp_path / "samples").mkdir()
    job = tmp_path / "samples" / "job.yaml"
    job.write_text("kind: UnifiedJob\nspec:\n  jobSpec:\n    image: a/b:1\n")
    (tmp_path / "crd.yaml").write_text("names:\n    kind: UnifiedJob\n")
    assert alnair.manifests(tmp_path) == [job]
    assert alnair.image_of(job) == "a/b:1"


def test_verify_that_is_told_to_end_takes_its_stack_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM unwinds like Ctrl-C, so that what was started is stopped."""
    ended: list[str] = []

    def stopped(_: object) -> list[object]:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            ended.append("stack")
        return []

    monkeypatch.setattr("tests.clients.programs.verify.recognised", stopped)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert run(["clients", "verify", str(tmp_path)]) == 143
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended == ["stack"]
