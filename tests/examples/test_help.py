"""Every example of `--help` and of examples/ runs as it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.stack import publish_bytes, wait_for
from tests.examples.marks import SHOWN
from tests.examples.reading import Line, comment_lines, help_lines
from tests.examples.workspace import STACKS, Workspace, workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FIRST = re.compile(r"zen submit\b")
LAST = re.compile(r"\b(?:stop|cancel|clear|crash|preempt|rollback|secrets delete)\b")
"""Commands that end what others look at come after them."""
SOME_VM = re.compile(r"pipeline-zen-jobs-(\w+)-us-central1-vm-b4kz")
OUTPUTS = (
    'mkdir -p "$ZEN_OUTPUT_DIR/checkpoints/last"; echo 1 > "$ZEN_OUTPUT_DIR/checkpoints/last/w"; '
    'echo {} > "$ZEN_OUTPUT_DIR/metrics.json"; echo done'
)


def order(line: Line) -> int:
    if LAST.search(line.command):
        return 2
    return 0 if FIRST.match(line.command) else 1


LINES = sorted(
    (line for line in (*help_lines(), *comment_lines()) if line.command not in SHOWN), key=order
)


@pytest.fixture(scope="module")
def prepared() -> Iterator[Workspace]:
    """A workspace with the jobs, tenants, files and messages that the examples name."""
    with workspace() as made:
        made.zen("tenants", "set", "vision", "--weight", "2")
        _files(made)
        _submit(made)
        _dead_letters(made)
        made.names |= _addresses(made) | _keys(made)
        yield made


def _submit(made: Workspace) -> None:
    labels = ("-l", "team=vision")
    for words in (
        ("--id", "train-7", "--gpu-type", "l4", "--wait", *labels, "--shell", "--", OUTPUTS),
        ("--id", "train-8", "--gpu-type", "l4", "--", "sleep", "600"),
        ("--id", "spot-1", "--spot", "--gpus", "4", "--gpu-type", "t4", "--", "sleep", "600"),
    ):
        done = made.zen("submit", *words)
        assert done.code == 0, done.output


def _files(made: Workspace) -> None:
    config = (made.home / "zen.yaml").read_text()
    for name in ("my.yaml", "new.yaml", "zen.yaml", "zen-etc.yaml"):
        (made.directory / name).write_text(config)
    keys = f"workers: {{key_file: {made.home / 'workers.key'}}}\n"
    (made.directory / "zen-etc.yaml").write_text(config + keys)
    (made.directory / "token").write_text("x")
    made.zen("secrets", "set", "HF_TOKEN", "--file", str(made.directory / "token"))
    (made.directory / "token.txt").write_text("hush\n")
    (made.directory / ".env").write_text("SEED=7\n")


def _dead_letters(made: Workspace) -> None:
    config = (made.home / "zen.yaml").read_text()
    project = re.findall(r"^project: (\S+)", config, re.MULTILINE)[0]
    for body in (b"{", b"["):
        publish_bytes(made.running["bus"], project, "pipeline-zen-jobs-submit", body)

    def both() -> list[str] | None:
        told = json.loads(made.zen("dead-letters", "list", "--json").output)
        ids = [str(dead_letter["id"]) for dead_letter in told["dead_letters"]]
        return ids if len(ids) == 2 else None

    newest, oldest = wait_for("two dead letters", both)
    made.names |= {"4711": oldest, "4712": newest}


def _addresses(made: Workspace) -> dict[str, str]:
    """What stands for somebody's own database, bus or file."""
    environ = psutil.Process(made.running["processes"]["scheduler"]).environ()
    return {
        "postgresql://zen@db/zen": environ["DATABASE_URL"],
        "localhost:8085": environ["PUBSUB_EMULATOR_HOST"],
        "--port 8090": "--port 0",
        "/etc/zen/zen.yaml": str(made.directory / "zen-etc.yaml"),
        "/tmp/other": str(made.directory / "other"),
        "rollback 6": "rollback 1",
        "--version 6": "--version 1",
    }


def _keys(made: Workspace) -> dict[str, str]:
    """A key to rotate, and one to revoke."""
    found = {}
    for verb in ("rotate", "revoke"):
        key = json.loads(made.zen("keys", "create", verb, "--json").output)
        found[f"{verb} KEY"] = f"{verb} {key['key_id']}"
    return found


def _some_vm(made: Workspace, cluster: str) -> str:
    """A VM that is there now: an example before may have ended the last one."""

    def look() -> str | None:
        vms = json.loads(made.zen("vms", "--json").output)["vms"]
        return next((vm["name"] for vm in vms if cluster in vm["name"]), None)

    return wait_for(f"a VM of {cluster}", look)


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line.where}: {line.command}")
def test_example_of_help_runs(line: Line, prepared: Workspace, tmp_path: Path) -> None:
    """It ends well, and no traceback is shown."""
    if named := SOME_VM.search(line.command):
        prepared.names[named[0]] = _some_vm(prepared, named[1])
    own = STACKS.search(line.command)
    at = prepared.elsewhere(tmp_path / "home") if own else prepared
    try:
        done = at.run(line.command)
    finally:
        if own:
            at.zen("down")
    assert "Traceback" not in done.output, done.output
    assert done.code == 0, f"{line.where}: {line.command}\n{done.output}"


def test_no_job_of_the_examples_failed(prepared: Workspace) -> None:
    """A command line that is accepted and then fails on its VM is a broken example, too."""
    assert prepared.failed_jobs() == []


def test_marks_name_lines_that_exist() -> None:
    """A mark for a line that is gone would hide the next one of that name."""
    known = {line.command for line in (*help_lines(), *comment_lines())}
    assert set(SHOWN) <= known
