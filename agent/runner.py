"""Runs jobs as processes: one keeper per job, its socket, its log, its status file."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from agent.environment import Places, argv_for, environment_for, places_for
from agent.journal import Journal
from agent.logs import CHUNK, LOG_CAP, carry_log
from agent.status import StatusTail
from agent.words import Exited, Input, Progressed, Signal, Started, StartFailed
from core.messages import StartJob
from stores.base import LogPath, Store

_KEEPER = Path(__file__).with_name("keeper.py")
STATUS_EVERY_S = 0.5
LOG_WAIT_S = 10.0
"""How long an exit waits for the rest of the log: whoever sees the end should see its log."""
CLOSE_WAIT_S = 5.0


@dataclass(slots=True)
class _Kept:
    """A job and its keeper."""

    order: StartJob
    places: Places
    orders: list[bytes] = field(default_factory=list)
    """Signals that came before the keeper did."""
    to_keeper: asyncio.StreamWriter | None = None
    group: int = 0
    """The job's process group once it runs."""
    task: asyncio.Task[None] | None = None


class ProcessRunner:
    """Answers through `post`: Started or StartFailed, then Exited, with Progressed in between."""

    def __init__(
        self,
        vm_dir: Path,
        store: Store,
        post: Callable[[Input], None],
        journal: Journal,
        *,
        log_cap: int = LOG_CAP,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._vm_dir, self._store, self._post, self._journal = vm_dir, store, post, journal
        self._log_cap = log_cap
        self._environment = os.environ if environment is None else environment
        self._jobs: dict[str, _Kept] = {}
        self._until: float | None = None

    def start(self, order: StartJob) -> None:
        """Begin to run it."""
        kept = _Kept(order, places_for(order, self._vm_dir, self._store))
        self._jobs[order.lease_id] = kept
        kept.task = asyncio.create_task(self._run(kept), name=f"job {order.lease_id}")

    def signal(self, lease_id: str, name: Signal) -> None:
        """Tell the job's processes; nothing if they are gone."""
        kept = self._jobs.get(lease_id)
        if kept is None:
            return
        _tell(kept, f"{name}\n".encode())

    def renew(self, until: float) -> None:
        """Jobs may compute until then, even if we hang: their keepers watch the same clock."""
        self._until = until
        for kept in self._jobs.values():
            _tell(kept, f"UNTIL {until}\n".encode())

    async def close(self) -> None:
        """Closing the sockets is what kills: a keeper whose agent is gone ends its job."""
        tasks = [kept.task for kept in self._jobs.values() if kept.task is not None]
        for kept in self._jobs.values():
            if kept.to_keeper is not None:
                kept.to_keeper.close()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_WAIT_S)
            for task in late:
                task.cancel()

    async def _run(self, kept: _Kept) -> None:
        lease_id = kept.order.lease_id
        try:
            ended: Input = await self._keep(kept)
        except OSError as error:
            self._journal.error("job could not be kept", lease_id=lease_id, reason=str(error))
            ended = StartFailed(lease_id, 126, f"the VM could not start it: {error}")
        finally:
            del self._jobs[lease_id]
        self._post(ended)
        await asyncio.to_thread(shutil.rmtree, kept.places.base, ignore_errors=True)

    async def _keep(self, kept: _Kept) -> Input:
        order = kept.order
        argv = argv_for(order)
        if not argv:
            return StartFailed(order.lease_id, 127, "the job has no command")
        await asyncio.to_thread(kept.places.make)
        mine, log_fd, process = self._spawn()
        output = await _pipe_reader(log_fd)
        reader, writer = await asyncio.open_connection(sock=mine)
        log = asyncio.create_task(self._carry(order, output))
        try:
            writer.write(self._brief(order, argv, kept.places))
            writer.writelines(kept.orders)
            kept.to_keeper = writer
            ended = await self._follow(kept, reader, argv)
            await asyncio.wait([log], timeout=LOG_WAIT_S)
            return ended
        finally:
            log.cancel()
            writer.close()
            await asyncio.to_thread(process.wait)

    def _spawn(self) -> tuple[socket.socket, int, subprocess.Popen[bytes]]:
        mine, theirs = socket.socketpair()
        log_out, log_in = os.pipe()
        words = [str(theirs.fileno()), str(log_in), str(os.getpid())]
        try:
            # Popen and not asyncio's: that one needs a thread per child, and the socket already
            # tells us when the keeper ends.
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_KEEPER), *words],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), log_in),
            )
        except OSError:
            mine.close()
            os.close(log_out)
            raise
        finally:
            theirs.close()
            os.close(log_in)
        return mine, log_out, process

    def _brief(self, order: StartJob, argv: list[str], places: Places) -> bytes:
        brief = {
            "argv": argv,
            "env": environment_for(order, places, self._environment),
            "cwd": str(places.work),
            "until": self._until,
        }
        return json.dumps(brief).encode() + b"\n"

    async def _carry(self, order: StartJob, output: asyncio.StreamReader) -> None:
        spec = order.spec
        path = LogPath(spec.tenant_id, spec.user_id, spec.job_id, order.attempt)
        await carry_log(output, self._store, path, self._log_cap, self._journal)

    async def _follow(self, kept: _Kept, reader: asyncio.StreamReader, argv: list[str]) -> Input:
        lease_id = kept.order.lease_id
        first = await _words(reader)
        if "failed" in first:
            return _start_failed(lease_id, argv[0], first)
        if "started" in first:
            self._post(Started(lease_id))
            kept.group = int(str(first["started"]))
        tail = StatusTail(kept.places.status_file)
        following = asyncio.create_task(self._follow_status(lease_id, tail))
        last = await _words(reader)
        following.cancel()
        self._look(lease_id, tail)
        if not last:
            _kill_group(kept.group)
        return _exited(lease_id, last)

    async def _follow_status(self, lease_id: str, tail: StatusTail) -> None:
        while True:
            await asyncio.sleep(STATUS_EVERY_S)
            self._look(lease_id, tail)

    def _look(self, lease_id: str, tail: StatusTail) -> None:
        status = tail.look()
        if status.progress is not None or status.checkpoint_step is not None:
            self._post(Progressed(lease_id, status.progress, status.checkpoint_step))


