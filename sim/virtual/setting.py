"""Where a simulated run takes place: nine clusters over four regions, and the cloud under them."""

from __future__ import annotations

import random
from dataclasses import replace

from config.settings import ApiSettings, Settings
from core.cluster import ClusterSpec, RegionSpec
from core.job import Budgets
from core.names import Names, parse_cluster
from core.queueing import QueuePolicy, QueueRule
from core.retention import RetentionRules
from core.submit_topics import TopicBinding
from core.tenants import DEFAULT_TENANT
from core.timers import Timers
from sim.cloud.world import CloudPhysics, MigSpec, World

REGIONS = ("us-central1", "us-west1", "us-east1", "europe-west4")
_ZONES = ("a", "b")
# name, machine type, limit, floor, spot
_CLUSTERS = (
    ("1xl4", "g2-standard-4", 10, 0, True),
    ("1xv100", "n1-highmem-8", 6, 1, False),
    ("2xa100-40gb", "a2-highgpu-2g", 6, 0, False),
    ("4xa100-40gb-spot", "a2-highgpu-4g", 4, 0, True),
    ("4xa100-40gb", "a2-highgpu-4g", 3, 0, False),
    ("1xa100-80gb", "a2-ultragpu-1g", 5, 0, False),
    ("8xh100-80gb", "a3-highgpu-8g", 3, 0, False),
    ("4xl4", "g2-standard-48", 4, 0, False),
    ("0xcpu", "n1-standard-4", 4, 1, False),
)
_SHARED = ("4xl4", "4xa100-40gb-spot")
"""Whose VMs take several jobs at once."""
_QUEUES = {"1xv100": QueueRule.FIFO, "1xa100-80gb": QueueRule.PRIORITY}
"""Whose queue is not a fair one."""
_FLEX_WAIT_S = {"2xa100-40gb": 300.0, "1xa100-80gb": 120.0, "8xh100-80gb": 600.0}
"""Whose gangs ask for all their VMs at once, and wait so long in the cloud's queue."""
# Blocks are shorter than in real life, so that a healed world comes to rest in little time.
TIMERS = replace(
    Timers(),
    loop_interval_s=6.0,
    observe_s=8.0,
    start_timeout_s=90.0,
    boot_timeout_s=300.0,
    idle_timeout_s=150.0,
    quota_block_s=120.0,
    unsupported_block_s=300.0,
    permission_block_s=150.0,
    unknown_block_s=20.0,
    stockout_block_max_s=150.0,
)

PHYSICS = CloudPhysics(create_s=(3.0, 10.0), boot_s=(8.0, 25.0), retry_s=20.0)
"""Quicker than Google, so that machines are not mostly seen booting."""


def clusters() -> tuple[ClusterSpec, ...]:
    """As the configuration would say."""
    return tuple(_cluster(*row) for row in _CLUSTERS)


def settings() -> Settings:
    """As `config.load` would give them."""
    return Settings(
        project="zen-simulated",
        names=Names(),
        clusters=clusters(),
        timers=TIMERS,
        budgets=Budgets(losses=5, preemptions=50),
        queue=QueuePolicy(least_run_s=5.0, grow_pause_s=3.0),
        retention=RetentionRules(),
        database_url="",
        pubsub_host=None,
        cloud={"compute_url": None, "identity_certs_url": None, "calls_per_minute": 600},
        store_url="file:///nowhere",
        v1_results_url=None,
        api=ApiSettings(),
        queue_limit=1000,
        log_level="error",
        prices_as_of="2026-01-01",
        submit_topics=(TopicBinding(Names().submit_topic, DEFAULT_TENANT),),
    )


def cloud_world(seed: int, names: Names, dice: random.Random) -> World:
    """The groups of those clusters. One of them repairs, against our advice: its VMs come back
    under the same name."""
    specs = [
        MigSpec(
            name=names.mig(cluster.name, region.region),
            region=region.region,
            zones=region.zones,
            base_instance_name=names.vm_base(cluster.name, region.region),
            machine_type=cluster.machine_type,
            gpus=cluster.gpus,
            accelerator="nvidia-tesla-v100" if "v100" in cluster.name else None,
            spot=cluster.spot,
            labels=(("zen", "1"),),
        )
        for cluster in clusters()
        for region in cluster.regions
    ]
    odd = dice.randrange(len(specs))
    specs[odd] = replace(specs[odd], default_action_on_failure="REPAIR")
    return World("zen-simulated", tuple(specs), PHYSICS, seed=seed)


def _cluster(name: str, machine_type: str, vm_max: int, vm_min: int, spot: bool) -> ClusterSpec:
    gpus, gpu_type = parse_cluster(name)
    regions = tuple(
        RegionSpec(
            region=region,
            zones=tuple(f"{region}-{zone}" for zone in _ZONES),
            usd_per_hour=max(0.1, gpus) * (2.0 + 0.1 * index),
            spot_usd_per_hour=max(0.1, gpus) * (0.7 + 0.1 * index),
        )
        for index, region in enumerate(REGIONS)
    )
    return ClusterSpec(
        name=name,
        gpu_type=gpu_type,
        gpus=gpus,
        machine_type=machine_type,
        vm_max=vm_max,
        vm_min=vm_min,
        regions=regions,
        spot=spot,
        share=name in _SHARED,
        queue=_QUEUES.get(name, QueueRule.FAIR),
        flex_start_wait_s=_FLEX_WAIT_S.get(name),
        gpu_memory_gb=40 if gpus else 0,
        cpus=12,
        memory_gb=85,
    )
