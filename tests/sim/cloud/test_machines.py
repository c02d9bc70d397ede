"""Pretend VMs are real processes: they start, are warned, are killed, never outlive the cloud."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from sim.cloud import machines
from sim.cloud.faults import Preempt
from sim.cloud.machines import VmProcesses
from sim.cloud.parsing import InvalidInput
from sim.cloud.server import PretendCloud
from stores.gcs import STORAGE_OVERRIDE
from tests.sim.helpers import REGION, eventually, make_world, mig_json, world_json

pytestmark = pytest.mark.slow

FAST = {
    "create_s": [0.01, 0.01],
    "boot_s": [0.01, 0.01],
    "stockout_answer_s": 0.01,
    "retry_s": 0.05,
    "delete_s": 0.05,
    "spot_notice_s": 3.0,  # time for a guest to hear of it, on a busy machine too
}
MIG = "zen-mig"

# A guest that writes what it is told to its directory, has a child in a session of its own, and
# reads its metadata with the standard library alone.
GUEST = """
import json, os, pathlib, signal, subprocess, sys, time, urllib.request

signal.signal(signal.SIGTERM, signal.SIG_IGN)
here = pathlib.Path(os.environ["ZEN_VM_DIR"])
child = subprocess.Popen(["sleep", "600"], start_new_session=True)

def read(path):
    url = f"http://{os.environ['GCE_METADATA_HOST']}/computeMetadata/v1/{path}"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    return urllib.request.urlopen(request).read().decode()

facts = {"name": read("instance/name"), "id": read("instance/id"), "environment": dict(os.environ)}
facts |= {"pid": os.getpid(), "child": child.pid, "cwd": os.getcwd()}
(here.parent / f"{facts['name']}.facts.tmp").write_text(json.dumps(facts))
os.rename(here.parent / f"{facts['name']}.facts.tmp", here.parent / f"{facts['name']}.facts")
print("hello from", facts["name"], flush=True)
value = read("instance/preempted?wait_for_change=true")
(here.parent / f"{facts['name']}.notice").write_text(value)
time.sleep(600)
"""
COMMAND = [sys.executable, "-c", GUEST]


def gone(pid: int) -> bool:
    """Dead, or dead and not yet collected by the process that inherited it."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def facts(state_dir: Path, name: str) -> dict[str, Any] | None:
    path = state_dir / "vms" / f"{name}.facts"
    return json.loads(path.read_text()) if path.exists() else None


async def started(state_dir: Path, name: str) -> dict[str, Any]:
    await eventually(lambda: facts(state_dir, name))
    found = facts(state_dir, name)
    assert found is not None
    return found


def create(pretend: PretendCloud, *names: str) -> None:
    pretend.cloud.create_instances(REGION, MIG, names, None, pretend.clock())
    pretend.wake()


def status(pretend: PretendCloud, name: str) -> str | None:
    member = pretend.cloud.mig(REGION, MIG, pretend.clock()).members.get(name)
    return member.vm.status.value if member is not None and member.vm is not None else None


@pytest.fixture
async def pretend(tmp_path: Path) -> AsyncIterator[PretendCloud]:
    world = make_world(mig_json(spot=True), physics=FAST)
    async with PretendCloud(world, tmp_path, command=COMMAND) as cloud:
        yield cloud


async def test_a_vm_is_a_process_with_an_identity(pretend: PretendCloud, tmp_path: Path) -> None:
    """It learns its name and id from metadata, has a directory and a small environment of its own,
    and its output goes to its log."""
    create(pretend, "a")
    seen = await started(tmp_path, "a")
    vm = pretend.cloud.vms(pretend.clock())[0].info
    directory = tmp_path / "vms" / f"a-{vm.id}"
    assert (seen["name"], seen["id"], seen["cwd"]) == ("a", str(vm.id), str(directory))
    environment = seen["environment"]
    assert environment["HOME"] == environment["ZEN_VM_DIR"] == str(directory)
    expected = {"PATH", "HOME", "LANG", "GCE_METADATA_HOST", "ZEN_VM_DIR", "ZEN_PARENT_FD"}
    assert set(environment) - {"LC_CTYPE"} == {*expected, STORAGE_OVERRIDE}
    assert os.getpgid(seen["pid"]) == seen["pid"] != os.getpgid(0)
    log = tmp_path / "vms" / f"a-{vm.id}.log"
    await eventually(lambda: log.read_text() == "hello from a\n")


