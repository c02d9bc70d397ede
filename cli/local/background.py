"""A supervisor in a process of its own: for --detach and for the demo; and how to stop one."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.local.lock import AlreadyUp, holder
from cli.local.process import ChildFailed, die_with_parent, last_words
from cli.local.stack import Options
from cli.output.printing import note
from cli.paths import PROGRAM, ROOT, Home, Running, alive, here, send_signal
from core.clock import SystemClock
from core.errors import ZenError
from core.sandbox import SHARED_DIRECTORY

READY_S = 90.0
OWN_STOP_S = 30.0
POLL_S = 0.05


class StillRunning(ZenError):
    """It was told to stop and did not; look at its log."""

    code = "still_running"


@contextmanager
def own_stack(
    options: Options, purpose: str, tell: Callable[[str], None], *, keep: bool
) -> Iterator[tuple[Home, Running]]:
    """A stack in a temporary directory, which goes with it, unless `keep`. It ends with us."""
    place = Home(Path(tempfile.mkdtemp(prefix=f"zen-{purpose}-")))
    theirs, ours = os.pipe()
    try:
        place.make()
        running = launch(place, options, parent_fd=theirs)
        try:
            yield place, running
        finally:
            tell("stopping the stack …")
            stop(place, OWN_STOP_S, lambda _: None)
    finally:
        os.close(theirs)
        os.close(ours)
        if keep:
            note(f"state and logs are kept in {place.path}")
        else:
            shutil.rmtree(place.path, ignore_errors=True)


def launch(place: Home, options: Options, *, parent_fd: int | None = None) -> Running:
    """Starts `zen up` in its own session and waits until it is ready, or says why it is not.
    With a `parent_fd` it ends with us, otherwise it stays."""
    if holder(place) is not None:
        raise AlreadyUp(f"zen up already runs in {place.path}; stop it with: {PROGRAM} down")
    hears, tells = os.pipe()
    argv = _argv(options, tells, parent_fd)
    with place.up_log.open("wb") as log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=ROOT,
            env={SHARED_DIRECTORY: str(here()), **os.environ, "ZEN_HOME": str(place.path)},
            pass_fds=(tells,) if parent_fd is None else (tells, parent_fd),
            start_new_session=True,
            preexec_fn=None if parent_fd is None else die_with_parent(),  # noqa: PLW1509
        )
    os.close(tells)
    try:
        told = json.loads(_line(hears, READY_S) or "{}")
    except BaseException:
        _give_up(process)
        raise
    finally:
        os.close(hears)
    if told.pop("event", "") != "ready":
        _give_up(process)
        why = told.get("error") or f"it ended early (log: {place.up_log}){last_words(place.up_log)}"
        raise ChildFailed(f"zen {'node' if options.node else 'up'} did not start: {why}")
    return Running(**told)


def _argv(options: Options, ready_fd: int, parent_fd: int | None) -> list[str]:
    words = [
        *(sys.executable, "-P", "-m", "cli", "node" if options.node else "up"),
        *("--ready-fd", str(ready_fd)),
        *(() if options.node else ("--replicas", str(options.replicas))),
        *(("--gpus", str(options.node_gpus)) if options.node_gpus is not None else ()),
        *(("--port", str(options.port)) if options.port is not None else ()),
    ]
    if options.config:
        words += ["--config", str(options.config)]
    if options.changes:
        words += ["--changes", json.dumps(options.changes)]
    if parent_fd is not None:
        words += ["--parent-fd", str(parent_fd)]
    return words


def _line(fd: int, limit_s: float) -> str:
    """One line, or what came before the end of file or of our wait limit."""
    clock = SystemClock()
    deadline = clock.monotonic() + limit_s
    text = b""
    while b"\n" not in text:
        left_s = deadline - clock.monotonic()
        if left_s <= 0 or not select.select([fd], [], [], left_s)[0]:
            break
        piece = os.read(fd, 65536)
        if not piece:
            break
        text += piece
    return text.decode(errors="replace")


def _give_up(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def stop(place: Home, limit_s: float, tell: Callable[[str], None]) -> bool:
    """Stops the supervisor of that directory and waits for its end; False if there was none."""
    pid = holder(place)
    if pid is None:
        place.forget()
        return False
    tell(f"stopping what runs in {place.path} (pid {pid})")
    if pid > 0:
        send_signal(pid, signal.SIGTERM)
    clock = SystemClock()
    began = clock.monotonic()
    # It lets go of the lock a moment before it ends: who comes after us must find nothing.
    while holder(place) is not None or (pid > 0 and alive(pid)):
        if clock.monotonic() - began > limit_s:
            log = Path(place.up_log)
            raise StillRunning(f"pid {pid} did not stop within {limit_s:g} s (log: {log})")
        time.sleep(POLL_S)
    return True
