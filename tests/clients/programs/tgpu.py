"""tgpu: its one command, in a directory with a train.py, on one machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from tests.clients.programs.frame import ClientCheck, ClientProgram, ClientSetup, Done, judged

GPUS = 4


def checks(setup: ClientSetup) -> Iterator[ClientCheck]:
    """In the directory of train.py, as its user does."""

    def tgpu(*words: str) -> Done:
        argv = (sys.executable, "-P", "-m", "cli.aliases", "tgpu", *words)
        return setup.call(*argv, cwd=setup.checkout)

    line = ("submit", "--gpus", "2", "--priority", "5", "--wait", "--", "cmd=python3 train.py")
    yield judged("tgpu submit runs in its directory", tgpu(*line))
    listed = tgpu("list", "--json")
    yield judged("tgpu list: states", listed, '"finished"')
    jobs = json.loads(listed.output)["jobs"] if listed.code == 0 else []
    job_id = jobs[0]["job_id"] if jobs else "none"
    shown = tgpu("show", job_id)
    yield judged("tgpu show: state and priority", shown, "finished", "priority 5", "GPUs [0, 1]")


PROGRAM = ClientProgram(
    name="tgpu",
    marks=("train.py",),
    checks=checks,
    node=GPUS,
    differences=(
        (
            "Jobs run in the directory they were submitted from on `zen node` alone: VMs of a "
            "cloud do not have it."
        ),
        "Priorities 0, 1, 2, … are 0, 100, 200, … here; 100 and more are all the highest.",
    ),
)
