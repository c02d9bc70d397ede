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
from stores.base import LogPath
from tests.agent.box import Yard, order_for
from tests.agent.vm import gone, until

pytestmark = pytest.mark.slow


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    yard = Yard(tmp_path)
    yield yard
    await yard.runner.close()


async def test_exit_zero(yard: Yard) -> None:
    """A job that exits with 0 is started, then exited; its output is stored by then."""
    yard.start("echo out; echo err >&2")
    assert await yard.next() == Started("lease-1")
    assert await yard.next() == Exited("lease-1", 0, "exit code 0")
    assert await yard.log() == "out\nerr\n"


async def test_death_by_signal(yard: Yard) -> None:
    """A signal is told by its name."""
    yard.start("kill -SEGV $$")
    assert await yard.end() == Exited("lease-1", 139, "killed by SIGSEGV")


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        (("no-such-program", "x"), 127, "command not found: no-such-program"),
        (("/etc/passwd", "x"), 126, "permission denied: /etc/passwd"),
        (("/", "x"), 126, "permission denied: /"),
        ((), 127, "the job has no command"),
    ],
)
async def test_not_started(yard: Yard, command: tuple[str, ...], code: int, reason: str) -> None:
    """What cannot be started is told apart from a job that failed by itself."""
    yard.start(*command)
    assert await yard.next() == StartFailed("lease-1", code, reason)


async def test_a_shell_that_finds_no_command_says_so(yard: Yard) -> None:
    """Exit code 127 of a shell has its meaning beside it."""
    yard.start("no-such-program --now")
    ended = await yard.end()
    assert ended == Exited(
        "lease-1", 127, "exit code 127: the shell did not find a command, its log names it"
    )
    assert "no-such-program" in await yard.log()


async def test_words_are_not_a_shell(yard: Yard) -> None:
    """Arguments reach the program as they are: no globbing, no expansion, no splitting."""
    words = ["$HOME", "*", "a b", "; exit 1", "é漢", ""]
    yard.start(sys.executable, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *words)
    assert (await yard.end()).exit_code == 0
    assert json.loads(await yard.log()) == words


async def test_environment(yard: Yard) -> None:
    """The job gets a clean base, its own variables, and ours above all."""
    order = order_for("env -0")
    spec = replace(order.spec, environment={"CUDA_VISIBLE_DEVICES": "7", "MINE": "a\nb"})
    yard.start("env -0", spec=spec)
    await yard.end()
    env = dict(pair.split("=", 1) for pair in (await yard.log()).split("\0") if pair)
    store = yard.root / "store"
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
        "ZEN_OUTPUT_DIR": str(yard.root / "vm/jobs/lease-1/outputs"),
        "HOME": "/root",
    }
    assert {name: env.get(name) for name in expected} == expected
    assert "SECRET_OF_AGENT" not in env
    assert "ZEN_RESUME_FROM" not in env


async def test_resume_only_with_a_checkpoint(yard: Yard) -> None:
    """A later attempt is told where to resume once an earlier one has saved something."""
    script = 'echo "${ZEN_RESUME_FROM-none}"; touch "$ZEN_CHECKPOINT_DIR/step-1"'
    for attempt in (1, 2):
        yard.start(script, attempt=attempt, lease_id=f"lease-{attempt}")
        assert (await yard.end()).exit_code == 0
    second = await yard.store.read(LogPath("acme", "u1", "j1", 2), 0, 1000)
    assert await yard.log() == "none\n"
    assert second.data.decode() == f"{yard.root}/store/checkpoints/acme/u1/j1\n"


async def test_working_directory_is_private_and_removed(yard: Yard) -> None:
    """Each attempt works in a new directory of its own, which is gone after the end."""
    yard.start("pwd; touch litter; ls")
    await yard.end()
    where, *files = (await yard.log()).split()
    assert files == ["litter"]
    assert Path(where).is_relative_to(yard.root / "vm")
    await until(lambda: not Path(where).exists(), "the directory is removed")


