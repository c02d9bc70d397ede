"""What an instance template says about a cluster, for real groups and for pretend ones alike."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from config.settings import Settings
from core.cluster import ClusterSpec
from core.containers import ContainerRules
from core.sandbox import SandboxRules
from core.timers import AGENT_TIMERS
from messaging.proofs.key_file import public_text, read_scheduler_keys

# The GPUs that are attached to n1 machines, by the name that Google gives them.
_ACCELERATORS = {
    "v100": "nvidia-tesla-v100",
    "t4": "nvidia-tesla-t4",
    "p100": "nvidia-tesla-p100",
    "p4": "nvidia-tesla-p4",
}


def accelerator(cluster: ClusterSpec) -> str | None:
    """What is attached; None for machine types that bring their GPUs, and without GPUs."""
    if not cluster.gpus or not cluster.machine_type.startswith("n1-"):
        return None
    return _ACCELERATORS.get(cluster.gpu_type, f"nvidia-{cluster.gpu_type}")


def metadata(settings: Settings, cluster: ClusterSpec, scheduler_keys: str) -> dict[str, str]:
    """What the agent on the VM reads to know whom it serves. `scheduler_keys`: public ones."""
    timers = {name: getattr(settings.timers, name) for name in AGENT_TIMERS}
    words = {
        "zen-cluster": cluster.name,
        "zen-project": settings.project,
        "zen-prefix": settings.names.prefix,
        "zen-store": settings.store_url,
        "zen-scheduler-keys": scheduler_keys,
        "zen-gpus": str(cluster.gpus),
        "zen-timers": json.dumps(timers, separators=(",", ":")),
    }
    if settings.containers != ContainerRules():
        words["zen-containers"] = json.dumps(dataclasses.asdict(settings.containers))
    if settings.sandbox != SandboxRules():
        words["zen-sandbox"] = json.dumps(dataclasses.asdict(settings.sandbox))
    if settings.pubsub_host:
        words["zen-pubsub-host"] = settings.pubsub_host
    return words


def scheduler_keys(settings: Settings) -> str:
    """Of the key file, or where they are to be put."""
    path = settings.workers.key_file
    return (
        public_text(read_scheduler_keys(Path(path)))
        if path is not None
        else "SCHEDULER_PUBLIC_KEYS"
    )


def labels(settings: Settings, cluster: ClusterSpec) -> dict[str, str]:
    """How a VM of ours is told from others in the project."""
    return {"zen-prefix": settings.names.prefix, "zen-cluster": cluster.name}
