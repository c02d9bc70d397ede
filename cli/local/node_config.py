"""The configuration of a single machine: one cluster, one place, one worker."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agent.inventory import FoundGpu, find_gpus, most_of_a_kind
from cli.local.config import LOSSES_FORGIVEN, TIMERS, machine_mb
from core.errors import ZenError
from core.names import CPU_TYPE, Names
from core.tenants import DEFAULT_TENANT
from migs.own_machines import SCHEME

PLACE = "local-host1"
"""Names of regions have this form; it is the only one here."""
MACHINE = "this-machine"
PRETEND_TYPE, PRETEND_GB = "gpu", 16
SOCKET_PATH_MAX = 100
"""The kernel's limit is 108 bytes."""


class NoGpus(ZenError):
    """There is nothing to schedule on."""

    code = "no_gpus"


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What the machine offers."""

    gpus: int
    gpu_type: str
    gpu_memory_gb: int
    cpus: int
    memory_gb: int
    note: str

    @property
    def cluster(self) -> str:
        return f"{self.gpus}x{self.gpu_type}"


def plan_node(gpus: int | None, found: Sequence[FoundGpu] | None = None) -> NodePlan:
    """From what is there and what was asked for; NoGpus if that is nothing."""
    found = find_gpus() if found is None else found
    alike = most_of_a_kind(found)
    if gpus == 0:
        return _without_gpus()
    if not alike and gpus is None:
        raise NoGpus(
            "no GPU found (neither NVML nor nvidia-smi); pretend with: zen node --gpus N, or take "
            "jobs without GPUs: zen node --gpus 0"
        )
    if alike and gpus is not None and gpus > len(alike):
        raise NoGpus(f"--gpus {gpus}: this machine has {len(alike)} of {alike[0].gpu_type}")
    count = gpus or len(alike)
    gpu_type = alike[0].gpu_type if alike else PRETEND_TYPE
    memory = [round(gpu.memory_mb / 1024) for gpu in alike]
    others = len(found) - len(alike)
    notes = [f"{count} × {alike[0].product}" if alike else f"{count} pretend GPUs"]
    if others:
        notes.append(f"{others} of another type are left alone")
    return NodePlan(
        gpus=count,
        gpu_type=gpu_type,
        gpu_memory_gb=max(1, min(memory, default=PRETEND_GB)),
        cpus=_cpus(),
        memory_gb=_memory_gb(),
        note=f"this machine: {', '.join(notes)}",
    )


def _without_gpus() -> NodePlan:
    return NodePlan(0, CPU_TYPE, 0, _cpus(), _memory_gb(), "this machine: no GPUs are used")


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


def _memory_gb() -> int:
    return int(machine_mb() / 1024)


def socket_of(data: Path) -> Path:
    """Beside the other state, or, if that path is too long for a socket, where it fits."""
    wanted = data / "node.sock"
    if len(str(wanted).encode()) <= SOCKET_PATH_MAX:
        return wanted
    mark = hashlib.sha256(str(data).encode()).hexdigest()[:12]
    short = Path(tempfile.gettempdir()) / f"zen-node-{mark}"
    short.mkdir(mode=0o700, exist_ok=True)
    return short / "node.sock"


def _gpu_types(plan: NodePlan) -> dict[str, Any]:
    known = {"memory_gb": plan.gpu_memory_gb, "zones": {}}
    return {plan.gpu_type: known} if plan.gpus else {}


def node_values(plan: NodePlan, socket: Path, store: Path) -> dict[str, Any]:
    """The document, as zen.yaml holds it."""
    free = {"usd_per_hour": 0, "spot_usd_per_hour": 0}
    return {
        "project": "this-machine",
        "prefix": "zen",
        "store_url": f"file://{quote(str(store))}",
        "timers": dict(TIMERS),
        "budgets": {"losses": LOSSES_FORGIVEN},
        "tenants": {"create_on_submit": True},
        "single_tenant": True,
        "submit": {"topics": {Names("zen").submit_topic: {"tenant": DEFAULT_TENANT}}},
        "clusters": {
            plan.cluster: {
                "pool": "static",
                "share": plan.gpus > 0,
                "machine_type": MACHINE,
                "vm_max": 1,
                "regions": {PLACE: {"node": f"{SCHEME}{socket}", **free}},
            }
        },
        "gpus": _gpu_types(plan),
        "machines": {MACHINE: {"cpus": plan.cpus, "memory_gb": plan.memory_gb, **free}},
        "prices": {"as_of": "2026-01-01", "gpus": {}},
    }
