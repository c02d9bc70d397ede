"""Starts shims: by the agent's shim server, or each as a process of its own.

A shim of the server whose job has ended waits for another job, so that most jobs cost no new shim.
The server is an aid, never a condition. A shim that it does not deliver, because it was killed,
hangs or cannot fork, is started as a process of its own, and the server is started anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from agent.json_log import JsonLog
from agent.logs import CHUNK
from core.clock import SystemClock
from core.ports import Clock

SERVER_WAIT_S = 10.0
"""A server that has not forked for so long hangs."""
SERVER_AGAIN_S = 5.0
"""Between two starts of the server: one that always dies must not cost more than its shims do."""
BURY_WAIT_S = 1.0
IDLE_MAX = 8
"""Shims that wait for a job: as many as most VMs have slots, each a few megabytes."""
ENDS = frozenset({"exit", "signal", "lost", "failed"})
"""A shim that says one of these has left nothing of its job behind. It goes, unless it also says
`again`: then it may keep another job."""


@dataclass(frozen=True, slots=True)
class ShimProgram:
    """How a kind of job is kept."""

    words: tuple[str, ...]
    """The command line of a shim, without its own three words."""
    by_server: bool
    """Whether the shim server can fork it."""


@dataclass(slots=True)
class _ShimFiles:
    """Our ends of a shim's socket and of its job's output."""

    socket: socket.socket
    log_fd: int
    process: subprocess.Popen[bytes] | None = None
    """None: the server's child."""
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    """Of a shim that has kept a job before."""

    def close(self) -> None:
        self.socket.close()
        os.close(self.log_fd)


@dataclass(frozen=True, slots=True)
class _IdleShim:
    """Its job has ended and left nothing behind: it can keep another one."""

    socket: socket.socket
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def awake(self) -> _ShimFiles | None:
        """It answers as one that has just begun; None if it is gone."""
        log_out, log_in = os.pipe()
        try:
            if self.reader.at_eof() or self.writer.is_closing():
                raise ConnectionError("it was killed while it waited")
            socket.send_fds(self.socket, [b"n"], [log_in])
        except OSError:
            os.close(log_out)
            self.writer.close()
            return None
        finally:
            os.close(log_in)
        return _ShimFiles(self.socket, log_out, streams=(self.reader, self.writer))


