"""The pretend cloud for a configuration: a group for each cluster in each region."""

from __future__ import annotations

from collections.abc import Mapping

from cli.local.templates import accelerator, labels, metadata
from config.settings import Settings
from core.cluster import ClusterSpec, RegionSpec

# Boots that a person can watch: the order of things is the real one, the waiting is not.
QUICK = {
    "create_s": [0.2, 0.8],
    "boot_s": [0.5, 1.5],
    "retry_s": 2.0,
    "stockout_answer_s": 1.0,
    "delete_s": 1.0,
    "spot_notice_s": 5.0,
    "maintenance_notice_s": 60.0,
}
NOBODY = "#!/bin/sh\nexec sleep 86400\n"
"""A VM on which no worker lives."""


def build_world(
    settings: Settings,
    vms_max: int,
    scheduler_keys: str,
    v1_worker: str = "",
    v1_metadata: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """The world file of the pretend cloud, as JSON values. `vms_max` binds all clusters together:
    the pretend VMs share one machine. `scheduler_keys`: public ones, for the instance templates.
    `v1_worker`: the script that VMs with v1 workers run, `v1_metadata`: what their instance
    templates say besides."""
    v1 = {**(v1_metadata or {}), "startup-script": v1_worker or NOBODY}
    return {
        "project": settings.project,
        "migs": [
            _mig(settings, cluster, region, scheduler_keys, v1)
            for cluster in settings.clusters
            if cluster.pool == "mig"
            for region in cluster.regions
        ],
        "physics": {**QUICK, "vms_max": vms_max},
    }


def _mig(
    settings: Settings,
    cluster: ClusterSpec,
    region: RegionSpec,
    scheduler_keys: str,
    v1: Mapping[str, str],
) -> dict[str, object]:
    attached = accelerator(cluster)
    words = metadata(settings, cluster, scheduler_keys)
    words["zen-pretend-gpus"] = "true"
    if cluster.worker == "v1":
        words |= v1
    return {
        "name": settings.names.mig(cluster.name, region.region),
        "region": region.region,
        "zones": list(region.zones),
        "base_instance_name": settings.names.vm_base(cluster.name, region.region),
        "machine_type": cluster.machine_type,
        "gpus": cluster.gpus,
        **({"accelerator": attached} if attached else {}),
        "spot": cluster.spot,
        "metadata": words,
        "labels": labels(settings, cluster),
    }