async def test_a_directory_of_the_machine_is_used_and_kept(yard: Yard) -> None:
    """A process starts where its job says, and what it leaves there stays; a directory that is not
    there is named."""
    there = yard.root / "project"
    there.mkdir()
    spec = replace(order_for("pwd; touch litter").spec, working_dir=str(there))
    yard.start("pwd; touch litter", spec=spec)
    assert (await yard.end()).exit_code == 0
    assert (await yard.log()).split() == [str(there)]
    assert (there / "litter").exists()
    yard.start("true", spec=replace(spec, working_dir=str(there / "no")), lease_id="lease-2")
    ended = await yard.end()
    assert f"its directory {there}/no: No such file or directory" in ended.reason


async def test_standard_input_is_empty(yard: Yard) -> None:
    """A job that reads its input sees the end of file, it does not hang."""
    yard.start("cat; echo done")
    await yard.end()
    assert await yard.log() == "done\n"


async def test_job_holds_no_handle_of_ours(yard: Yard) -> None:
    """The job inherits its three standard streams and nothing else."""
    yard.start("ls /proc/self/fd; ls -l /proc/self/fd/0")
    await yard.end()
    lines = (await yard.log()).split("\n")
    assert lines[:4] == ["0", "1", "2", "3"]  # 3 is the directory that ls itself reads
    assert lines[4].endswith("/dev/null")


async def test_log_is_live(yard: Yard) -> None:
    """Output is in the store while the job still runs."""
    yard.start("echo alive; exec sleep 100")
    await yard.said("alive")
    yard.runner.signal("lease-1", Signal.KILL)
    assert (await yard.end()).reason == "killed by SIGKILL"


async def test_log_cap(tmp_path: Path) -> None:
    """A job that prints without end is not stopped by it; its log ends with a line that says so."""
    yard = Yard(tmp_path, log_cap=100_000)
    yard.start("yes | head -c 3000000; exit 4")
    assert (await yard.end()).exit_code == 4
    log = await yard.log()
    assert log.startswith("y\ny\n")
    assert log.endswith("[zen: the log is full at 100000 bytes, the rest is lost]\n")
    assert len(log) < 100_100
    await yard.runner.close()


async def test_lost_log_store_does_not_stop_the_job(tmp_path: Path) -> None:
    """Without a place for its log a job runs all the same, also one that prints a lot."""
    yard = Yard(tmp_path)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "logs").write_text("in the way")
    yard.start("yes | head -c 1000000; exit 5")
    assert (await yard.end()).exit_code == 5
    await yard.runner.close()


async def test_status_file(yard: Yard) -> None:
    """Progress and checkpoints come from the status file; the last line counts before the exit."""
    yard.start(
        'echo \'{"step": 1, "total": 10}\' >> $ZEN_STATUS_FILE; echo garbage >> $ZEN_STATUS_FILE;'
        'echo \'{"step": 2, "total": 10, "checkpoint": true}\' >> $ZEN_STATUS_FILE'
    )
    assert isinstance(await yard.next(), Started)
    assert await yard.next() == Progressed("lease-1", Progress(2, 10), 2)
    assert isinstance(await yard.next(), Exited)


async def test_kill_takes_deserters_too(yard: Yard) -> None:
    """SIGKILL also ends descendants that went into sessions of their own."""
    yard.start("setsid sh -c 'echo $$; exec sleep 1000' & wait")
    await yard.said("\n")
    deserter = int((await yard.log()).split()[0])
    yard.runner.signal("lease-1", Signal.KILL)
    assert (await yard.end()).exit_code == 137
    assert gone(deserter)


async def test_exit_leaves_nothing_behind(yard: Yard) -> None:
    """What a job leaves running in the background ends with it: the slots are free again."""
    yard.start("setsid sleep 1000 & echo $!; exit 0")
    assert (await yard.end()).exit_code == 0
    await until(lambda: not _alive_by_args(yard.root), "no process of the job is left")
    assert gone(int((await yard.log()).strip()))


