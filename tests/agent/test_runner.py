"""Jobs as real processes: how they start, what they get, how they end."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from agent.events import Exited, Progressed, Signal, Started, StartFailed
from core.clock import SystemClock
from core.messages import Progress
from core.sandbox import SandboxRules
from stores.base import LogPath
from tests.agent.runner_rig import RunnerRig, order_for
from tests.agent.vm import gone, until

pytestmark = pytest.mark.slow


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RunnerRig]:
    rig = RunnerRig(tmp_path)
    yield rig
    await rig.runner.close()


async def test_exit_zero(rig: RunnerRig) -> None:
    """A job that exits with 0 is started, then exited; its output is stored by then."""
    rig.start("echo out; echo err >&2")
    assert await rig.next() == Started("lease-1")
    assert await rig.next() == Exited("lease-1", 0, "exit code 0")
    assert await rig.log() == "out\nerr\n"


async def test_death_by_signal(rig: RunnerRig) -> None:
    """A signal is told by its name."""
    rig.start("kill -SEGV $$")
    assert await rig.end() == Exited("lease-1", 139, "killed by SIGSEGV")


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        (("no-such-program", "x"), 127, "command not found: no-such-program"),
        (("/etc/passwd", "x"), 126, "permission denied: /etc/passwd"),
        (("/", "x"), 126, "permission denied: /"),
        ((), 127, "the job has no command"),
    ],
)
async def test_not_started(
    rig: RunnerRig, command: tuple[str, ...], code: int, reason: str
) -> None:
    """What cannot be started is told apart from a job that failed by itself."""
    rig.start(*command)
    assert await rig.next() == StartFailed("lease-1", code, reason)


async def test_a_shell_that_finds_no_command_says_so(rig: RunnerRig) -> None:
    """Exit code 127 of a shell has its meaning beside it."""
    rig.start("no-such-program --now")
    ended = await rig.end()
    assert ended == Exited(
        "lease-1", 127, "exit code 127: the shell did not find a command, its log names it"
    )
    assert "no-such-program" in await rig.log()


async def test_words_are_not_a_shell(rig: RunnerRig) -> None:
    """Arguments reach the program as they are: no globbing, no expansion, no splitting."""
    words = ["$HOME", "*", "a b", "; exit 1", "é漢", ""]
    rig.start(sys.executable, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *words)
    assert (await rig.end()).exit_code == 0
    assert json.loads(await rig.log()) == words


async def test_environment(rig: RunnerRig) -> None:
    """The job gets a clean base, its own variables, and ours above all."""
    order = order_for("env -0")
    spec = replace(order.spec, environment={"CUDA_VISIBLE_DEVICES": "7", "MINE": "a\nb"})
    rig.start("env -0", spec=spec)
    await rig.end()
    env = dict(pair.split("=", 1) for pair in (await rig.log()).split("\0") if pair)
    store = rig.root / "store"
    expected = {
        "MINE": "a\nb",
        "CUDA_VISIBLE_DEVICES": "1,3",
        "ZEN_JOB_ID": "j1",
        "ZEN_ATTEMPT": "1",
        "ZEN_TENANT": "acme",
        "ZEN_CLUSTER": "4xl4",
        "ZEN_REGION": "us-central1",
        "ZEN_RANK": "0",
        "ZEN_WORLD_SIZE": "1",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29501",
        "ZEN_LEADER_ADDRESS": "127.0.0.1:29501",
        "ZEN_CHECKPOINT_DIR": str(store / "checkpoints/acme/u1/j1"),
        "ZEN_OUTPUT_DIR": str(rig.root / "vm/jobs/lease-1/outputs"),
        "HOME": "/root",
    }
    assert {name: env.get(name) for name in expected} == expected
    assert "SECRET_OF_AGENT" not in env
    assert "ZEN_RESUME_FROM" not in env


async def test_resume_only_with_a_checkpoint(rig: RunnerRig) -> None:
    """A later attempt is told where to resume once an earlier one has saved something."""
    script = 'echo "${ZEN_RESUME_FROM-none}"; touch "$ZEN_CHECKPOINT_DIR/step-1"'
    for attempt in (1, 2):
        rig.start(script, attempt=attempt, lease_id=f"lease-{attempt}")
        assert (await rig.end()).exit_code == 0
    second = await rig.store.read(LogPath("acme", "u1", "j1", 2), 0, 1000)
    assert await rig.log() == "none\n"
    assert second.data.decode() == f"{rig.root}/store/checkpoints/acme/u1/j1\n"


async def test_working_directory_is_private_and_removed(rig: RunnerRig) -> None:
    """Each attempt works in a new directory of its own, which is gone after the end."""
    rig.start("pwd; touch litter; ls")
    await rig.end()
    where, *files = (await rig.log()).split()
    assert files == ["litter"]
    assert Path(where).is_relative_to(rig.root / "vm")
    await until(lambda: not Path(where).exists(), "the directory is removed")


async def test_a_directory_of_the_machine_is_used_and_kept(rig: RunnerRig) -> None:
    """A process starts where its job says, and what it leaves there stays; a directory that is not
    there is named."""
    there = rig.root / "project"
    there.mkdir()
    spec = replace(order_for("pwd; touch litter").spec, working_dir=str(there))
    rig.start("pwd; touch litter", spec=spec)
    assert (await rig.end()).exit_code == 0
    assert (await rig.log()).split() == [str(there)]
    assert (there / "litter").exists()
    rig.start("true", spec=replace(spec, working_dir=str(there / "no")), lease_id="lease-2")
    ended = await rig.end()
    assert f"its directory {there}/no: No such file or directory" in ended.reason


async def test_standard_input_is_empty(rig: RunnerRig) -> None:
    """A job that reads its input sees the end of file, it does not hang."""
    rig.start("cat; echo done")
    await rig.end()
    assert await rig.log() == "done\n"


async def test_job_holds_no_handle_of_ours(rig: RunnerRig) -> None:
    """The job inherits its three standard streams and nothing else."""
    rig.start("ls /proc/self/fd; ls -l /proc/self/fd/0")
    await rig.end()
    lines = (await rig.log()).split("\n")
    assert lines[:4] == ["0", "1", "2", "3"]  # 3 is the directory that ls itself reads
    assert lines[4].endswith("/dev/null")


async def test_log_is_live(rig: RunnerRig) -> None:
    """Output is in the store while the job still runs."""
    rig.start("echo alive; exec sleep 100")
    await rig.said("alive")
    rig.runner.signal("lease-1", Signal.KILL)
    assert (await rig.end()).reason == "killed by SIGKILL"


async def test_log_cap(tmp_path: Path) -> None:
    """A job that prints without end is not stopped by it; its log ends with a line that says so."""
    rig = RunnerRig(tmp_path, sandbox=SandboxRules(log_max_mb=1))
    rig.start("yes | head -c 3000000; exit 4")
    assert (await rig.end()).exit_code == 4
    log = await rig.log()
    assert log.startswith("y\ny\n")
    full = "the log is full at 1000000 bytes (sandbox.log_max_mb), the rest is lost"
    assert log.endswith(f"[zen: {full}]\n")
    assert len(log) < 1_000_100
    await rig.runner.close()


async def test_a_status_file_has_a_cap(tmp_path: Path) -> None:
    """A status file without end is read up to its cap, and the log says so."""
    rig = RunnerRig(tmp_path, sandbox=SandboxRules(status_max_mb=1))
    rig.start("exec sleep 1000")
    assert isinstance(await rig.next(), Started)
    with (tmp_path / "vm/jobs/lease-1/status.jsonl").open("wb") as file:
        file.truncate(10**12)
    kept = rig.runner._jobs["lease-1"]
    await until(lambda: bool(kept.tail and kept.tail.note), "the cap is reached")
    rig.runner.signal("lease-1", Signal.KILL)
    await rig.end()
    assert "the status file was read up to 1 MB (sandbox.status_max_mb)" in await rig.log()
    await rig.runner.close()


async def test_a_fifo_for_a_status_file_holds_nobody_up(tmp_path: Path) -> None:
    """A job that puts a FIFO, a link or a directory where its status file was ends as any other."""
    for number, made in enumerate(("mkfifo", "ln -s /dev/zero", "ln -s /etc/passwd", "mkdir")):
        rig = RunnerRig(tmp_path / str(number))
        rig.start(f"rm $ZEN_STATUS_FILE; {made} $ZEN_STATUS_FILE; sleep 1.2; exit 3")
        assert isinstance(await rig.next(), Started)
        assert await rig.next() == Exited("lease-1", 3, "exit code 3")
        await rig.runner.close()


async def test_lost_log_store_does_not_stop_the_job(tmp_path: Path) -> None:
    """Without a place for its log a job runs all the same, also one that prints a lot."""
    rig = RunnerRig(tmp_path)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "logs").write_text("in the way")
    rig.start("yes | head -c 1000000; exit 5")
    assert (await rig.end()).exit_code == 5
    await rig.runner.close()


async def test_status_file(rig: RunnerRig) -> None:
    """Progress and checkpoints come from the status file; the last line counts before the exit."""
    rig.start(
        'echo \'{"step": 1, "total": 10}\' >> $ZEN_STATUS_FILE; echo garbage >> $ZEN_STATUS_FILE;'
        'echo \'{"step": 2, "total": 10, "checkpoint": true}\' >> $ZEN_STATUS_FILE'
    )
    assert isinstance(await rig.next(), Started)
    assert await rig.next() == Progressed("lease-1", Progress(2, 10), 2)
    assert isinstance(await rig.next(), Exited)


async def test_kill_takes_deserters_too(rig: RunnerRig) -> None:
    """SIGKILL also ends descendants that went into sessions of their own."""
    rig.start("setsid sh -c 'echo $$; exec sleep 1000' & wait")
    await rig.said("\n")
    deserter = int((await rig.log()).split()[0])
    rig.runner.signal("lease-1", Signal.KILL)
    assert (await rig.end()).exit_code == 137
    assert gone(deserter)


async def test_exit_leaves_nothing_behind(rig: RunnerRig) -> None:
    """What a job leaves running in the background ends with it: the slots are free again."""
    rig.start("setsid sleep 1000 & echo $!; exit 0")
    assert (await rig.end()).exit_code == 0
    await until(lambda: not _alive_by_args(rig.root), "no process of the job is left")
    assert gone(int((await rig.log()).strip()))


async def test_freeze_stops_computing(rig: RunnerRig) -> None:
    """A frozen job and its children use no processor time; after the thaw they do again."""
    loop = "while :; do :; done"
    rig.start(f"setsid sh -c '{loop}' & echo $! $$; {loop}")
    await rig.said("\n")
    burners = [psutil.Process(int(pid)) for pid in (await rig.log()).split()]
    await until(lambda: all(_used(p) > 0.02 for p in burners), "they compute")
    rig.runner.signal("lease-1", Signal.STOP)
    stopped = psutil.STATUS_STOPPED
    await until(lambda: all(p.status() == stopped for p in burners), "they stand still")
    before = [_used(p) for p in burners]
    await asyncio.sleep(0.3)  # not a wait but the span that is measured
    assert [_used(p) for p in burners] == before
    rig.runner.signal("lease-1", Signal.CONT)
    goal = [used + 0.02 for used in before]
    await until(lambda: all(_used(p) > g for p, g in zip(burners, goal, strict=True)), "they go on")
    rig.runner.signal("lease-1", Signal.KILL)
    await rig.end()


async def test_job_freezes_when_nobody_renews_it(rig: RunnerRig) -> None:
    """Past its moment the shim freezes the job by itself; a later moment lets it go on."""
    now = SystemClock().monotonic
    rig.runner.renew(now() + 30)
    rig.start("echo $$; exec sleep 1000")
    await rig.said("\n")
    job = psutil.Process(int((await rig.log()).strip()))
    rig.runner.renew(now() + 0.2)
    await until(lambda: job.status() == psutil.STATUS_STOPPED, "it stands still")
    rig.runner.renew(now() + 30)
    await until(lambda: job.status() != psutil.STATUS_STOPPED, "it goes on")
    rig.runner.signal("lease-1", Signal.KILL)
    await rig.end()


async def test_renewing_does_not_lift_a_freeze_that_was_ordered(rig: RunnerRig) -> None:
    """STOP holds until CONT, whatever the clock says; and CONT alone does not suffice past it."""
    now = SystemClock().monotonic
    rig.start("echo $$; exec sleep 1000")
    await rig.said("\n")
    job = psutil.Process(int((await rig.log()).strip()))
    rig.runner.renew(now() - 1)
    await until(lambda: job.status() == psutil.STATUS_STOPPED, "it stands still")
    rig.runner.signal("lease-1", Signal.STOP)
    rig.runner.renew(now() + 30)
    # The shim obeys in order: once it has passed TERM on, it has read what came before.
    rig.runner.signal("lease-1", Signal.TERM)
    await until(lambda: _pending(job.pid, signal.SIGTERM), "TERM waits for the thaw")
    assert job.status() == psutil.STATUS_STOPPED
    rig.runner.signal("lease-1", Signal.CONT)
    assert (await rig.end()).reason == "killed by SIGTERM"


async def test_killed_shim_is_an_end(rig: RunnerRig) -> None:
    """If somebody kills the shim, the job's whole group dies with it and its end is told."""
    rig.start("sleep 1000 & echo $$ $!; wait")
    assert isinstance(await rig.next(), Started)
    await rig.said("\n")
    pids = [int(pid) for pid in (await rig.log()).split()]
    shim = psutil.Process(pids[0]).parent()
    assert shim is not None
    shim.send_signal(signal.SIGKILL)
    end = await rig.end()
    assert (end.exit_code, end.reason) == (137, "the process that kept the job was killed")
    await until(lambda: all(gone(pid) for pid in pids), "all are dead")


async def test_two_jobs_at_once(rig: RunnerRig) -> None:
    """Jobs run side by side; a signal reaches only its own."""
    rig.start("sleep 1000", lease_id="a")
    rig.start("exit 0", lease_id="b", attempt=2)
    first = await rig.end()
    assert (first.lease_id, first.exit_code) == ("b", 0)
    rig.runner.signal("a", Signal.KILL)
    assert (await rig.end()).lease_id == "a"


async def test_close_kills(rig: RunnerRig) -> None:
    """Closing the runner ends every job."""
    rig.start("echo $$; exec sleep 1000")
    await rig.said("\n")
    await rig.runner.close()
    assert gone(int((await rig.log()).strip()))


def _pending(pid: int, number: int) -> bool:
    """Whether a signal is waiting for the process."""
    words = Path(f"/proc/{pid}/status").read_text(encoding="ascii").split()
    return bool(int(words[words.index("ShdPnd:") + 1], 16) & 1 << (number - 1))


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _alive_by_args(root: Path) -> bool:
    """A process that works in a directory below root."""
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(root)):
                return True
        except (psutil.Error, OSError):
            continue  # not ours, or already gone
    return False
