"""What only containers have: images, limits, mounts, and leftovers of dead agents."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from agent.containers.docker import find
from agent.containers.leftovers import SHIM, VM, is_leftover, sweep, whoami
from agent.events import Signal, StartFailed
from agent.sandbox.isolation import find_isolation
from core.clock import SystemClock
from core.containers import ContainerRules
from core.job_fields import WorkerSpec
from core.sandbox import SandboxRules
from tests.agent.podman import IMAGE, IMAGE_OF_NOBODY, Podman
from tests.agent.runner_rig import RunnerRig, order_for
from tests.agent.vm import DEADLINE_S, until

pytestmark = pytest.mark.slow


@pytest.fixture
async def rig(podman: Podman, tmp_path: Path) -> AsyncIterator[RunnerRig]:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("mounted\n")
    rules = ContainerRules((f"{tmp_path}/data:/data",))
    rig = RunnerRig(tmp_path, docker=podman.address, rules=rules)
    yield rig
    await rig.runner.close()


def spec_for(*command: str, **changes: object) -> WorkerSpec:
    spec = replace(order_for(*command).spec, image=IMAGE)
    return replace(spec, **changes)  # type: ignore[arg-type]  # the tests' own keywords


async def test_entrypoint_and_working_directory(rig: RunnerRig) -> None:
    """A command replaces the image's entrypoint; arguments alone are given to it; without either
    the image runs as it is. It starts where the image says, unless the job says."""
    cases = [
        (spec_for("pwd"), "/srv\n"),
        (spec_for("pwd", working_dir="/tmp"), "/tmp\n"),
        (spec_for("a", "b", keep_entrypoint=True), "entry a b\n"),
        (spec_for(shell=False, keep_entrypoint=True), "entry usual\n"),
    ]
    for number, (spec, _) in enumerate(cases, start=1):
        rig.start(spec=spec, attempt=number, lease_id=f"l{number}")
    ends = [await rig.end() for _ in cases]
    assert [end.exit_code for end in ends] == [0] * len(cases)
    for number, (_, expected) in enumerate(cases, start=1):
        assert await rig.log(number) == expected


async def test_mounts_limits_and_another_user(rig: RunnerRig, podman: Podman) -> None:
    """What the operator mounts is there, read-only; cores and memory are limits; a user that the
    image brings may write to the job's places."""
    spec = spec_for(
        "cat /data/file; touch /data/x 2>/dev/null || echo read-only; cd $ZEN_OUTPUT_DIR; "
        "id -u; echo mine > out && cat out; echo up; sleep 1000",
        image=IMAGE_OF_NOBODY,
        memory_mb=64,
        cpu_cores=0.5,
    )
    rig.start(spec=spec)
    await rig.said("up\n")
    [(container, labels)] = podman.docker.labelled("zen.job=j1")
    told = podman.run("inspect", "--format", "{{json .HostConfig}}", container)
    assert f'"Memory":{64 * 1024**2}' in told
    assert '"NanoCpus":500000000' in told
    assert labels["zen.lease"] == "lease-1"
    assert await rig.log() == "mounted\nread-only\n65534\nmine\nup\n"