async def test_deletion_kills_everything_on_the_vm(pretend: PretendCloud, tmp_path: Path) -> None:
    """PowerOff spares nothing: not the child in another session, not the directory."""
    create(pretend, "a", "b")
    seen, other = await started(tmp_path, "a"), await started(tmp_path, "b")
    zone = pretend.cloud.mig(REGION, MIG, pretend.clock()).members["a"].zone
    pretend.cloud.delete_instances(
        REGION, MIG, [f"zones/{zone}/instances/a"], False, None, pretend.clock()
    )
    pretend.wake()
    await eventually(lambda: gone(seen["pid"]) and gone(seen["child"]))
    await eventually(lambda: not Path(seen["cwd"]).exists())
    assert not gone(other["pid"])
    assert not gone(other["child"])


async def test_preemption_reaches_the_guest_before_the_power_goes(
    pretend: PretendCloud, tmp_path: Path
) -> None:
    """POST /sim/v1/preempt: metadata turns TRUE, the guest sees it, then it is killed."""
    create(pretend, "a")
    seen = await started(tmp_path, "a")
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{pretend.compute_url}/sim/v1/preempt", json={"vm": "a"}) as answer,
    ):
        assert (answer.status, await answer.json()) == (200, {"kind": "preempt", "hit": ["a"]})
    notice = tmp_path / "vms" / "a.notice"
    await eventually(lambda: notice.exists() and notice.read_text() == "TRUE")
    await eventually(lambda: status(pretend, "a") == "TERMINATED")
    await eventually(lambda: gone(seen["pid"]) and gone(seen["child"]))


async def test_a_preempted_guest_gets_sigterm(tmp_path: Path) -> None:
    """As by systemd at the soft off; what ends in time, ends its VM before the power goes."""
    guest = """
import os, pathlib, signal, sys

def told(*_):
    (pathlib.Path(os.environ["ZEN_VM_DIR"]).parent / "told").write_text("SIGTERM")
    sys.exit(0)

signal.signal(signal.SIGTERM, told)
(pathlib.Path(os.environ["ZEN_VM_DIR"]).parent / "up").touch()
while True:
    signal.pause()
"""
    world = make_world(mig_json(spot=True), physics={**FAST, "spot_notice_s": 600.0})
    async with PretendCloud(world, tmp_path, command=[sys.executable, "-c", guest]) as pretend:
        create(pretend, "a")
        await eventually((tmp_path / "vms" / "up").exists)
        pretend.cloud.set_fault(Preempt(vm="a"), pretend.clock())
        pretend.wake()
        await eventually((tmp_path / "vms" / "told").exists)
        await eventually(lambda: status(pretend, "a") == "TERMINATED")


async def test_a_guest_that_exits_has_shut_its_vm_down(tmp_path: Path) -> None:
    """The end of the process is a shutdown from inside: TERMINATED, and nothing left of it."""
    world = make_world(physics=FAST)
    async with PretendCloud(world, tmp_path, command=["sh", "-c", "sleep 600 & exit 3"]) as cloud:
        create(cloud, "a")
        await eventually(lambda: status(cloud, "a") == "TERMINATED")
        await eventually(lambda: not [p for p in (tmp_path / "vms").iterdir() if p.is_dir()])


async def test_a_command_that_cannot_start_ends_the_vm(tmp_path: Path) -> None:
    """A command that does not exist leaves a TERMINATED VM, and the cloud goes on."""
    async with PretendCloud(
        make_world(physics=FAST), tmp_path, command=[str(tmp_path / "no-such-agent")]
    ) as cloud:
        create(cloud, "a", "b")
        await eventually(lambda: status(cloud, "a") == status(cloud, "b") == "TERMINATED")


