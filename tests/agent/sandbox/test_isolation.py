"""What a job can reach: real jobs, shut in as on a VM whose agent is root."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.environment import hand_over
from agent.events import Exited, Signal, Started, StartFailed
from agent.sandbox import isolation
from agent.sandbox.isolation import Isolation, find_isolation
from core.messages import Size
from core.sandbox import SandboxRules
from stores.base import LogPath
from tests.agent.runner_rig import RunnerRig, order_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: jobs get users of their own"),
]


def isolated(root: Path, **rules: int) -> RunnerRig:
    (root / "vm").mkdir(parents=True, exist_ok=True)
    found = find_isolation(SandboxRules(**rules), root / "vm", "vm-test", own_machine=False)
    assert found.uid_key, found.notes
    return RunnerRig(root, isolation=found)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RunnerRig]:
    rig = isolated(tmp_path)
    yield rig
    await rig.runner.close()


async def said(rig: RunnerRig, script: str, **changes: object) -> str:
    """What the script prints; it has to end well."""
    rig.start(script, **changes)
    end = await rig.end()
    log = await rig.log()
    assert end.exit_code == 0, (end.reason, log)
    return log


async def test_no_rights_and_no_groups(rig: RunnerRig) -> None:
    """A user of its own without groups, capabilities or a way to more."""
    status = await said(rig, "cat /proc/self/status")
    words = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(words["Uid"].split()[0]) >= SandboxRules().uid_first
    assert len(set(words["Uid"].split() + words["Gid"].split())) == 1
    assert words["Groups"].strip() == ""
    assert words["NoNewPrivs"] == "1"
    assert {int(words[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}


async def test_its_own_places_work(rig: RunnerRig) -> None:
    """It writes where it may, opens its output by name, and its outputs are stored."""
    script = """set -e
        echo 1 > $ZEN_OUTPUT_DIR/r; echo 2 > $ZEN_CHECKPOINT_DIR/c; echo 3 > $HOME/h
        echo 4 > /tmp/t; cat $TMPDIR/t; echo 5 > /dev/shm/s; echo 6 > /dev/stdout
        echo '{"step": 7}' >> $ZEN_STATUS_FILE; test "$(pwd)" = "$HOME"
        ln -s $ZEN_OUTPUT_DIR/r $ZEN_OUTPUT_DIR/latest"""
    assert await said(rig, script) == "4\n6\n"
    stored = rig.root / "store/artifacts/acme/u1/j1/1"
    assert len([path for path in stored.rglob("*") if path.is_file()]) == 3
    assert (rig.root / "store/checkpoints/acme/u1/j1/c").read_text() == "2\n"
    assert not Path("/dev/shm/s").exists()  # noqa: ASYNC240
    assert not Path("/tmp/t").exists()  # noqa: ASYNC240


async def test_the_agent_is_out_of_reach(rig: RunnerRig) -> None:
    """The job neither sees nor signals the agent and its shim, and reads no file of theirs."""
    (rig.root / "secret").write_text("not yours")
    tries = [
        f"kill -9 {os.getpid()}",
        "kill -9 $PPID",
        f"cat /proc/{os.getpid()}/environ",
        f"cat {rig.root}/secret",
        "cat /etc/shadow",
        "ls ~root/.ssh",
        "mount -t tmpfs none /mnt",
        "echo x > ../escape",
        "mv ../outputs ../moved",
        "rm -f $ZEN_STATUS_FILE",
        "mkdir /run/zen/other",
        "su -c true",
    ]
    script = "\n".join(f"if ({each}) 2>/dev/null; then echo 'worked: {each}'; fi" for each in tries)
    assert await said(rig, script) == ""
    own = await said(rig, "ls /proc | grep -c '^[0-9]'", lease_id="lease-2", attempt=2)
    assert own == ""  # the log of attempt 1: the second has its own
    log = await rig.store.read(LogPath("acme", "u1", "j1", 2), 0, 100)
    assert int(log.data) <= 5, "its own processes alone"


async def test_neighbours_do_not_meet(rig: RunnerRig) -> None:
    """Another job's environment, files and processes are not there; the members of a gang and the
    attempts of one job are one user."""
    first = order_for("exec sleep 1000")
    rig.start("exec sleep 1000", spec=replace(first.spec, environment={"TOKEN": "hunter2"}))
    assert await rig.next() == Started("lease-1")
    pid = rig.runner._jobs["lease-1"].pid
    other = replace(first.spec, job_id="j2")
    places = rig.runner._jobs["lease-1"].places
    script = f"""
        grep -aq hunter2 /proc/[0-9]*/environ && echo read
        test -e /proc/{pid} && echo seen
        kill -0 {pid} 2>/dev/null && echo signalled
        ls {shlex.quote(str(places.base))} 2>/dev/null && echo listed
        find / -xdev -uid {1 + SandboxRules().uid_first} 2>/dev/null | head -1
        exit 0"""
    rig.start(script, spec=replace(other, command=(script,)), lease_id="lease-2")
    assert await rig.next() == Started("lease-2")
    assert await rig.next() == Exited("lease-2", 0, "exit code 0")
    log = await rig.store.read(LogPath("acme", "u1", "j2", 1), 0, 1000)
    assert log.data == b""
    rig.runner.signal("lease-1", Signal.KILL)
    assert (await rig.end()).reason == "killed by SIGKILL"


def test_users() -> None:
    """One per job and VM: the same for its attempts and members, another for another job, also in a
    range that is too small; None without a key."""
    isolation = Isolation(SandboxRules(uid_count=3), b"key")
    first = order_for("x")
    again = replace(first, lease_id="b", attempt=2)
    member = replace(first, lease_id="c", rank=1, spec=replace(first.spec, job_id="j1.1"))
    same = {isolation.user_for(order) for order in (first, again, member)}
    assert len(same) == 1
    others = [
        isolation.user_for(
            replace(first, lease_id=f"o{n}", spec=replace(first.spec, job_id=f"o{n}"))
        )
        for n in range(2)
    ]
    assert len({*same, *others}) == 3
    strange = replace(first, lease_id="z", spec=replace(first.spec, tenant_id="other"))
    with pytest.raises(OSError, match="uid_count"):
        isolation.user_for(strange)
    isolation.release("o0")
    assert isolation.user_for(strange) == others[0]
    assert Isolation().user_for(first) is None


def test_the_scheduler_draws_the_user() -> None:
    """The members of a gang have the same user on all VMs, whatever the VMs' own keys are."""
    first = replace(order_for("x"), user_draw=12_345)
    member = replace(first, lease_id="c", rank=1, spec=replace(first.spec, job_id="j1.1"))
    rules = SandboxRules()
    keys = (b"a", b"b")
    users = [Isolation(rules, key).user_for(each) for key in keys for each in (first, member)]
    assert set(users) == {rules.uid_first + 12_345}


