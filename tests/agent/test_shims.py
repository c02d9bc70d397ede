"""Shims by the server, and without it: a server that is killed or hangs costs no job."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from agent import shims
from agent.events import Signal, Started
from tests.agent.runner_rig import RunnerRig
from tests.agent.vm import gone, until

pytestmark = pytest.mark.slow


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunnerRig]:
    monkeypatch.setattr(shims, "SERVER_AGAIN_S", 0.0)
    rig = RunnerRig(tmp_path)
    yield rig
    await rig.runner.close()


async def run_there(rig: RunnerRig, lease_id: str) -> int | None:
    """A job that ends well; the parent of its shim."""
    rig.start("cut -d' ' -f4 /proc/$PPID/stat", lease_id=lease_id, attempt=int(lease_id))
    assert (await rig.end()).exit_code == 0
    return int(await rig.log(int(lease_id)))


def server_of(rig: RunnerRig) -> int:
    assert rig.shims.server is not None
    return rig.shims.server.pid


async def test_killed_server(rig: RunnerRig) -> None:
    """A running job goes on, the next one starts, the one after it by another server."""
    rig.start("exec sleep 1000", lease_id="0", attempt=9)
    assert isinstance(await rig.next(), Started)
    first = server_of(rig)
    psutil.Process(first).kill()
    assert await run_there(rig, "1") == psutil.Process().pid
    assert await run_there(rig, "2") == server_of(rig) != first
    rig.runner.signal("0", Signal.TERM)
    assert (await rig.end()).reason == "killed by SIGTERM"


async def test_server_that_hangs(rig: RunnerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job starts without it, and the server is ended: a shim that it would fork later has
    nobody to speak to."""
    rig.start("exec sleep 1000", lease_id="1")
    assert isinstance(await rig.next(), Started)
    hung = server_of(rig)
    psutil.Process(hung).suspend()
    monkeypatch.setattr(shims, "SERVER_WAIT_S", 0.2)
    assert await run_there(rig, "2") == psutil.Process().pid
    await until(lambda: gone(hung), "the server that hung is dead")


async def test_server_that_cannot_start(tmp_path: Path) -> None:
    """Jobs run without it."""
    for command in (("/nowhere/python",), (sys.executable, "-c", "raise SystemExit(1)")):
        rig = RunnerRig(tmp_path / command[0].strip("/"), shim_server=command)
        assert await run_there(rig, "1") == psutil.Process().pid
        await rig.runner.close()


async def shim_of(rig: RunnerRig, lease_id: str, before: str = "") -> int:
    """The shim of a job that ends well."""
    rig.start(f"{before} echo $PPID", lease_id=lease_id, attempt=int(lease_id))
    assert (await rig.end()).exit_code == 0
    return int(await rig.log(int(lease_id)))


async def test_shim_keeps_one_job_after_another(rig: RunnerRig) -> None:
    """Each has its own log, and nothing of the one before: no process, no file, no freeze."""
    shim = await shim_of(rig, "1", before="setsid sleep 1000 &")
    assert psutil.Process(shim).children() == []
    files = psutil.Process(shim).num_fds()
    rig.start("exec sleep 1000", lease_id="2", attempt=2)
    assert isinstance(await rig.next(), Started)
    rig.runner.signal("2", Signal.STOP)
    rig.runner.signal("2", Signal.KILL)
    assert (await rig.end()).reason == "killed by SIGKILL"
    assert await shim_of(rig, "3") == shim
    await until(lambda: psutil.Process(shim).num_fds() == files, "its files are closed")


async def test_words_for_a_job_that_ended_do_not_reach_the_next(
    rig: RunnerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the outputs of the first are stored, the second has its shim already."""
    links: list[shims.ShimLink] = []
    link = shims.Shims.link

    def noted(self: shims.Shims, program: shims.ShimProgram) -> shims.ShimLink:
        links.append(link(self, program))
        return links[-1]

    monkeypatch.setattr(shims.Shims, "link", noted)
    await shim_of(rig, "1")
    rig.start("exec sleep 1000", lease_id="2", attempt=2)
    assert isinstance(await rig.next(), Started)
    links[0].tell(f"{Signal.KILL}\n".encode())
    links[0].hang_up()
    rig.runner.signal("2", Signal.TERM)
    assert (await rig.end()).reason == "killed by SIGTERM"


async def test_shim_that_was_killed_while_it_waited(rig: RunnerRig) -> None:
    """The next job starts with another one."""
    shim = await shim_of(rig, "1")
    psutil.Process(shim).kill()
    assert await shim_of(rig, "2") != shim


async def test_shims_that_wait_are_few(rig: RunnerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shims, "IDLE_MAX", 1)
    for lease_id in ("1", "2"):
        rig.start("echo $PPID; exec sleep 1000", lease_id=lease_id, attempt=int(lease_id))
        assert isinstance(await rig.next(), Started)
    for lease_id in ("1", "2"):
        rig.runner.signal(lease_id, Signal.TERM)
        await rig.end()
    found = [int((await rig.log(attempt)).splitlines()[0]) for attempt in (1, 2)]
    await until(lambda: sum(gone(shim) for shim in found) == 1, "one of them goes")


async def test_server_goes_with_the_runner(rig: RunnerRig) -> None:
    """Nothing is left when the runner closes, neither the server nor a job that runs, nor a shim
    that waits."""
    rig.start("exec sleep 1000", lease_id="1", attempt=1)
    assert isinstance(await rig.next(), Started)
    waits = await shim_of(rig, "2")
    rig.start("echo $$; exec sleep 1000")
    assert isinstance(await rig.next(), Started)
    await rig.said("\n")
    job, server = int(await rig.log()), server_of(rig)
    await rig.runner.close()
    assert gone(job)
    assert gone(server)
    await until(lambda: gone(waits), "the shim that waited is gone")


async def test_forked_job_has_no_files_of_the_server(rig: RunnerRig) -> None:
    """The second job finds its three standard files alone, as the first one did."""
    for lease_id in ("1", "2"):
        rig.start("ls /proc/$$/fd", lease_id=lease_id, attempt=int(lease_id))
        assert (await rig.end()).exit_code == 0
        assert (await rig.log(int(lease_id))).split() == ["0", "1", "2"]
