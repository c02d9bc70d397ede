"""The supervisor in the foreground: starts the stack, says what happens, waits, stops it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from dataclasses import asdict

from cli.local.config import this_machine
from cli.local.lock import Lock, end_leftovers, leftovers
from cli.local.process import ChildFailed
from cli.local.stack import MARK, Options, Stack
from cli.output.next_steps import next_steps
from cli.output.printing import emit, note, say
from cli.paths import Home, Running
from core.clock import SystemClock
from core.errors import ZenError
from core.stopping import SIGNALS, stop_event


class Voice:
    """What the supervisor says, in the way that was asked for."""

    def __init__(self, quiet: bool, as_json: bool, ready_fd: int | None) -> None:
        self._quiet, self._as_json, self._ready_fd = quiet, as_json, ready_fd
        self._clock = SystemClock()
        self._began = self._clock.monotonic()

    def report(self, kind: str, text: str) -> None:
        """News of a part."""
        if self._as_json:
            emit({"event": kind, "text": text}, line=True)
        elif kind == "died":
            note(text)
        elif not self._quiet:
            say(f"[{self._clock.monotonic() - self._began:5.1f} s] {kind} {text}")

    def ready(self, running: Running) -> None:
        self._tell_parent({"event": "ready", **asdict(running)})
        if self._as_json:
            emit({"event": "ready", **asdict(running)}, line=True)
        elif not self._quiet:
            for line in next_steps(running):
                say(line)
            say("Ctrl-C stops everything; jobs are found again at the next start")

    def failed(self, error: Exception) -> None:
        self._tell_parent({"event": "failed", "error": str(error)})
        if self._as_json:
            emit({"event": "failed", "error": str(error)}, line=True)

    def _tell_parent(self, told: dict[str, object]) -> None:
        if self._ready_fd is None:
            return
        # The process that started us may have stopped waiting and gone.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._ready_fd, (json.dumps(told) + "\n").encode())
        os.close(self._ready_fd)
        self._ready_fd = None


def run(
    place: Home,
    options: Options,
    quiet: bool,
    as_json: bool,
    parent_fd: int | None,
    ready_fd: int | None,
) -> int:
    """Serves until Ctrl-C, SIGTERM or the parent's end. 0: stopped as asked; 1: did not start."""
    voice = Voice(quiet, as_json, ready_fd)
    try:
        lock = Lock(place)
    except ZenError as error:
        voice.failed(error)
        raise
    try:
        if leftovers(place, MARK):
            voice.report("note", "the last run was killed, ending what it left")
            end_leftovers(place, MARK)
        place.forget()
        return asyncio.run(_serve(place, options, voice, parent_fd))
    finally:
        lock.release()


async def _serve(place: Home, options: Options, voice: Voice, parent_fd: int | None) -> int:
    stop = stop_event(parent_fd, (*SIGNALS, signal.SIGHUP))
    stack = Stack(place, options, this_machine(), voice.report)
    try:
        running = await _unless_stopped(stack, stop)
        if running is not None:
            voice.ready(running)
            await stop.wait()
        else:
            voice.failed(ChildFailed("stopped before it was ready"))
    except BaseExceptionGroup as group:
        error = _first(group)
        voice.failed(error)
        raise error from group
    except (ZenError, OSError) as error:
        voice.failed(error)
        raise
    finally:
        await stack.stop()
    voice.report("stopped", "everything")
    return 0


async def _unless_stopped(stack: Stack, stop: asyncio.Event) -> Running | None:
    """Starting can be cancelled at any time."""
    starting = asyncio.create_task(stack.start(), name="start")
    asked = asyncio.create_task(stop.wait(), name="asked to stop")
    await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
        return None
    return starting.result()


def _first(group: BaseExceptionGroup[BaseException]) -> Exception:
    """The parts start side by side; the first one that failed is the news."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            return _first(error)
        if isinstance(error, Exception):
            return error
    raise group