async def test_checkpoints_change_hands(rig: RunnerRig) -> None:
    """What an attempt on another VM left belongs to the next one; links are not followed."""
    kept = rig.root / "store/checkpoints/acme/u1/j1"
    (kept / "deep").mkdir(parents=True)
    (kept / "deep" / "step-1").write_text("1")
    (rig.root / "secret").write_text("not yours")
    (kept / "link").symlink_to(rig.root / "secret")
    hand_over(kept, 12345)
    script = "set -e; echo 2 >> $ZEN_RESUME_FROM/deep/step-1; cat $ZEN_CHECKPOINT_DIR/deep/step-1"
    rig.start(script, attempt=2)
    assert (await rig.end()).exit_code == 0
    assert (kept / "deep" / "step-1").read_text() == "12\n"
    assert (rig.root / "secret").stat().st_uid == 0
    assert (kept / "link").lstat().st_uid >= SandboxRules().uid_first


async def test_a_size_file_is_for_reading(rig: RunnerRig) -> None:
    """An elastic job reads its size, and cannot put something else there."""
    script = """cat $ZEN_SIZE_FILE > $ZEN_OUTPUT_DIR/size && grep -c generation $ZEN_SIZE_FILE
        (echo x > $ZEN_SIZE_FILE; ln -s /etc $(dirname $ZEN_SIZE_FILE)/x) 2>/dev/null || echo no"""
    assert await said(rig, script, size=Size(1, 1, 2, ())) == "1\nno\n"


