"""The first process of a container, where it is ours to see: a way to it without the runtime.

Standard library only: shims import this.
"""

from __future__ import annotations

import os
import signal
import time
from time import monotonic  # noqa: TID251  # a bound, not a decision

from agent.shim import catches, descendants, parent_and_state, send_signal

HALT_MAX_S = 1.0
"""A signal that stops takes microseconds, or until the process runs next on a busy machine."""
LOOK_EVERY_S = 0.001


class FirstProcess:
    """Held by a file of the kernel's, so that no other process is ever taken for it."""

    def __init__(self) -> None:
        self._pid, self._fd = 0, -1

    @property
    def known(self) -> bool:
        return self._fd >= 0

    def remember(self, pid: object, container: str) -> None:
        """What the runtime says; nothing if it has ended, or is not ours to see."""
        if self.known or not isinstance(pid, int) or pid <= 0:
            return
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return
        if _is_of(pid, container):
            self._fd, self._pid = fd, pid
        else:
            os.close(fd)

    def send(self, number: int) -> bool:
        """False if it has ended, or is not known."""
        if not self.known:
            return False
        try:
            signal.pidfd_send_signal(self._fd, number)
        except OSError:
            return False
        return True

    def halt(self) -> bool:
        """Stop it: True once it cannot end by itself. SIGCONT lets it go on."""
        if not self.send(signal.SIGSTOP):
            return False
        give_up_at = monotonic() + HALT_MAX_S
        while self._state() != "T":
            if self.has_ended() or monotonic() > give_up_at:
                return False
            time.sleep(LOOK_EVERY_S)
        return True

    def has_ended(self) -> bool:
        """Known, and gone, or nobody has buried it yet."""
        return self.known and (not self.send(0) or self._state() in ("Z", "X", ""))

    def _state(self) -> str:
        return parent_and_state(str(self._pid))[1]

    def tell_listeners(self, number: int) -> None:
        """A signal for those below it that wait for it: it would end the others."""
        for pid in descendants(self._pid) if self.send(0) else ():
            if catches(pid, number):
                send_signal(pid, number)

    def kill_all(self) -> None:
        """It and all below it."""
        if self.send(0):
            for pid in [*descendants(self._pid), self._pid]:
                send_signal(pid, signal.SIGKILL)


def _is_of(pid: int, container: str) -> bool:
    """A runtime on another machine, or in another PID namespace, counts otherwise than we do."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:  # noqa: PTH123  # no pathlib
            return container in file.read()
    except OSError:
        return False