async def test_stop_asks_first_and_then_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clean stop sends SIGTERM; who obeys ends in order, who does not is killed in time."""
    script = 'trap "echo bye; exit 0" TERM; echo up; while :; do sleep 0.05; done'
    stubborn = 'trap "" TERM; echo up; while :; do sleep 0.05; done'
    for text, obeys, limit_s in ((script, True, 30.0), (stubborn, False, 15.0)):
        # Who obeys has all the time that a busy machine may need.
        monkeypatch.setattr(machines, "STOP_GRACE_S", 30.0 if obeys else 3.0)
        state = tmp_path / f"state-{limit_s}"
        cloud = PretendCloud(make_world(physics=FAST), state, command=["sh", "-c", text])
        async with cloud:
            create(cloud, "a")
            await eventually(lambda s=state: "up\n" in _log(s))  # type: ignore[misc]
            begin = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - begin < limit_s
        assert ("bye" in _log(state)) is obeys
        assert not [p for p in psutil.process_iter() if _runs_in(p, state)]


def _log(state: Path) -> str:
    return "".join(path.read_text() for path in (state / "vms").glob("*.log"))


def _runs_in(process: psutil.Process, state: Path) -> bool:
    with suppress(psutil.Error):
        return process.environ().get("ZEN_VM_DIR", "").startswith(str(state))
    return False


async def test_one_state_directory_has_one_cloud(pretend: PretendCloud, tmp_path: Path) -> None:
    """A second cloud on the same directory is refused; it would kill the first one's VMs."""
    second = VmProcesses(make_world(), tmp_path, lambda _: None)
    with pytest.raises(InvalidInput, match="another pretend cloud runs here"):
        await second.start()


# --- as a process of its own ----------------------------------------------------------------------


Spawn = Callable[..., Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def spawn(tmp_path: Path) -> AsyncIterator[Spawn]:
    """Starts `python -m sim` with two VMs. Whatever a test does, nothing outlives it."""
    started: list[asyncio.subprocess.Process] = []

    async def start(*extra: str, command: list[str] = COMMAND, **options: Any) -> Any:
        raw = world_json(mig_json(target_size=2, base_instance_name="vm"), physics=FAST)
        (tmp_path / "world.json").write_text(json.dumps(raw))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sim", "--world", str(tmp_path / "world.json")),
            *("--state-dir", str(tmp_path / "state"), *extra, "--", *command),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
    for left in [p for p in psutil.process_iter() if _runs_in(p, tmp_path)]:
        with suppress(psutil.NoSuchProcess):
            left.kill()


async def ready(process: asyncio.subprocess.Process, tmp_path: Path) -> list[dict[str, Any]]:
    """Waits for the ready line and for both VMs; returns what they said of themselves."""
    assert process.stdout is not None
    line = json.loads(await asyncio.wait_for(process.stdout.readline(), 30))
    assert line["event"] == "ready"
    directory = tmp_path / "state" / "vms"
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{line['compute']}/sim/v1/state") as answer,
    ):
        assert len((await answer.json())["migs"][0]["members"]) == 2
    await eventually(lambda: len(list(directory.glob("*.facts"))) == 2)
    return [json.loads(path.read_text()) for path in directory.glob("*.facts")]


async def test_sigterm_stops_the_server_and_its_vms(spawn: Spawn, tmp_path: Path) -> None:
    """SIGTERM: exit code 0, no process and no VM directory left, nothing on stderr."""
    process = await spawn()
    guests = await ready(process, tmp_path)
    process.terminate()
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, errors) == (0, b"")
    assert all(gone(guest[key]) for guest in guests for key in ("pid", "child"))
    assert not [p for p in (tmp_path / "state" / "vms").iterdir() if p.is_dir()]


async def test_nothing_survives_sigkill_of_the_server(spawn: Spawn, tmp_path: Path) -> None:
    """kill -9 of the server takes the guests with it; what they left behind is swept away by the
    next server on the same directory."""
    process = await spawn()
    guests = await ready(process, tmp_path)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await eventually(lambda: all(gone(guest["pid"]) for guest in guests))
    for path in (tmp_path / "state" / "vms").glob("*.facts"):
        path.unlink()
    again = await spawn()
    others = await ready(again, tmp_path)
    assert all(gone(guest["child"]) for guest in guests)
    assert {g["id"] for g in guests}.isdisjoint(g["id"] for g in others)
    again.terminate()
    await asyncio.wait_for(again.communicate(), 30)


