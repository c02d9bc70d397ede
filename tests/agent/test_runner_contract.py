"""What every way of running a job guarantees: as a process, and in a container."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from agent.events import Exited, Progressed, Signal, Started
from core.clock import SystemClock
from core.messages import Progress
from stores.artifacts import ArtifactPath, read_manifest
from tests.agent.podman import IMAGE, Podman
from tests.agent.runner_rig import RunnerRig
from tests.agent.vm import until

pytestmark = pytest.mark.slow
COUNT = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done"


@pytest.fixture(params=["process", "container"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunnerRig]:
    if request.param == "process":
        rig = RunnerRig(tmp_path)
        yield rig
        await rig.runner.close()
        return
    podman: Podman = request.getfixturevalue("podman")
    rig = RunnerRig(tmp_path, docker=podman.address, image=IMAGE)
    yield rig
    await rig.runner.close()
    assert podman.docker.labelled("zen.keeper") == [], "every container is removed"


async def test_both_streams_and_the_exit_code(rig: RunnerRig) -> None:
    """Started is said, then the end with its code; by then the whole output is stored."""
    rig.start("echo out; echo err >&2; exit 3")
    assert await rig.next() == Started("lease-1")
    assert await rig.next() == Exited("lease-1", 3, "exit code 3")
    assert sorted((await rig.log()).split()) == ["err", "out"]


async def test_much_output_comes_whole(rig: RunnerRig) -> None:
    """Nothing of a long output is lost, also when it comes faster than it is stored."""
    rig.start("seq 1 100000; exit 0")
    assert (await rig.end()).exit_code == 0
    lines = (await rig.log()).split()
    assert (len(lines), lines[-1]) == (100_000, "100000")


async def test_words_environment_and_progress(rig: RunnerRig) -> None:
    """Arguments are not read by a shell; facts about the job are in its environment; what it
    writes to its status file is heard."""
    script = (
        'echo "$ZEN_JOB_ID $ZEN_ATTEMPT $CUDA_VISIBLE_DEVICES ${SECRET_OF_AGENT-none}"; '
        'echo "{\\"step\\": 2, \\"total\\": 4}" >> "$ZEN_STATUS_FILE"; echo "$1"'
    )
    rig.start("sh", "-c", script, "name", "$HOME * ; exit 1")
    assert isinstance(await rig.next(), Started)
    assert await rig.next() == Progressed("lease-1", Progress(2, 4), None)
    assert (await rig.end()).exit_code == 0
    assert await rig.log() == "j1 1 1,3 none\n$HOME * ; exit 1\n"


async def test_checkpoints_and_outputs_outlive_the_attempt(rig: RunnerRig) -> None:
    """A later attempt finds what an earlier one saved, and is told where; what each leaves in its
    output directory is stored when its end is told."""
    script = (
        'cat "${ZEN_RESUME_FROM:-/none}/s" 2>/dev/null; echo one > "$ZEN_CHECKPOINT_DIR/s"; '
        'mkdir "$ZEN_OUTPUT_DIR/d"; echo "result $ZEN_ATTEMPT" > "$ZEN_OUTPUT_DIR/d/r"'
    )
    for attempt in (1, 2):
        rig.start(script, attempt=attempt, lease_id=f"lease-{attempt}")
        assert (await rig.end()).exit_code == 0
        path = ArtifactPath("acme", "u1", "j1", attempt)
        manifest = await read_manifest(rig.store, path)
        assert manifest is not None
        assert [(file.path, file.size) for file in manifest.files] == [("d/r", 9)]
        assert await rig.store.get(path.file("d/r"), 0, 99) == f"result {attempt}\n".encode()
    assert (await rig.log(1), await rig.log(2)) == ("", "one\n")


async def test_term_lets_the_job_finish(rig: RunnerRig) -> None:
    """SIGTERM reaches the job, and its own exit code is what counts."""
    rig.start("trap 'echo saved; exit 7' TERM; echo up; while :; do sleep 0.05; done")
    await rig.said("up")
    rig.runner.signal("lease-1", Signal.TERM)
    assert await rig.end() == Exited("lease-1", 7, "exit code 7")
    assert (await rig.log()).endswith("saved\n")


async def test_term_ends_a_job_without_manners(rig: RunnerRig) -> None:
    """SIGTERM ends a program that does not ask for it."""
    rig.start("echo up; exec sleep 1000")
    await rig.said("up")
    rig.runner.signal("lease-1", Signal.TERM)
    assert (await rig.end()).exit_code == 143


async def test_kill_ends_a_job_that_ignores_term(rig: RunnerRig) -> None:
    """SIGKILL ends whatever did not end by itself."""
    rig.start("trap '' TERM; echo up; while :; do sleep 0.05; done")
    await rig.said("up")
    rig.runner.signal("lease-1", Signal.TERM)
    rig.runner.signal("lease-1", Signal.KILL)
    assert await rig.end() == Exited("lease-1", 137, "killed by SIGKILL")


async def test_signal_before_the_start(rig: RunnerRig) -> None:
    """A signal that is given before there is a job reaches it all the same."""
    rig.start("sleep 1000")
    rig.runner.signal("lease-1", Signal.KILL)
    assert await rig.end() == Exited("lease-1", 137, "killed by SIGKILL")


async def test_freeze_thaw_and_kill_of_a_frozen_one(rig: RunnerRig) -> None:
    """A frozen job stands still, a thawed one goes on where it was, a frozen one can be killed."""
    rig.start(COUNT)
    await rig.said("5\n")
    rig.runner.signal("lease-1", Signal.STOP)
    still = await _stands_still(rig)
    rig.runner.signal("lease-1", Signal.CONT)
    await rig.said(f"\n{still + 3}\n")
    rig.runner.signal("lease-1", Signal.STOP)
    last = await _stands_still(rig)
    rig.runner.signal("lease-1", Signal.KILL)
    assert (await rig.end()).exit_code == 137
    assert int((await rig.log()).split()[-1]) == last


async def test_freezes_when_nobody_renews_it(rig: RunnerRig) -> None:
    """Past its moment the job is frozen without the agent's help; a later moment lets it go on."""
    now = SystemClock().monotonic
    rig.runner.renew(now() + 30)
    rig.start(COUNT)
    await rig.said("5\n")
    rig.runner.renew(now() + 0.2)
    still = await _stands_still(rig)
    rig.runner.renew(now() + 30)
    await rig.said(f"\n{still + 3}\n")
    rig.runner.signal("lease-1", Signal.KILL)
    await rig.end()


