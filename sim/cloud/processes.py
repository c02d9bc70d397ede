"""Starting a process that cannot outlive its parent, and killing all that runs on a pretend VM."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_PR_SET_PDEATHSIG: Final = 1
_ROUNDS_MAX: Final = 5


def die_with_parent() -> Callable[[], None] | None:
    """A preexec_fn: the kernel kills the process when the one that started it ends, however it
    ends. None where the kernel has no such thing; the inherited pipe must do there."""
    if not sys.platform.startswith("linux"):
        return None
    # Loaded here, before the fork: a child between fork and exec should do as little as it can.
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we could ask
            os._exit(1)

    return ask


def kill_machine(leader: int | None, marker: str) -> None:
    """Kills a VM's first process, all its descendants, and all that carries the VM's marker in its
    environment, also processes that left the process group: losing power spares nothing."""
    if leader is not None:
        # Stopped, it can start nothing new while we look for what it has started.
        _signal(leader, signal.SIGSTOP)
    for _ in range(_ROUNDS_MAX):
        found = _descendants(leader) | set(marked(marker)) if _PROC.is_dir() else set()
        if leader is not None:
            _signal_group(leader, signal.SIGKILL)
            leader = None
        elif not found:
            return
        for pid in found:
            _signal(pid, signal.SIGKILL)


def ask_to_stop(leader: int) -> None:
    """As a machine's power button does: the first process is told, it tells the others."""
    _signal(leader, signal.SIGTERM)


def marked(marker: str) -> Iterable[int]:
    """Processes that were started with an environment variable that begins with this text."""
    needle = marker.encode()
    for pid in _pids():
        try:
            environment = (_PROC / str(pid) / "environ").read_bytes()
        except OSError:  # gone, or not ours
            continue
        if any(entry.startswith(needle) for entry in environment.split(b"\0")):
            yield pid


def _pids() -> list[int]:
    if not _PROC.is_dir():
        return []
    own = os.getpid()
    return [int(p.name) for p in _PROC.iterdir() if p.name.isdigit() and int(p.name) != own]


def _descendants(root: int | None) -> set[int]:
    if root is None:
        return set()
    children: dict[int, list[int]] = {}
    for pid in _pids():
        try:
            stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            continue
        # The command name, in parentheses, may itself hold spaces and parentheses.
        parent = int(stat.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), []):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _signal_group(leader: int, number: signal.Signals) -> None:
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return