async def test_memory_is_limited(tmp_path: Path) -> None:
    """By the kernel where it can be, else by looking: the reason names the setting."""
    eat = "exec python3 -c 'import time; x = bytearray(300 << 20); time.sleep(20)'"
    limited, watched = isolated(tmp_path / "a"), RunnerRig(tmp_path / "b")
    for rig in (limited, watched):
        spec = replace(order_for(eat).spec, memory_mb=100)
        rig.start(eat, spec=spec)
        end = await rig.end()
        assert (end.exit_code, end.reason) == (
            137,
            "killed by SIGKILL: out of memory: memory_mb is 100",
        )
        rig.start("true", spec=replace(spec, command=("true",)), lease_id="lease-2")
        assert (await rig.end()).exit_code == 0
        await rig.runner.close()


async def test_processes_are_limited(tmp_path: Path) -> None:
    """A job that forks without end meets its limit, and the machine goes on."""
    rig = isolated(tmp_path, pids_max=40)
    script = """import os, time
n = 0
try:
    while n < 1000:
        if not os.fork():
            time.sleep(100)
        n += 1
except OSError as error:
    print(n, error.strerror)
"""
    assert "Resource temporarily unavailable" in await said(
        rig, f"python3 -c {shlex.quote(script)}"
    )
    await rig.runner.close()


@pytest.fixture
def no_mounts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """A root that may not mount, as in many containers. What is in the list cannot be done too."""
    open_place = Path(tempfile.mkdtemp(prefix="zen-jobs-", dir="/var/tmp"))
    monkeypatch.setattr(isolation, "OPEN", open_place)
    refused: list[object] = []
    tried = isolation._try

    def attempt(
        rules: SandboxRules, mounts: tuple[isolation.Mount, ...] | None, vm_dir: Path
    ) -> str:
        refused_too = mounts is not None or bool(refused)
        return "not permitted" if refused_too else tried(rules, mounts, vm_dir)

    monkeypatch.setattr(isolation, "_try", attempt)
    yield refused
    shutil.rmtree(open_place)


async def test_no_job_is_root_where_nothing_can_be_mounted(
    no_mounts: list[object], tmp_path: Path
) -> None:
    """It has a user of its own, also where that user could not reach the agent's directory."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    rig = isolated(closed)
    script = f"""set -e
        echo 1 > $ZEN_OUTPUT_DIR/r; echo 2 > $ZEN_CHECKPOINT_DIR/c; cat $ZEN_CHECKPOINT_DIR/c
        ! ls {closed}; id -u"""
    *_, uid = (await said(rig, script)).split()
    assert int(uid) >= SandboxRules().uid_first
    assert (rig.root / "store/artifacts/acme/u1/j1/1").is_dir()
    await rig.runner.close()


async def test_no_job_runs_where_it_would_be_root(no_mounts: list[object], tmp_path: Path) -> None:
    """The agent says why, and is not ready; a start that comes all the same is refused."""
    no_mounts.append("users")
    found = find_isolation(SandboxRules(), tmp_path, "vm-test", own_machine=False)
    assert "would run as root" in found.refuses
    rig = RunnerRig(tmp_path, isolation=found)
    rig.start("id -u")
    end = await rig.end()
    assert isinstance(end, StartFailed)
    assert "would run as root" in end.reason


def test_a_machine_of_its_user(tmp_path: Path) -> None:
    """In a static pool jobs work for the people of the machine: no users of jobs' own."""
    found = find_isolation(SandboxRules(), tmp_path, "vm", own_machine=True)
    assert found.uid_key == b""
    if os.geteuid() != 0:
        assert (found.mounts, found.accounts) == (None, None)
        assert any("agent's user" in note for note in found.notes)
    else:
        assert found.accounts is not None
