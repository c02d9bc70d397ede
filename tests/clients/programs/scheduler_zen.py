"""luminolabs/scheduler-zen: the commands of its USAGE.md, as its users type them.

The commands are taken from the checkout and run by bash. What an older USAGE.md said (the cluster
by its name, other fields of /status) is recorded here.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.clients.programs.frame import (
    ClientCheck,
    ClientProgram,
    ClientSetup,
    Done,
    judged,
    last_words,
)

USAGE, PORT, HOST = "USAGE.md", 6200, "http://localhost:6200"
_BLOCK = re.compile(r"```bash\n(.*?)```", re.DOTALL)
_NO_COMMA = re.compile(r'(")( *\n *")')
OLDER = {
    "job_id": "llm_llama3_8b-older",
    "workflow": "torchtunewrapper",
    "args": {"job_config_name": "llm_llama3_8b", "num_epochs": 1, "num_gpus": 2},
    "keep_alive": False,
    "cluster": "2xa100-40gb",
}


def _environ(_: Path, scratch: Path) -> Mapping[str, str]:
    """A workflow that runs until it is stopped, on the PATH of the VMs."""
    programs = scratch / "bin"
    programs.mkdir()
    workflow = programs / "torchtunewrapper"
    workflow.write_text("#!/bin/sh\nexec sleep 3600\n", encoding="utf-8")
    workflow.chmod(workflow.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def checks(setup: ClientSetup) -> Iterator[ClientCheck]:
    """Every curl command of the file, then the older ones."""
    curls = [block for block in _blocks(setup) if block.startswith("curl ")]
    submit = next(block for block in curls if "-d '" in block)
    job_id = re.findall(r'"job_id": "([^"]+)"', submit)[0]
    # As printed the body lacks a comma, and no server takes it.
    done = _bash(setup, _NO_COMMA.sub(r"\1,\2", submit))
    yield _answers("USAGE: schedule a job", done, {"job_id": job_id, "status": "new"})
    for block in curls:
        if "/stop" in block:
            done = _bash(setup, block.replace("{job_id}", job_id))
            yield _answers("USAGE: stop a job", done, {"status": "stopping"})
        if "/status" in block:
            yield _has("USAGE: status", _bash(setup, block), "overall_summary", "clusters")
    yield from _older(setup)


def _older(setup: ClientSetup) -> Iterator[ClientCheck]:
    post = ("curl", "-sS", "-H", "Content-Type: application/json", "-d")
    done = setup.call(*post, json.dumps(OLDER), f"{HOST}/jobs")
    yield _answers("older USAGE: a job by its cluster", done, {"status": "new"})
    asked = {"user_id": "0", "job_ids": [OLDER["job_id"]]}
    done = setup.call(*post, json.dumps(asked), f"{HOST}/jobs/get_by_user_and_ids")
    yield judged("older USAGE: it is in that cluster", done, '"cluster":"2xa100-40gb"')
    done = setup.call("curl", "-sS", f"{HOST}/status")
    fields = ("cluster_status", "running_jobs", "pending_jobs")
    yield _has("older USAGE: status", done, *fields)
    done = setup.call("curl", "-sS", "-X", "POST", f"{HOST}/jobs/{OLDER['job_id']}/stop")
    yield _answers("older USAGE: stop", done, {"status": "stopping"})
    again = setup.call("curl", "-sS", "-X", "POST", f"{HOST}/jobs/nobody/stop")
    yield judged("stop of a job that is not there", again, "not found or not running")


def _blocks(setup: ClientSetup) -> list[str]:
    text = (setup.checkout / USAGE).read_text(encoding="utf-8")
    return [block.strip() for block in _BLOCK.findall(text)]


def _bash(setup: ClientSetup, command: str) -> Done:
    # -s: the progress bar is not part of the answer.
    return setup.call("bash", "-c", command.replace("curl ", "curl -sS ", 1))


def _answers(name: str, done: Done, expected: Mapping[str, str]) -> ClientCheck:
    found = _object(done)
    good = expected.items() <= found.items()
    return ClientCheck(
        name, "passed" if good else "failed", "" if good else last_words(done.output)
    )


def _has(name: str, done: Done, *fields: str) -> ClientCheck:
    missing = [field for field in fields if field not in _object(done)]
    words = f"no {', '.join(missing)}: {last_words(done.output)}"
    return ClientCheck(name, "failed" if missing else "passed", words if missing else "")


def _object(done: Done) -> dict[str, Any]:
    try:
        found = json.loads(done.output)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


PROGRAM = ClientProgram(
    name="luminolabs/scheduler-zen",
    marks=(USAGE, "src/app/gcp/cluster_orchestrator.py"),
    checks=checks,
    port=PORT,
    environ=_environ,
    needs=("bash", "curl"),
    differences=(
        "The stop of a job that has not begun stops it; there it is 404.",
        "Its tables in PostgreSQL are its own: `zen jobs` and the API show what they showed.",
    ),
)