async def test_the_kernel_kills_guests_that_notice_nothing(spawn: Spawn, tmp_path: Path) -> None:
    """A guest that reads neither metadata nor the pipe dies with a server that was killed."""
    process = await spawn(command=["sh", "-c", "echo $$; exec sleep 600"])
    await eventually(lambda: len(_log(tmp_path / "state").split()) == 2)
    pids = [int(text) for text in _log(tmp_path / "state").split()]
    assert not any(gone(pid) for pid in pids)
    process.kill()
    await eventually(lambda: all(gone(pid) for pid in pids))


WATCHER = """
import os, pathlib, subprocess, sys

# The kernel kills the guest with its parent; this child, which it has not asked for, sees the pipe.
fd = int(os.environ["ZEN_PARENT_FD"])
flag = pathlib.Path(os.environ["ZEN_VM_DIR"]).parent / "saw-the-end"
code = f"import os, pathlib; os.read({fd}, 1); pathlib.Path({str(flag)!r}).touch()"
subprocess.Popen([sys.executable, "-c", code], pass_fds=(fd,), start_new_session=True)
print("up", flush=True)
os.read(fd, 1)
"""


async def test_guests_see_the_end_of_their_parent(spawn: Spawn, tmp_path: Path) -> None:
    """ZEN_PARENT_FD is at end of file once the server is gone, however it went."""
    process = await spawn(command=[sys.executable, "-c", WATCHER])
    await eventually(lambda: _log(tmp_path / "state").count("up\n") == 2)
    process.kill()
    await eventually((tmp_path / "state" / "vms" / "saw-the-end").exists)


async def test_end_of_the_parent_pipe_stops_the_server(spawn: Spawn, tmp_path: Path) -> None:
    """EOF on --parent-fd is a clean stop: the one who started the server has died."""
    read_fd, write_fd = os.pipe()
    process = await spawn("--parent-fd", str(read_fd), pass_fds=(read_fd,))
    os.close(read_fd)
    guests = await ready(process, tmp_path)
    os.close(write_fd)
    await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    assert all(gone(guest[key]) for guest in guests for key in ("pid", "child"))


async def test_a_bad_world_is_one_line_per_fault(tmp_path: Path) -> None:
    """A world that does not parse: exit code 2, a line for each problem, no traceback."""
    (tmp_path / "world.json").write_text('{"project": "X", "migs": []}')
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sim", "--world", str(tmp_path / "world.json")),
        *("--state-dir", str(tmp_path / "state")),
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    lines = errors.decode().splitlines()
    assert process.returncode == 2
    assert len(lines) == 2
    assert all("world.json" in line for line in lines)


async def test_a_startup_script_runs_instead_of_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the variables that lead Google's own tools to the cloud and the bus at hand."""
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB", "http://127.0.0.1:9/")
    script = (
        '#!/bin/sh\nenv > "$ZEN_VM_DIR.env.tmp" && mv "$ZEN_VM_DIR.env.tmp" "$ZEN_VM_DIR.env"\n'
    )
    mig = mig_json(metadata={"startup-script": script + "exec sleep 600\n"})
    world = make_world(mig, physics=FAST)
    async with PretendCloud(world, tmp_path, command=["false"]) as pretend:
        create(pretend, "vm-1")
        await eventually(lambda: _environments(tmp_path))
        (words,) = _environments(tmp_path)
        assert f"OVERRIDES_COMPUTE={pretend.compute_url}/compute/v1/\n" in words
        assert "OVERRIDES_PUBSUB=http://127.0.0.1:9/\n" in words


async def test_a_vm_goes_on_when_its_startup_script_has_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As on Google: it costs until somebody deletes it."""
    caplog.set_level("INFO", "sim.cloud.machines")
    mig = mig_json(metadata={"startup-script": "#!/bin/sh\nexit 0\n"})
    world = make_world(mig, physics=FAST)
    async with PretendCloud(world, tmp_path, command=["false"]) as pretend:
        create(pretend, "vm-1")
        await eventually(lambda: "its startup script ended" in caplog.text)
        assert "shut itself down" not in caplog.text


def _environments(state_dir: Path) -> list[str]:
    return [path.read_text() for path in state_dir.glob("vms/vm-1-*.env")]
