"""The configuration of a local run: the default one, with a laptop's limits and timers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from config.document import read_yaml
from config.errors import ConfigError
from config.load import DEFAULT_PATH, load_settings
from config.settings import Settings
from core.names import Names
from core.tenants import DEFAULT_TENANT
from core.timers import Timers

CPU_FLOOR = 1
"""VMs without GPUs that `zen up` keeps ready."""
VM_MB = 120
"""What one pretend VM takes: its agent and a small job."""
VMS_PER_CORE = 8
"""Idle ones cost next to nothing; it is the jobs that need the cores."""

LOSSES_FORGIVEN = 100
"""The default of a service is 5: there a VM that is lost is a bad sign."""

# A person watches: everything that waits on purpose waits shorter. The relations of
# core.timers hold for these values too, and loading them proves it.
TIMERS: Mapping[str, float] = {
    "heartbeat_s": 2,
    "publish_timeout_s": 2,
    "self_stop_after_s": 12,
    "lost_after_s": 20,
    "canary_s": 2,
    "settling_s": 4,
    "leader_lease_s": 6,
    "leader_renew_s": 2,
    "claim_timeout_s": 20,
    "start_timeout_s": 60,
    "stop_grace_s": 10,
    "stop_margin_s": 5,
    "boot_timeout_s": 60,
    "idle_timeout_s": 60,
    "observe_s": 1,
    "observe_idle_s": 15,
    "widen_after_s": 8,
    "stockout_block_s": 10,
    "stockout_block_max_s": 120,
    "quota_block_s": 5,
    "permission_block_s": 15,
    "unknown_block_s": 5,
    "unready_block_max_s": 300,
    "orphan_after_s": 30,
}

# Variables that would lead a local run to somebody's real database, bus or cloud.
REAL_WORLD = (
    *("DATABASE_URL", "ZEN_DATABASE_URL", "PUBSUB_EMULATOR_HOST", "ZEN_PUBSUB_HOST"),
    *("ZEN_COMPUTE_URL", "ZEN_STORE_URL", "ZEN_API__HOST", "ZEN_API__PORT", "ZEN_API"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "ZEN_CONFIG"),
)


@dataclass(frozen=True, slots=True)
class VmCap:
    """How many pretend VMs this machine can carry, and why."""

    vms: int
    note: str


def vm_cap(available_mb: float, cores: int) -> VmCap:
    """The smaller of what memory and cores allow, at least one."""
    by_memory = int(available_mb / 2 / VM_MB)
    by_cores = cores * VMS_PER_CORE
    vms = max(1, min(by_memory, by_cores))
    if by_memory < by_cores:
        reason = f"half of {available_mb / 1024:.1f} GB free memory at {VM_MB} MB each"
    else:
        reason = f"{VMS_PER_CORE} for each of {cores} cores"
    return VmCap(vms, f"at most {vms} pretend VMs on this machine: {reason}")


def this_machine() -> VmCap:
    """The cap for where we run."""
    return vm_cap(_available_mb(), _cores())


def overlay(
    base: Settings,
    store: Path,
    cap: VmCap,
    more: Mapping[str, Any] | None = None,
    set_timers: Collection[str] = (),
    cpu_floor: int = 0,
) -> dict[str, Any]:
    """What a local run changes in a configuration. `more` is merged over it, by cluster and timer;
    `set_timers`: spans that the user's own file sets, which are never changed; `cpu_floor`: VMs of
    a CPU cluster that are kept ready, at pretend prices."""
    clusters: dict[str, Any] = {
        cluster.name: {
            "vm_max": min(cluster.vm_max, cap.vms),
            "vm_min": min(max(cluster.vm_min, 0 if cluster.gpus else cpu_floor), cap.vms),
        }
        for cluster in base.clusters
    }
    others = dict(more or {})
    for name, changes in others.pop("clusters", {}).items():
        clusters[name] = {**clusters.get(name, {}), **changes}
    timers = others.pop("timers", {})
    return {
        "store_url": f"file://{quote(str(store))}",
        **others,
        # A hundred groups are looked at more often than a real project could afford.
        "calls_per_minute": 20_000,
        "timers": {**local_timers(base.timers, set_timers), **timers},
        "clusters": clusters,
    }


def open_tenants(given: Mapping[str, Any]) -> dict[str, Any]:
    """On a laptop a new tenant is one more thing to try, unless the user's file says otherwise."""
    tenants = given.get("tenants")
    said = isinstance(tenants, dict) and "create_on_submit" in tenants
    return {} if said or "tenants_strict" in given else {"tenants": {"create_on_submit": True}}