class ShimLink:
    """One shim for one job. A shim that is told nothing ends with the block."""

    def __init__(self, shims: Shims, program: ShimProgram) -> None:
        self._shims, self._program = shims, program
        self._files = shims.idle() if program.by_server else None
        self._server: subprocess.Popen[bytes] | None = None
        if self._files is None and program.by_server:
            self._files = shims.fork()
            self._server = shims.server
        if self._files is None:
            self._files = _spawn(program.words)
        self._socket, self._process = self._files.socket, self._files.process
        self._again = False
        """Whether it can keep another job."""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.output = asyncio.StreamReader(limit=CHUNK)
        self._over = False

    async def __aenter__(self) -> Self:
        return self

    async def begun(self) -> int | None:
        """The process, which waits for its first word; None if it was killed before."""
        await self._connect()
        try:
            async with asyncio.timeout(SERVER_WAIT_S if self._process is None else None):
                said = await self.words()
        except TimeoutError:
            said = {}
        if not said and self._process is None:
            # Nobody was told to run anything: a shim that comes late finds its socket closed.
            self._shims.fork_failed(self._server)
            await self._close()
            self._files = _spawn(self._program.words)
            self._process = self._files.process
            return await self.begun()
        pid = said.get("shim")
        return pid if isinstance(pid, int) else None

    async def words(self) -> Mapping[str, object]:
        """The shim's next line; empty if it is gone."""
        try:
            line = await self._reader.readline() if self._reader is not None else b""
        except ConnectionError:
            line = b""
        found = json.loads(line) if line.endswith(b"\n") else {}
        said: Mapping[str, object] = found if isinstance(found, dict) else {}
        self._over = not said or not ENDS.isdisjoint(said)
        self._again = said.get("again") is True and self._process is None
        return said

    def tell(self, *lines: bytes) -> None:
        """Nothing if it is gone."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.writelines(lines)

    def hang_up(self) -> None:
        """What a shim hears when its agent dies: it ends its job, and then itself."""
        if self._writer is not None:
            self._writer.write_eof()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            if not self._over:
                self.hang_up()
                while await self.words():
                    pass
        finally:
            if self._again and self._reader is not None and self._writer is not None:
                self._shims.keep(_IdleShim(self._socket, self._reader, self._writer))
                # What is said to the job that ended must not reach the next one.
                self._reader = self._writer = None
            else:
                await self._close()

    async def _connect(self) -> None:
        assert self._files is not None, "a shim is connected to once"
        files, self._files = self._files, None
        self.output = asyncio.StreamReader(limit=CHUNK)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.output), os.fdopen(files.log_fd, "rb", 0)
        )
        self._reader, self._writer = files.streams or await asyncio.open_connection(
            sock=files.socket
        )

    async def _close(self) -> None:
        if self._files is not None:
            self._files.close()
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)


class Shims:
    """The shim server of one agent, and what is started without it."""

    def __init__(
        self, journal: JsonLog, clock: Clock | None = None, server: tuple[str, ...] = ()
    ) -> None:
        """`server`: the command line of the server; empty: there is none."""
        self.journal, self._command = journal, server
        self._clock = clock or SystemClock()
        self.server: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._again_at = 0.0
        self._idle: list[_IdleShim] = []
        self._closed = False

    def open(self) -> None:
        """Start the server, if it was not started a moment ago."""
        now = self._clock.monotonic()
        if not self._command or self.server is not None or now < self._again_at:
            return
        self._again_at = now + SERVER_AGAIN_S
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            self.server = subprocess.Popen(
                [*self._command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
            self._requests = ours
        except OSError as error:
            self.journal.error("shim server not started", reason=str(error))
            ours.close()
        finally:
            theirs.close()

    def link(self, program: ShimProgram) -> ShimLink:
        """A shim that starts now. OSError if the machine cannot."""
        return ShimLink(self, program)

    def idle(self) -> _ShimFiles | None:
        """The shim whose job ended last; None if none waits. Shims that were killed are passed
        over."""
        while self._idle:
            if (files := self._idle.pop().awake()) is not None:
                return files
        return None

    def keep(self, shim: _IdleShim) -> None:
        """For the next job; one too many goes."""
        if len(self._idle) < IDLE_MAX and not self._closed:
            self._idle.append(shim)
        else:
            shim.writer.close()

    def fork(self) -> _ShimFiles | None:
        """A shim by the server; None if there is none now. One that does not come, or whose server
        dies first, has its socket closed."""
        self.open()
        if self._requests is None:
            return None
        files, theirs, log_in = _files()
        try:
            socket.send_fds(self._requests, [b"f"], [theirs.fileno(), log_in])
        except OSError:
            files.close()
            self.fork_failed(self.server)
            return None
        finally:
            theirs.close()
            os.close(log_in)
        return files

    def fork_failed(self, server: subprocess.Popen[bytes] | None) -> None:
        """It died, or it hangs: the next shim finds another one."""
        if server is not None and server is self.server:
            self.journal.warning("shim server failed", pid=server.pid)
            self._end_server()

    def close(self) -> None:
        """The server goes, and shims that wait for a job; others stay until theirs ends."""
        self._closed = True
        for shim in self._idle:
            shim.writer.close()
        self._idle.clear()
        self._end_server()

    def _end_server(self) -> None:
        if self._requests is not None:
            self._requests.close()
        if self.server is not None:
            self.server.kill()  # it may hang, and has nothing to lose
            with suppress(subprocess.TimeoutExpired):
                self.server.wait(BURY_WAIT_S)
        self._requests = self.server = None


def _files() -> tuple[_ShimFiles, socket.socket, int]:
    """Our ends, the shim's end of its socket, and where its job writes."""
    mine, theirs = socket.socketpair()
    try:
        log_out, log_in = os.pipe()
    except OSError:
        mine.close()
        theirs.close()
        raise
    return _ShimFiles(mine, log_out), theirs, log_in


def _spawn(program: tuple[str, ...]) -> _ShimFiles:
    files, theirs, log_in = _files()
    words = [str(theirs.fileno()), str(log_in), str(os.getpid())]
    try:
        # Popen and not asyncio's: that one needs a thread per child, and the socket already
        # tells us when the shim ends.
        files.process = subprocess.Popen(
            [*program, *words], stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(), log_in)
        )
    except OSError:
        files.close()
        raise
    finally:
        theirs.close()
        os.close(log_in)
    return files
