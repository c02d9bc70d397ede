"""Containers whose shim is dead: found by their label, and removed when an agent starts.

A shim removes its container when its agent dies. Only if both are killed, or the machine
restarts, does one stay. Standard library only: shims import this too.
"""

from __future__ import annotations

import os

from agent.containers.docker import Docker, DockerError
from agent.shim import stat_of

SHIM = "zen.keeper"
"""boot id / PID namespace / PID / start time of the process that keeps it."""
VM = "zen.vm"


def whoami() -> str:
    """This process, so that no other one is taken for it."""
    return f"{_machine()}/{os.getpid()}/{_started(os.getpid())}"


def _machine() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
        boot = file.read().strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116  # no pathlib here


def _started(pid: int) -> str:
    """When a process began, by the kernel's clock; empty if there is none. PIDs come again."""
    fields = stat_of(str(pid))
    return "" if not fields or fields[0] in ("Z", "X") else fields[19]


def is_leftover(labels: dict[str, str], vm_name: str) -> bool:
    """Whether nobody keeps it any more. Where we cannot see its shim, it is left over only if it
    was our own VM's: then it is from before a restart."""
    machine, _, process = labels.get(SHIM, "").rpartition("/")[0].rpartition("/")
    if machine != _machine():
        return labels.get(VM) == vm_name
    began = labels[SHIM].rpartition("/")[2]
    return not process.isdigit() or _started(int(process)) != began


def sweep(address: str, vm_name: str) -> tuple[list[str], list[str]]:
    """(containers that were removed, what went wrong)."""
    docker = Docker(address)
    removed, faults = [], []
    try:
        found = docker.labelled(SHIM)
    except DockerError as error:
        return [], [str(error)]
    for container, labels in found:
        if is_leftover(labels, vm_name):
            try:
                docker.remove(container)
                removed.append(container)
            except DockerError as error:
                faults.append(str(error))
    return removed, faults