async def test_a_container_is_shut_in(podman: Podman, tmp_path: Path) -> None:
    """A user of the job's own, no capabilities, no way to more, a bound of processes, a network of
    its own; its places are its own, and another job's are not there."""
    (tmp_path / "vm").mkdir()
    found = find_isolation(SandboxRules(pids_max=50), tmp_path / "vm", "vm", own_machine=False)
    rig = RunnerRig(tmp_path, docker=podman.address, isolation=found)
    script = """cat /proc/self/status; pwd > $HOME/h; echo 1 > $ZEN_OUTPUT_DIR/o
        echo 2 > $ZEN_CHECKPOINT_DIR/c; mount -t tmpfs none /tmp 2>/dev/null && echo mounted
        cat /sys/class/net/*/operstate | wc -l
        i=0; while [ $i -lt 100 ]; do sleep 20 & i=$((i+1)); done"""
    rig.start(spec=spec_for(script))
    await rig.end()
    log = await rig.log()
    words = dict(line.split(":\t", 1) for line in log.splitlines() if ":\t" in line)
    assert int(words["Uid"].split()[0]) >= SandboxRules().uid_first
    assert words["NoNewPrivs"] == "1"
    assert {int(words[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert "mounted" not in log
    assert "can't fork" in log
    assert (tmp_path / "store/checkpoints/acme/u1/j1/c").read_text() == "2\n"
    await rig.runner.close()


async def test_image_that_cannot_be_pulled(rig: RunnerRig) -> None:
    """The reason names the image and what the registry said."""
    rig.start(spec=spec_for("true", image="127.0.0.1:9/team/nothing:v1"))
    end = await rig.end()
    assert isinstance(end, StartFailed)
    assert end.exit_code == 125
    assert end.reason.startswith("image 127.0.0.1:9/team/nothing:v1 cannot be pulled: ")
    assert "connection refused" in end.reason


async def test_stop_during_a_pull(rig: RunnerRig) -> None:
    """A job that is told to end while its image is pulled does not wait for the image."""
    rig.start(spec=spec_for("true", image="127.0.0.1:9/team/nothing:v1"))
    rig.runner.signal("lease-1", Signal.KILL)
    assert (await rig.end()).exit_code == 137


async def test_no_runtime(tmp_path: Path) -> None:
    """Without a container runtime the job's reason says where one was looked for."""
    for docker, words in (
        (f"unix://{tmp_path}/none.sock", "No such file"),
        ("ssh://host", "DOCKER_HOST: got 'ssh://host', expected unix:///path or tcp://host:port"),
    ):
        # A VM of its own each: the first may still be clearing its directory away.
        rig = RunnerRig(tmp_path / str(len(words)), docker=docker)
        rig.start(spec=spec_for("true"))
        end = await rig.end()
        assert isinstance(end, StartFailed)
        assert end.exit_code == 125
        assert words in end.reason
        assert IMAGE in end.reason


async def test_agent_and_shim_killed(rig: RunnerRig, podman: Podman) -> None:
    """A container whose shim was killed together with its agent is removed by the next agent;
    one that is kept is left alone."""
    rig.start(spec=spec_for("echo up; sleep 1000"))
    await rig.said("up")
    orphan = podman.docker.create(
        "zen-orphan",
        {"Image": IMAGE, "Cmd": ["x"], "Labels": {SHIM: _dead_shim(), VM: "another"}},
    )
    removed, faults = sweep(podman.address, "vm-2")
    assert (removed, faults) == ([orphan], [])
    [(_, labels)] = podman.docker.labelled(SHIM)
    assert labels["zen.job"] == "j1"


def test_agent_killed(podman: Podman, tmp_path: Path) -> None:
    """When an agent is killed, its shim removes the container."""
    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from tests.agent.containers.test_shim import spec_for\n"
        "from tests.agent.runner_rig import RunnerRig\n"
        "async def main():\n"
        f"    rig = RunnerRig(Path({str(tmp_path)!r}), docker={podman.address!r})\n"
        "    rig.start(spec=spec_for('echo up; sleep 1000'))\n"
        "    await rig.said('up')\n    print('up', flush=True)\n    await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"up\n"
        assert len(podman.docker.labelled(SHIM)) == 1
        agent.send_signal(signal.SIGKILL)
    _until_none(podman)


async def test_container_removed_by_somebody(rig: RunnerRig, podman: Podman) -> None:
    """If somebody removes the container, the job has ended."""
    rig.start(spec=spec_for("echo up; sleep 1000"))
    await rig.said("up")
    podman.docker.remove("zen-lease-1")
    end = await rig.end()
    assert end.exit_code == 137


async def test_runtime_started_anew(rig: RunnerRig, podman: Podman, tmp_path: Path) -> None:
    """A container outlives the API of its runtime: what it says then is heard, and its end."""
    count = "i=0; until [ -e /data/stop ]; do i=$((i+1)); echo $i; sleep 0.05; done; exit 5"
    socket = podman.home / "second.sock"
    with podman.api(socket) as address:
        rig.environ["DOCKER_HOST"] = address
        rig.start(spec=spec_for(count))
        await rig.said("3\n")
    heard = len(await rig.log())
    with podman.api(socket):

        async def hears_more() -> bool:
            return len(await rig.log()) > heard

        await until(hears_more, "what it said afterwards")
        (tmp_path / "data" / "stop").touch()
        assert (await rig.end()).exit_code == 5


def _until_none(podman: Podman) -> None:
    clock = SystemClock().monotonic
    give_up_at = clock() + DEADLINE_S
    while podman.docker.labelled(SHIM):
        assert clock() < give_up_at, "its container is removed"


def test_shims_are_told_apart() -> None:
    """A living shim's container is never a leftover; a dead one's is; on another machine only
    that of our own VM is."""
    assert not is_leftover({SHIM: whoami(), VM: "a"}, "a")
    assert is_leftover({SHIM: _dead_shim(), VM: "b"}, "a")
    elsewhere = "boot/ns/1/1"
    assert is_leftover({SHIM: elsewhere, VM: "a"}, "a")
    assert not is_leftover({SHIM: elsewhere, VM: "b"}, "a")
    machine, _, _ = whoami().rpartition("/")[0].rpartition("/")
    reused = f"{machine}/{os.getpid()}/{psutil.Process().create_time():.0f}"
    assert is_leftover({SHIM: reused, VM: "b"}, "a"), "a PID that came again"


def _dead_shim() -> str:
    machine, _, _ = whoami().rpartition("/")[0].rpartition("/")
    with subprocess.Popen(["true"]) as process:
        pid = process.pid
    return f"{machine}/{pid}/1"


def test_sweep_without_a_runtime_is_a_word(tmp_path: Path) -> None:
    """A runtime that does not answer is told, it stops nobody."""
    removed, [fault] = sweep(f"unix://{tmp_path}/none.sock", "vm")
    assert removed == []
    assert "none.sock" in fault


def test_usual_sockets(tmp_path: Path) -> None:
    """DOCKER_HOST first, then the usual sockets; where there is none, the words say so."""
    assert find({"DOCKER_HOST": "unix:///x.sock"}) == ("unix:///x.sock", "")
    (tmp_path / "podman").mkdir()
    (tmp_path / "podman" / "podman.sock").touch()
    address, _ = find({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert address.endswith(".sock")
