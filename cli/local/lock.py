"""One `zen up` per state directory: the lock, who holds it, and what a killed one left behind."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path

from cli.paths import PROGRAM, Home, alive, send_signal
from core.clock import SystemClock
from core.errors import ZenError

LEFTOVER_S = 20.0
POLL_S = 0.05


class AlreadyUp(ZenError):
    """Another `zen up` serves this state directory; use it or stop it."""

    code = "already_up"


class Lock:
    """Held while the stack runs; the kernel lets go of it however we end."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._fd = os.open(home.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise AlreadyUp(_where(home)) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


def holder(home: Home) -> int | None:
    """The process that holds the lock, or None if nobody does."""
    try:
        fd = os.open(home.lock_file, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        text = os.pread(fd, 32, 0).decode(errors="replace").strip()
        return int(text) if text.isdigit() else 0
    finally:
        os.close(fd)
    return None


def _where(home: Home) -> str:
    running = home.read()
    if running is None:
        return f"zen up is already starting in {home.path} (pid {holder(home)})"
    return (
        f"zen up already runs in {home.path} (pid {running.pid}), its API is {running.api};"
        f" stop it with: {PROGRAM} down"
    )


def leftovers(home: Home, mark: str) -> list[int]:
    """Processes of the last run that are still there. A number alone proves nothing: it may be
    a stranger's by now, so the mark in the environment must fit."""
    running = home.read()
    if running is None:
        return []
    needle = f"{mark}={home.path}".encode()
    return [pid for pid in running.processes.values() if alive(pid) and _marked(pid, needle)]


def _marked(pid: int, needle: bytes) -> bool:
    try:
        return needle in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def end_leftovers(home: Home, mark: str) -> None:
    """After a `kill -9` they end by themselves within seconds; the next start waits for that."""
    clock = SystemClock()
    began = clock.monotonic()
    for pid in leftovers(home, mark):
        send_signal(pid, signal.SIGTERM)
    while left := leftovers(home, mark):
        if clock.monotonic() - began > LEFTOVER_S:
            for pid in left:
                send_signal(pid, signal.SIGKILL)
            return
        time.sleep(POLL_S)
