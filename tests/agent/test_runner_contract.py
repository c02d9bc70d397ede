"""What every way of running a job promises: as a process, and in a container."""

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
from tests.agent.box import Yard
from tests.agent.podman import IMAGE, Podman
from tests.agent.vm import until

pytestmark = pytest.mark.slow
COUNT = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done"


@pytest.fixture(params=["process", "container"])
async def yard(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Yard]:
    if request.param == "process":
        yard = Yard(tmp_path)
        yield yard
        await yard.runner.close()
        return
    podman: Podman = request.getfixturevalue("podman")
    yard = Yard(tmp_path, docker=podman.address, image=IMAGE)
    yield yard
    await yard.runner.close()
    assert podman.docker.labelled("zen.keeper") == [], "every container is removed"


async def test_both_streams_and_the_exit_code(yard: Yard) -> None:
    """Started is said, then the end with its code; by then the whole output is stored."""
    yard.start("echo out; echo err >&2; exit 3")
    assert await yard.next() == Started("lease-1")
    assert await yard.next() == Exited("lease-1", 3, "exit code 3")
    assert sorted((await yard.log()).split()) == ["err", "out"]


async def test_much_output_comes_whole(yard: Yard) -> None:
    """Nothing of a long output is lost, also when it comes faster than it is stored."""
    yard.start("seq 1 100000; exit 0")
    assert (await yard.end()).exit_code == 0
    lines = (await yard.log()).split()
    assert (len(lines), lines[-1]) == (100_000, "100000")


async def test_words_environment_and_progress(yard: Yard) -> None:
    """Arguments are not read by a shell; facts about the job are in its environment; what it
    writes to its status file is heard."""
    script = (
        'echo "$ZEN_JOB_ID $ZEN_ATTEMPT $CUDA_VISIBLE_DEVICES ${SECRET_OF_AGENT-none}"; '
        'echo "{\\"step\\": 2, \\"total\\": 4}" >> "$ZEN_STATUS_FILE"; echo "$1"'
    )
    yard.start("sh", "-c", script, "name", "$HOME * ; exit 1")
    assert isinstance(await yard.next(), Started)
    assert await yard.next() == Progressed("lease-1", Progress(2, 4), None)
    assert (await yard.end()).exit_code == 0
    assert await yard.log() == "j1 1 1,3 none\n$HOME * ; exit 1\n"


async def test_checkpoints_and_outputs_outlive_the_attempt(yard: Yard) -> None:
    """A later attempt finds what an earlier one saved, and is told where; what each leaves in its
    output directory is stored when its end is told."""
    script = (
        'cat "${ZEN_RESUME_FROM:-/none}/s" 2>/dev/null; echo one > "$ZEN_CHECKPOINT_DIR/s"; '
        'mkdir "$ZEN_OUTPUT_DIR/d"; echo "result $ZEN_ATTEMPT" > "$ZEN_OUTPUT_DIR/d/r"'
    )
    for attempt in (1, 2):
        yard.start(script, attempt=attempt, lease_id=f"lease-{attempt}")
        assert (await yard.end()).exit_code == 0
        path = ArtifactPath("acme", "u1", "j1", attempt)
        manifest = await read_manifest(yard.store, path)
        assert manifest is not None
        assert [(file.path, file.size) for file in manifest.files] == [("d/r", 9)]
        assert await yard.store.get(path.file("d/r"), 0, 99) == f"result {attempt}\n".encode()
    assert (await yard.log(1), await yard.log(2)) == ("", "one\n")


async def test_term_lets_the_job_finish(yard: Yard) -> None:
    """SIGTERM reaches the job, and its own exit code is what counts."""
    yard.start("trap 'echo saved; exit 7' TERM; echo up; while :; do sleep 0.05; done")
    await yard.said("up")
    yard.runner.signal("lease-1", Signal.TERM)
    assert await yard.end() == Exited("lease-1", 7, "exit code 7")
    assert (await yard.log()).endswith("saved\n")


async def test_term_ends_a_job_without_manners(yard: Yard) -> None:
    """SIGTERM ends a program that does not ask for it."""
    yard.start("echo up; exec sleep 1000")
    await yard.said("up")
    yard.runner.signal("lease-1", Signal.TERM)
    assert (await yard.end()).exit_code == 143


async def test_kill_ends_a_job_that_ignores_term(yard: Yard) -> None:
    """SIGKILL ends whatever did not end by itself."""
    yard.start("trap '' TERM; echo up; while :; do sleep 0.05; done")
    await yard.said("up")
    yard.runner.signal("lease-1", Signal.TERM)
    yard.runner.signal("lease-1", Signal.KILL)
    assert await yard.end() == Exited("lease-1", 137, "killed by SIGKILL")


async def test_signal_before_the_start(yard: Yard) -> None:
    """A signal that is given before there is a job reaches it all the same."""
    yard.start("sleep 1000")
    yard.runner.signal("lease-1", Signal.KILL)
    assert await yard.end() == Exited("lease-1", 137, "killed by SIGKILL")


async def test_freeze_thaw_and_kill_of_a_frozen_one(yard: Yard) -> None:
    """A frozen job stands still, a thawed one goes on where it was, a frozen one can be killed."""
    yard.start(COUNT)
    await yard.said("5\n")
    yard.runner.signal("lease-1", Signal.STOP)
    still = await _stands_still(yard)
    yard.runner.signal("lease-1", Signal.CONT)
    await yard.said(f"\n{still + 3}\n")
    yard.runner.signal("lease-1", Signal.STOP)
    last = await _stands_still(yard)
    yard.runner.signal("lease-1", Signal.KILL)
    assert (await yard.end()).exit_code == 137
    assert int((await yard.log()).split()[-1]) == last


async def test_freezes_when_nobody_renews_it(yard: Yard) -> None:
    """Past its moment the job is frozen without the agent's help; a later moment lets it go on."""
    now = SystemClock().monotonic
    yard.runner.renew(now() + 30)
    yard.start(COUNT)
    await yard.said("5\n")
    yard.runner.renew(now() + 0.2)
    still = await _stands_still(yard)
    yard.runner.renew(now() + 30)
    await yard.said(f"\n{still + 3}\n")
    yard.runner.signal("lease-1", Signal.KILL)
    await yard.end()


def job_shims() -> list[psutil.Process]:
    """Those of jobs: the database of other tests has a shim too."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            words = child.cmdline()
            if any("agent" in word and "shim" in word for word in words):
                found.append(child)
    return found


async def test_killed_shim_leaves_nothing(yard: Yard) -> None:
    """If somebody kills the shim, its job is ended and that is told."""
    yard.start(COUNT)
    await yard.said("1\n")
    for shim in job_shims():
        shim.kill()
    end = await yard.end()
    assert (end.exit_code, end.reason) == (137, "the process that kept the job was killed")
    await _stands_still(yard)


async def test_close_ends_every_job(yard: Yard) -> None:
    """When the agent goes, its jobs go."""
    yard.start(COUNT)
    await yard.said("1\n")
    await yard.runner.close()
    assert (await yard.end()).exit_code == 137
    assert json.loads((await yard.log()).split()[-1]) > 0


async def _stands_still(yard: Yard) -> int:
    """The last number, once it does not grow any more. A heartbeat takes 0.02 s."""
    seen = [-1]

    async def still() -> bool:
        await asyncio.sleep(0.25)  # not a wait but the span that is measured
        seen.append(len(await yard.log()))
        return seen[-1] == seen[-2]

    await until(still, "it stands still")
    return int((await yard.log()).split()[-1])