def lost_by_down(given: Mapping[str, Any]) -> dict[str, Any]:
    """Each `zen down` loses all VMs of a laptop, which says nothing about the jobs on them. Many
    are forgiven, unless the user's file says otherwise."""
    budgets = given.get("budgets")
    said = isinstance(budgets, dict) and "losses" in budgets
    return {} if said else {"budgets": {"losses": LOSSES_FORGIVEN}}


def one_user(given: Mapping[str, Any]) -> dict[str, Any]:
    """Without root all jobs run as the user of the stack, so that only one tenant may have some."""
    return {} if "single_tenant" in given or os.geteuid() == 0 else {"single_tenant": True}


def bound_topic(given: Mapping[str, Any]) -> dict[str, Any]:
    """On a laptop messages on the submit topic are the default tenant's, unless the user's file
    says otherwise."""
    submit = given.get("submit")
    if isinstance(submit, dict) and "topics" in submit:
        return {}
    prefix = given.get("prefix")
    names = Names(prefix) if isinstance(prefix, str) else Names()
    return {"submit": {"topics": {names.submit_topic: {"tenant": DEFAULT_TENANT}}}}


def local_timers(base: Timers, given: Collection[str] = ()) -> Mapping[str, float]:
    """The spans that a local run shortens: none that the user's own file sets (`given`). Where the
    two do not go together (a heartbeat of 10 s, lost after 20 s), the file alone counts."""
    ours = {name: span for name, span in TIMERS.items() if name not in given}
    return {} if replace(base, **ours).faults() else ours


def write_config(
    target: Path, base: Path | None, store: Path, cap: VmCap, more: Mapping[str, Any] | None = None
) -> Settings:
    """Writes the whole configuration of a local run to `target`, and returns it, checked."""
    document = read_yaml(base or DEFAULT_PATH)
    if document.faults:
        raise ConfigError(document.faults)
    settings = load_settings(base, {})
    timers = document.values.get("timers") if base is not None else None
    given = tuple(timers) if isinstance(timers, dict) else ()
    # The shipped file keeps nothing warm, which costs money; here a first job waits for no VM.
    cpu_floor = CPU_FLOOR if base is None and cap.vms > CPU_FLOOR else 0
    document.overlay(
        open_tenants({**document.values, **(more or {})})
        | one_user({**document.values, **(more or {})})
        | lost_by_down({**({} if base is None else document.values), **(more or {})})
        | bound_topic(document.values)
        | overlay(settings, store, cap, more, given, cpu_floor)
    )
    return write_sealed(target, document.values, f"zen up ({cap.note})")


def write_sealed(target: Path, values: Mapping[str, Any], author: str) -> Settings:
    """Writes a whole configuration, such that an edit of it is noticed; returns it, checked."""
    import yaml

    text = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)
    head = f"# Written by {author}; edits take effect at once and are kept. {_seal(text)}"
    target.write_text(f"{head}\n{text}", encoding="utf-8")
    return load_settings(target, {})


def edited(target: Path) -> bool:
    """Whether the file there is not as we left it."""
    try:
        head, _, text = target.read_text(encoding="utf-8", errors="replace").partition("\n")
    except FileNotFoundError:
        return False
    return not head.endswith(_seal(text))


def _seal(text: str) -> str:
    """Tells our own words from somebody's edit of them."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for the stack's processes, without roads to the real world."""
    return {name: value for name, value in environ.items() if name not in REAL_WORLD}


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def _available_mb() -> float:
    """What the machine has to spare, or the container if that is less."""
    return min(machine_mb(), _container_mb())


def machine_mb() -> float:
    """What the machine has to spare."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass  # not Linux: ask for the physical memory below
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20 / 2


def _container_mb() -> float:
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return float("inf")  # no limit, or no such file
    return max(0, limit - used) / 2**20