def _tell(kept: _Kept, line: bytes) -> None:
    if kept.to_keeper is None:
        kept.orders.append(line)
    elif not kept.to_keeper.is_closing():
        kept.to_keeper.write(line)


async def _pipe_reader(fd: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=CHUNK)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0)
    )
    return reader


async def _words(reader: asyncio.StreamReader) -> Mapping[str, object]:
    """The keeper's next line; empty if it is gone."""
    try:
        line = await reader.readline()
    except ConnectionError:
        return {}
    found = json.loads(line) if line.endswith(b"\n") else {}
    return found if isinstance(found, dict) else {}


def _exited(lease_id: str, words: Mapping[str, object]) -> Exited:
    if isinstance(code := words.get("exit"), int):
        return Exited(lease_id, code, f"exit code {code}")
    if isinstance(number := words.get("signal"), int):
        return Exited(lease_id, 128 + number, f"killed by {_signal_name(number)}")
    return Exited(lease_id, 128 + signal.SIGKILL, "the process that kept the job was killed")


def _kill_group(group: int) -> None:
    """Without its keeper only the job itself dies by the parent-death signal; its children in the
    same group are for us to end."""
    if group > 1:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # real-time signals have no name


def _start_failed(lease_id: str, program: str, words: Mapping[str, object]) -> StartFailed:
    number, what = words.get("failed"), words.get("what")
    assert isinstance(number, int), f"the keeper said {words}"
    if what == "exec" and number == errno.ENOENT:
        return StartFailed(lease_id, 127, f"command not found: {program}")
    if what == "exec" and number == errno.EACCES:
        return StartFailed(lease_id, 126, f"permission denied: {program}")
    subject = program if what == "exec" else what
    return StartFailed(lease_id, 126, f"cannot start {subject}: {os.strerror(number)}")
