"""The memory of a job where the kernel does not limit it: looked at, and ended above its limit.

Standard library only: shims import this.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from time import monotonic  # noqa: TID251  # a pace, not a decision

LOOK_EVERY_S = 0.5


class MemoryWatch:
    """Of one job; 0: no limit, or the kernel has it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self._look_at = bytes_max, 0.0
        self.note = ""

    def is_over(self, processes: Callable[[], Iterable[int]]) -> bool:
        if not self._bytes_max or monotonic() < self._look_at:
            return False
        self._look_at = monotonic() + LOOK_EVERY_S
        used = sum(memory_of(pid) for pid in processes())
        if used <= self._bytes_max:
            return False
        self.note = out_of_memory(self._bytes_max // 1024**2)
        return True

    def poll_wait_ms(self, wait_ms: int | None) -> int | None:
        """Until the next look at the latest."""
        if not self._bytes_max:
            return wait_ms
        look_ms = max(0, int(1000 * (self._look_at - monotonic())) + 1)
        return look_ms if wait_ms is None else min(wait_ms, look_ms)


def out_of_memory(memory_mb: int) -> str:
    return f"out of memory: memory_mb is {memory_mb}"


def memory_of(pid: int) -> int:
    """Its share of memory in bytes: what processes have in common counts once."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123  # no pathlib here
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return 0  # it ended while we looked
    return 0


def leave_cgroup(procs: str) -> None:
    """The shim goes; the job, which it has forked, stays."""
    try:
        with open(procs, "w", encoding="ascii") as file:  # noqa: PTH123  # no pathlib here
            file.write(str(os.getpid()))
    except OSError:
        return  # then the shim's few megabytes count as the job's