def job_shims() -> list[psutil.Process]:
    """Those of jobs: the database of other tests has a shim too."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            words = child.cmdline()
            if any("agent" in word and "shim" in word for word in words):
                found.append(child)
    return found


async def test_killed_shim_leaves_nothing(rig: RunnerRig) -> None:
    """If somebody kills the shim, its job is ended and that is told."""
    rig.start(COUNT)
    await rig.said("1\n")
    for shim in job_shims():
        shim.kill()
    end = await rig.end()
    assert (end.exit_code, end.reason) == (137, "the process that kept the job was killed")
    await _stands_still(rig)


async def test_close_ends_every_job(rig: RunnerRig) -> None:
    """When the agent goes, its jobs go."""
    rig.start(COUNT)
    await rig.said("1\n")
    await rig.runner.close()
    assert (await rig.end()).exit_code == 137
    assert json.loads((await rig.log()).split()[-1]) > 0


async def _stands_still(rig: RunnerRig) -> int:
    """The last number, once it does not grow any more. A heartbeat takes 0.02 s."""
    seen = [-1]

    async def still() -> bool:
        await asyncio.sleep(0.25)  # not a wait but the span that is measured
        seen.append(len(await rig.log()))
        return seen[-1] == seen[-2]

    await until(still, "it stands still")
    return int((await rig.log()).split()[-1])
