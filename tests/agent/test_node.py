"""The service of a single machine, over its real socket, with real workers."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.node import Node
from core.actions import Create, Delete
from core.clock import SystemClock
from core.errors import CloudRefused, MigMissing
from core.mig import MachineState, ManagedInstance
from migs.own_machines import NodeCompute
from tests.workers import SCHEDULER

pytestmark = pytest.mark.slow

SETTINGS = {
    "zone": "local-host1-a",
    "zen-cluster": "2xgpu",
    "zen-project": "this-machine",
    "zen-prefix": "zen",
    "zen-scheduler-keys": SCHEDULER.public.text,
    "zen-gpus": "2",
    "zen-pretend-gpus": "true",
    # Nobody listens there: a worker waits patiently for its bus.
    "zen-pubsub-host": "127.0.0.1:1",
}


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[NodeCompute]:
    """A node service in a process of its own."""
    words = tmp_path / "settings.json"
    words.write_text(json.dumps({**SETTINGS, "zen-store": f"file://{tmp_path}/store"}))
    socket = tmp_path / "node.sock"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agent.node", "--socket", str(socket)),
        *("--dir", str(tmp_path / "worker"), "--settings", str(words)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert json.loads(await process.stdout.readline())["event"] == "ready"
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    yield NodeCompute(f"unix:{socket}", "local-host1-a", SystemClock())
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 20) == 0


async def members(machine: NodeCompute) -> tuple[ManagedInstance, ...]:
    return (await machine.observe("mig", "2xgpu", "local-host1")).members


def create(name: str) -> Create:
    return Create("local-host1", (name,), "request-1", "wanted")


async def test_a_machine_carries_one_worker_at_a_time(machine: NodeCompute) -> None:
    """Asked twice it starts one; another name is refused until the first has ended."""
    assert await members(machine) == ()
    await machine.create("mig", create("vm-a"))
    (first,) = await members(machine)
    assert (first.name, first.zone) == ("vm-a", "local-host1-a")
    assert first.machine is MachineState.RUNNING
    await machine.create("mig", create("vm-a"))
    assert await members(machine) == (first,)
    with pytest.raises(CloudRefused, match="already runs vm-a"):
        await machine.create("mig", create("vm-b"))
    await machine.delete("mig", Delete("local-host1", ("vm-a", "vm-x"), "request-2", "over"))
    assert await members(machine) == ()
    await machine.create("mig", create("vm-a"))
    (again,) = await members(machine)
    assert again.instance_id != first.instance_id


async def test_a_machine_without_its_service_is_missing(tmp_path: Path) -> None:
    """In words that name the socket."""
    with pytest.raises(MigMissing, match="no node service answers at unix:"):
        await members(NodeCompute(f"unix:{tmp_path}/none.sock", "a", SystemClock()))


async def test_a_worker_that_died_is_shown_as_off(tmp_path: Path) -> None:
    """Until it is deleted: the scheduler must learn of it."""
    node = Node({**SETTINGS, "zen-store": f"file://{tmp_path}"}, tmp_path)
    assert await node.answer({"do": "start", "names": ["vm-a"]}) == {"ok": True}
    node.workers["vm-a"].process.kill()
    await node.workers["vm-a"].process.wait()
    answer = await node.answer({"do": "list"})
    assert [vm["status"] for vm in answer["vms"]] == ["TERMINATED"]  # type: ignore[attr-defined]
    assert await node.answer({"do": "stop", "names": ["vm-a"]}) == {"ok": True}
    assert await node.answer({"do": "list"}) == {"vms": []}


@pytest.mark.parametrize(
    "words",
    [
        None,
        [],
        {"do": "dance"},
        {"do": "start", "names": "vm-a"},
        {"do": "start", "names": ["../x"]},
        {"do": "stop", "names": [1]},
    ],
)
async def test_nonsense_is_refused_in_words(words: object, tmp_path: Path) -> None:
    """Nothing is started."""
    node = Node(SETTINGS, tmp_path)
    assert "error" in await node.answer(words)
    assert node.workers == {}
