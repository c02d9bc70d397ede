"""One process of the stack: started, heard, watched, stopped; it cannot outlive us.

Two independent ropes tie it to us: the kernel's parent-death signal, and a pipe whose end of
file it watches (`--parent-fd`). The first is lost when a process changes its credentials, the
second does not depend on the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from core.errors import ZenError

LINE_BYTES_MAX = 64 * 1024
LOG_BYTES_MAX = 16 * 1024 * 1024
LAST_LINES = 8
_PR_SET_PDEATHSIG = 1


class ChildFailed(ZenError):
    """A process of the stack did not start; its own last words are in the message."""

    code = "child_failed"


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run. `{parent_fd}` in the words becomes the number of the pipe."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    cwd: Path
    ready_s: float = 30.0
    stop_s: float = 3.0


@dataclass(slots=True)
class Child:
    """A running program, after it has said that it is ready."""

    program: ProcessSpec
    process: asyncio.subprocess.Process
    ready: Mapping[str, Any]
    _lifeline: int
    _drain: asyncio.Task[None] = field(repr=False)

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait(self) -> int:
        """Its exit code, once it has ended by itself or by us."""
        code = await self.process.wait()
        self._let_go()
        return code

    async def stop(self, limit_s: float) -> None:
        """SIGTERM, a bounded wait, SIGKILL to its whole session."""
        await _end(self.process, limit_s)
        self._let_go()

    def _let_go(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        self._drain.cancel()


async def start(program: ProcessSpec) -> Child:
    """Runs it until it says it is ready, or ChildFailed with what it said instead."""
    theirs, ours = os.pipe()
    log = _open_log(program.log)
    try:
        process = await asyncio.create_subprocess_exec(
            *(word.replace("{parent_fd}", str(theirs)) for word in program.argv),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=dict(program.environment),
            cwd=program.cwd,
            pass_fds=(theirs,),
            start_new_session=True,
            limit=LINE_BYTES_MAX,
            preexec_fn=die_with_parent(),  # we hold no locks across the fork
        )
    except OSError as error:
        os.close(ours)
        log.close()
        raise ChildFailed(f"{program.name} cannot be started: {error}") from error
    finally:
        os.close(theirs)
    try:
        ready = await _ready(program, process)
    except BaseException:
        await asyncio.shield(_end(process, program.stop_s))
        os.close(ours)
        log.close()
        raise
    drain = asyncio.create_task(_drain(process, log), name=f"output of {program.name}")
    return Child(program, process, ready, ours, drain)


async def _ready(program: ProcessSpec, process: asyncio.subprocess.Process) -> Mapping[str, Any]:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(program.ready_s):
            while line := await process.stdout.readline():
                told = _event(line)
                if told.get("event") == "ready":
                    return told
                if told.get("event") == "failed":
                    raise ChildFailed(f"{program.name} did not start: {told.get('error', told)}")
            code = await process.wait()
    except TimeoutError:
        raise ChildFailed(
            f"{program.name} was not ready within {program.ready_s:g} s"
            f" (log: {program.log}){last_words(program.log)}"
        ) from None
    raise ChildFailed(
        f"{program.name} ended with exit code {code} before it was ready"
        f" (log: {program.log}){last_words(program.log)}"
    )


def _event(line: bytes) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


async def _drain(process: asyncio.subprocess.Process, log: IO[bytes]) -> None:
    """Keeps the pipe empty: a full one would stop the child in the middle of a print."""
    assert process.stdout is not None
    with contextlib.closing(log):
        while piece := await process.stdout.read(LINE_BYTES_MAX):
            log.write(piece)
            log.flush()


async def _end(process: asyncio.subprocess.Process, limit_s: float) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        # Said again below, in words that cannot be ignored.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), limit_s)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def last_words(log: Path) -> str:
    """The end of a log, to stand in an error message; empty if there is none."""
    try:
        with log.open(encoding="utf-8", errors="replace") as opened:
            lines = deque((line.rstrip() for line in opened if line.strip()), LAST_LINES)
    except OSError:
        return ""
    return "".join(f"\n    {line[:300]}" for line in lines)


def _open_log(path: Path) -> IO[bytes]:
    """Appends, so that the log of a crash survives the restart; an old big one is moved aside."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > LOG_BYTES_MAX:
            path.replace(path.with_suffix(".log.1"))
    return path.open("ab", buffering=0)


def die_with_parent() -> Callable[[], None] | None:
    """A preexec_fn that asks the kernel for SIGTERM when we end, however we end. SIGTERM and not
    SIGKILL, so that what the child has started is ended in order. None where there is no such
    thing: the pipe must do there."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # we died before it could ask
            os._exit(1)

    return ask
