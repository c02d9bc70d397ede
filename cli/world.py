"""The pretend cloud for a configuration: a group for each cluster in each region."""

from __future__ import annotations

from cli.templates import accelerator, labels, metadata
from config.settings import Settings
from core.capacity import ClusterSpec, RegionSpec

# Boots that a person can watch: the order of things is the real one, the waiting is not.
QUICK = {
    "create_s": [0.2, 0.8],
    "boot_s": [0.5, 1.5],
    "retry_s": 2.0,
    "stockout_answer_s": 1.0,
    "delete_s": 1.0,
    "spot_notice_s": 5.0,
}


def build_world(settings: Settings, vms_max: int) -> dict[str, object]:
    """The world file of the pretend cloud, as JSON values. `vms_max` binds all clusters together:
    the pretend VMs share one machine."""
    return {
        "project": settings.project,
        "migs": [
            _mig(settings, cluster, region)
            for cluster in settings.clusters
            if cluster.pool == "mig"
            for region in cluster.regions
        ],
        "physics": {**QUICK, "vms_max": vms_max},
    }


def _mig(settings: Settings, cluster: ClusterSpec, region: RegionSpec) -> dict[str, object]:
    attached = accelerator(cluster)
    return {
        "name": settings.names.mig(cluster.name, region.region),
        "region": region.region,
        "zones": list(region.zones),
        "base_instance_name": settings.names.vm_base(cluster.name, region.region),
        "machine_type": cluster.machine_type,
        "gpus": cluster.gpus,
        **({"accelerator": attached} if attached else {}),
        "spot": cluster.spot,
        "metadata": metadata(settings, cluster),
        "labels": labels(settings, cluster),
    }
