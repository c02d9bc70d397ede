"""Memory and CPU limits of one lease, by control groups: version 2 or version 1 of the kernel's.

The shim enters the group before it forks the job and leaves it afterwards, because moving a process
costs the kernel milliseconds: the agent moves the shim while its interpreter still starts.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
NAME = "zen"
_PERIOD_US = 100_000


@dataclass(frozen=True, slots=True)
class Group:
    """The groups of one lease: one per controller in version 1, one in version 2."""

    enter: tuple[Path, ...]
    leave: tuple[Path, ...]
    """Where the shim goes afterwards, in the same order."""

    limits_memory: bool

    def add(self, pid: int) -> None:
        """OSError if the kernel refuses."""
        for group in self.enter:
            (group / "cgroup.procs").write_text(str(pid))

    def out_of_memory(self) -> bool:
        """Whether the kernel killed something of it for its limit."""
        for group in self.enter:
            for name in ("memory.events", "memory.oom_control"):
                with suppress(OSError):
                    words = (group / name).read_text().split()
                    counts = dict(zip(words[::2], words[1::2], strict=False))
                    if int(counts.get("oom_kill", "0")):
                        return True
        return False

    def remove(self) -> None:
        """Ends what is still in it."""
        for group in self.enter:
            with suppress(OSError, ValueError):
                for pid in (group / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
            with suppress(OSError):
                group.rmdir()


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Where this agent may make groups: controller → (parent of them, where the agent is)."""

    memory: tuple[Path, Path] | None
    cpu: tuple[Path, Path] | None
    unified: bool

    def make(self, name: str, memory_mb: int | None, cpu_cores: float | None) -> Group | None:
        """A group with these limits; None if there is nothing to limit, or no controller for it."""
        wanted = [
            (self.memory, _memory(memory_mb, self.unified)),
            (self.cpu, _cpu(cpu_cores, self.unified)),
        ]
        enter: list[Path] = []
        leave: list[Path] = []
        for at, limits in wanted:
            if at is None or not limits:
                continue
            group = at[0] / name
            group.mkdir(parents=True, exist_ok=True)
            for file, value in limits.items():
                # Swap has a file only where the kernel counts it.
                if (group / file).exists():
                    (group / file).write_text(value)
            if group not in enter:
                enter.append(group)
                leave.append(at[1])
        if not enter:
            return None
        return Group(tuple(enter), tuple(leave), bool(memory_mb and self.memory))


def _memory(memory_mb: int | None, unified: bool) -> dict[str, str]:
    if not memory_mb:
        return {}
    most = str(memory_mb * 1024**2)
    if unified:
        return {"memory.max": most, "memory.swap.max": "0"}
    return {"memory.limit_in_bytes": most, "memory.memsw.limit_in_bytes": most}


def _cpu(cpu_cores: float | None, unified: bool) -> dict[str, str]:
    if not cpu_cores:
        return {}
    quota = str(max(1000, int(cpu_cores * _PERIOD_US)))
    if unified:
        return {"cpu.max": f"{quota} {_PERIOD_US}"}
    return {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": quota}


def find_cgroups(vm_name: str, root: Path = ROOT, own: str | None = None) -> Cgroups | None:
    """What this agent may use; None if it may make no groups. `own`: /proc/self/cgroup's text."""
    try:
        text = Path("/proc/self/cgroup").read_text() if own is None else own
        paths = dict(_lines(text))
        if (root / "cgroup.controllers").exists():
            return _second(root / paths.get("", "/").strip("/"), vm_name)
        found = {
            controller: _first(root / controller, paths.get(controller, "/").strip("/"), vm_name)
            for controller in ("memory", "cpu")
        }
    except (OSError, ValueError):
        return None
    if not any(found.values()):
        return None
    return Cgroups(found["memory"], found["cpu"], unified=False)


def _lines(text: str) -> Sequence[tuple[str, str]]:
    found = []
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        found += [(controller, path) for controller in controllers.split(",")]
    return found


def _first(mount: Path, own: str, vm_name: str) -> tuple[Path, Path] | None:
    """Version 1: a tree of our own below the mount. What agents left that were killed goes; the
    kernel keeps a group that has processes."""
    parent = mount / NAME / vm_name
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    for left in (*parent.parent.glob("*/*"), *parent.parent.glob("*")):
        if left.is_dir() and left != parent:
            with suppress(OSError):
                left.rmdir()
    return parent, mount / own


def _second(own: Path, vm_name: str) -> Cgroups | None:
    """Version 2: below the agent's own group, which systemd delegates. A group with limits below it
    holds no processes, so the agent moves into a leaf of its own."""
    leaf, parent = own / "agent", own / f"{NAME}-{vm_name}"
    if (own / "cgroup.procs").read_text().split() != [str(os.getpid())]:
        return None  # not delegated to us alone
    for directory in (leaf, parent):
        directory.mkdir(exist_ok=True)
    (leaf / "cgroup.procs").write_text(str(os.getpid()))
    for group in (own, parent):
        (group / "cgroup.subtree_control").write_text("+memory +cpu")
    at = (parent, leaf)
    return Cgroups(at, at, unified=True)
