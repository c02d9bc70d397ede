"""Every snippet of the READMEs and of docs/ that is marked so runs as it is written."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from core.unified_job import is_manifest
from tests.examples.compare import difference, ids_in
from tests.examples.marks import NAMES, SHOWN
from tests.examples.reading import Block, Step, blocks, steps
from tests.examples.workspace import STACKS, Ran, Workspace, workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RUN = [block for block in blocks() if block.mark != "show"]
CONFIG_KEYS = {"clusters", "timers", "tenants", "budgets", "api", "queue", "containers", "submit"}


@pytest.fixture(scope="module")
def shared() -> Iterator[Workspace]:
    """One stack for all documents, README first; their job ids are different ones."""
    with workspace() as made:
        made.names |= {said: real.format(**made.running) for said, real in NAMES.items()}
        config = (made.home / "zen.yaml").read_text()
        for name in ("my.yaml", "new.yaml", "v1.yaml"):
            (made.directory / name).write_text(config)
        yield made


@pytest.fixture(scope="module")
def last() -> dict[str, Ran]:
    """Document → what its last command printed, for the snippets that show answers."""
    return {}


@pytest.mark.parametrize("block", RUN, ids=lambda block: block.where)
def test_snippet_runs(
    block: Block, shared: Workspace, last: dict[str, Ran], tmp_path: Path
) -> None:
    """Commands end well and print what is said; configurations and jobs are accepted."""
    if block.language == "yaml":
        _check_yaml(block, shared, tmp_path)
    elif block.language == "json":
        _check_answer(block, last[block.document])
    else:
        if "gcloud " in block.text and shutil.which("gcloud") is None:
            pytest.skip("needs gcloud: the snippet calls it")
        for step in steps(block):
            last[block.document] = _run(block, step, shared, tmp_path)


def _run(block: Block, step: Step, shared: Workspace, tmp_path: Path) -> Ran:
    command = re.sub(r"\s+#.*$", "", step.command).removeprefix("./").strip()
    if command in SHOWN:
        return Ran(0, "")
    own = STACKS.search(command)
    at = shared.elsewhere(tmp_path / "home") if own else shared
    if block.mark == "rehearse":
        at = replace(shared, environ={**shared.environ, **_google(shared)})
    try:
        done = at.run(step.command)
    finally:
        if own:
            at.zen("down")
    assert "Traceback" not in done.output, done.output
    code = int(found[1]) if (found := re.search(r"exits? (\d+)", step.command)) else 0
    assert done.code == code or "; echo $?" in command, f"{block.where}: {command}\n{done.output}"
    real, said = ids_in(done.output.splitlines()), ids_in(step.output)
    shared.names |= dict(zip(said, real, strict=False))
    if step.output and not block.varies:
        wrong = difference(step.output, done.output)
        assert not wrong, f"{block.where}: {command}: {wrong}\n{done.output}"
    return done


def _google(shared: Workspace) -> dict[str, str]:
    """What leads commands for Google Cloud to the pretend one, and to the stack's database."""
    scheduler = psutil.Process(shared.running["processes"]["scheduler"]).environ()
    names = ("DATABASE_URL", "PUBSUB_EMULATOR_HOST", "ZEN_COMPUTE_URL", "ZEN_WORKERS__KEY_FILE")
    return {**{name: scheduler[name] for name in names}, "ZEN_API__PORT": "0"}


def _check_yaml(block: Block, shared: Workspace, tmp_path: Path) -> None:
    """A part of a configuration is laid over the shipped one; anything else is a job."""
    told = yaml.safe_load(block.text)
    target = tmp_path / "snippet.yaml"
    if is_manifest(told) or not set(told) <= CONFIG_KEYS:
        target.write_text(block.text)
        done = shared.zen("submit", "-f", str(target), "--dry-run")
    else:
        whole = yaml.safe_load((Path(shared.home) / "zen.yaml").read_text())
        target.write_text(yaml.safe_dump(_over(whole, told)))
        done = shared.zen("config", "check", str(target))
    assert done.code == 0, f"{block.where}: {done.output}"


def _over(whole: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(whole)
    for key, value in part.items():
        old = made.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        made[key] = _over(old, value) if both else value  # type: ignore[arg-type]  # dicts
    return made


def _check_answer(block: Block, ran: Ran) -> None:
    """Every key that the document shows is in the real answer."""
    told, real = json.loads(block.text), json.loads(ran.output[ran.output.index("{") :])
    assert set(told) <= set(real), f"{block.where}: not in {real}: {set(told) - set(real)}"


def test_no_job_of_the_documents_failed(shared: Workspace) -> None:
    """But for the one that docs/user/first-job.md lets fail."""
    assert [words for words in shared.failed_jobs() if "exit code 7" not in words] == []
