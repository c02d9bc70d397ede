"""A shim that is killed while it starts its job: nothing of the job is left."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.events import Exited
from agent.runtimes import Processes
from agent.shims import ShimProgram
from tests.agent.runner_rig import RunnerRig
from tests.agent.vm import gone, until

pytestmark = pytest.mark.slow
KILLED = Exited("lease-1", 137, "the process that kept the job was killed")
ROOT = Path(__file__).parents[2]
SHIM = """
import os, signal, sys
sys.path.insert(0, {root!r})
from agent.shim import ProcessShim, keep

class KilledShim(ProcessShim):
    def _say(self, words):
        if {word!r} in words:
            {before}
            os.kill(os.getpid(), signal.SIGKILL)
        super()._say(words)

keep(KilledShim, sys.argv[1:4])
"""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RunnerRig]:
    rig = RunnerRig(tmp_path)
    yield rig
    await rig.runner.close()


def use_shim(patch: pytest.MonkeyPatch, word: str, before: str = "pass") -> None:
    """One that is killed instead of saying the word."""
    script = SHIM.format(root=str(ROOT), word=word, before=before)
    program = (sys.executable, "-I", "-S", "-c", script)
    patch.setattr(Processes, "shim", ShimProgram(program, by_server=False))


async def test_killed_before_started_is_told(
    rig: RunnerRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command runs and has a child, and the agent has not heard "started": its whole process
    group is ended all the same, because the pid was told before the command could run."""
    os.mkfifo(tmp_path / "child")
    use_shim(monkeypatch, "started", f"open({str(tmp_path / 'child')!r}).read()")
    rig.start(f"sleep 1000 & echo $$ $!; echo there > {tmp_path / 'child'}; wait")
    assert await rig.next() == KILLED
    job, child = (int(pid) for pid in (await rig.log()).split())
    await until(lambda: gone(job) and gone(child), "the end of the job and its child")


async def test_killed_before_the_pid_is_told(
    rig: RunnerRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command whose pid the agent does not know never runs."""
    use_shim(monkeypatch, "pid")
    rig.start(f"touch {tmp_path / 'ran'}")
    assert await rig.next() == KILLED
    assert not (tmp_path / "ran").exists()