async def test_freeze_stops_computing(yard: Yard) -> None:
    """A frozen job and its children use no processor time; after the thaw they do again."""
    loop = "while :; do :; done"
    yard.start(f"setsid sh -c '{loop}' & echo $! $$; {loop}")
    await yard.said("\n")
    burners = [psutil.Process(int(pid)) for pid in (await yard.log()).split()]
    await until(lambda: all(_used(p) > 0.02 for p in burners), "they compute")
    yard.runner.signal("lease-1", Signal.STOP)
    stopped = psutil.STATUS_STOPPED
    await until(lambda: all(p.status() == stopped for p in burners), "they stand still")
    before = [_used(p) for p in burners]
    await asyncio.sleep(0.3)  # not a wait but the span that is measured
    assert [_used(p) for p in burners] == before
    yard.runner.signal("lease-1", Signal.CONT)
    goal = [used + 0.02 for used in before]
    await until(lambda: all(_used(p) > g for p, g in zip(burners, goal, strict=True)), "they go on")
    yard.runner.signal("lease-1", Signal.KILL)
    await yard.end()


async def test_job_freezes_when_nobody_renews_it(yard: Yard) -> None:
    """Past its moment the shim freezes the job by itself; a later moment lets it go on."""
    now = SystemClock().monotonic
    yard.runner.renew(now() + 30)
    yard.start("echo $$; exec sleep 1000")
    await yard.said("\n")
    job = psutil.Process(int((await yard.log()).strip()))
    yard.runner.renew(now() + 0.2)
    await until(lambda: job.status() == psutil.STATUS_STOPPED, "it stands still")
    yard.runner.renew(now() + 30)
    await until(lambda: job.status() != psutil.STATUS_STOPPED, "it goes on")
    yard.runner.signal("lease-1", Signal.KILL)
    await yard.end()


async def test_renewing_does_not_lift_a_freeze_that_was_ordered(yard: Yard) -> None:
    """STOP holds until CONT, whatever the clock says; and CONT alone does not suffice past it."""
    now = SystemClock().monotonic
    yard.start("echo $$; exec sleep 1000")
    await yard.said("\n")
    job = psutil.Process(int((await yard.log()).strip()))
    yard.runner.renew(now() - 1)
    await until(lambda: job.status() == psutil.STATUS_STOPPED, "it stands still")
    yard.runner.signal("lease-1", Signal.STOP)
    yard.runner.renew(now() + 30)
    # The shim obeys in order: once it has passed TERM on, it has read what came before.
    yard.runner.signal("lease-1", Signal.TERM)
    await until(lambda: _pending(job.pid, signal.SIGTERM), "TERM waits for the thaw")
    assert job.status() == psutil.STATUS_STOPPED
    yard.runner.signal("lease-1", Signal.CONT)
    assert (await yard.end()).reason == "killed by SIGTERM"


async def test_killed_shim_is_an_end(yard: Yard) -> None:
    """If somebody kills the shim, the job's whole group dies with it and its end is told."""
    yard.start("sleep 1000 & echo $$ $!; wait")
    assert isinstance(await yard.next(), Started)
    await yard.said("\n")
    pids = [int(pid) for pid in (await yard.log()).split()]
    shim = psutil.Process(pids[0]).parent()
    assert shim is not None
    shim.send_signal(signal.SIGKILL)
    end = await yard.end()
    assert (end.exit_code, end.reason) == (137, "the process that kept the job was killed")
    await until(lambda: all(gone(pid) for pid in pids), "all are dead")


async def test_two_jobs_at_once(yard: Yard) -> None:
    """Jobs run side by side; a signal reaches only its own."""
    yard.start("sleep 1000", lease_id="a")
    yard.start("exit 0", lease_id="b", attempt=2)
    first = await yard.end()
    assert (first.lease_id, first.exit_code) == ("b", 0)
    yard.runner.signal("a", Signal.KILL)
    assert (await yard.end()).lease_id == "a"


async def test_close_kills(yard: Yard) -> None:
    """Closing the runner ends every job."""
    yard.start("echo $$; exec sleep 1000")
    await yard.said("\n")
    await yard.runner.close()
    assert gone(int((await yard.log()).strip()))


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
