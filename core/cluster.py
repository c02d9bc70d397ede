"""A cluster: one kind of machine, its regions and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from core.clouds import CLOUDS, CloudTerms
from core.floors import Floor
from core.queueing import QueueRule
from core.slots import slots_of


class SupplyKey(NamedTuple):
    """What the supply history and region blocks are kept for."""

    region: str
    zone: str
    """Empty: the whole region."""
    offering: str
    """The kind of machine, as ClusterSpec.offering names it."""
    spot: bool


WorkerKind = Literal["v1", "v2"]
"""pipeline-zen's worker, or this product's agent."""


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """One region of a cluster and what a VM costs there (the whole machine, per hour)."""

    region: str
    zones: tuple[str, ...]
    usd_per_hour: float
    spot_usd_per_hour: float
    vm_max: int | None = None
    node: str = ""
    """Of a static pool: where the service of this machine listens."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """One kind of machine, over all its regions, under one limit."""

    name: str
    gpu_type: str
    gpus: int
    """Per VM; 0: a CPU cluster, whose VMs run jobs without GPUs."""
    machine_type: str
    vm_max: int
    """Binds booting + idle + busy VMs over all regions: a guarantee about money."""
    regions: tuple[RegionSpec, ...]
    vm_min: int = 0
    spot: bool = False
    drain: bool = False
    """Takes no new jobs and is given back as its jobs end; its limits are zero then."""
    worker: WorkerKind = "v2"
    trusted_tenants_only: bool = False
    """Its workers cannot prove who they are (v1): for tenants that trust each other."""
    pool: str = "mig"
    """Where its VMs come from: a key of CLOUDS."""
    gpu_memory_gb: int = 0
    """Per GPU."""
    cpus: int = 0
    memory_gb: int = 0
    idle_timeout_s: float | None = None
    """A VM without work is given back after exactly this long. None: when keeping it warm is not
    worth its price, at the latest after the timer of the whole service."""
    queue: QueueRule = QueueRule.FAIR
    """How the jobs that wait for it are ordered."""
    floors: tuple[Floor, ...] = ()
    """Higher floors than `vm_min` at some hours."""
    share: bool = False
    """Several jobs on one VM, each on GPUs of its own; else a job has its VM to itself."""
    share_between_tenants: bool = False
    """Jobs of different tenants too; else the jobs of a VM are of one tenant."""
    flex_start_wait_s: float | None = None
    """A gang's VMs are asked for by one request, all or none, which waits in the cloud's own queue
    for at most this long. None: they are asked for one by one, as any others."""

    @property
    def terms(self) -> CloudTerms:
        """Of the cloud that its VMs come from."""
        return CLOUDS[self.pool]

    @property
    def slots(self) -> int:
        """How many parts of a VM can be leased: its GPUs, or the one of a VM without GPUs."""
        return slots_of(self.gpus)

    @property
    def keeps_tenants_apart(self) -> bool:
        """Whether a VM that has a job takes no job of another tenant."""
        return self.share and not self.share_between_tenants

    def jobs_per_vm(self, gpu_count: int) -> int:
        """How many jobs with so many GPUs one of its VMs runs at once."""
        return self.gpus // gpu_count if self.share and gpu_count else 1

    @property
    def offering(self) -> str:
        """What region blocks and the supply history are kept for. The same machine type without
        GPUs is another one: that n1-standard-4 with a T4 is sold out says nothing about it."""
        return self.machine_type if self.gpus else f"{self.machine_type} without GPUs"

    def supply_key(self, region: str, zone: str = "") -> SupplyKey:
        """Under which this cluster's supply there is known; without a zone, of the whole region."""
        return SupplyKey(region, zone, self.offering, self.spot)

    def region(self, name: str) -> RegionSpec:
        """The region by name; it must be one of this cluster's."""
        return next(r for r in self.regions if r.region == name)

    def usd_per_hour(self, region: str) -> float:
        """What a VM of this cluster costs there."""
        spec = self.region(region)
        return spec.spot_usd_per_hour if self.spot else spec.usd_per_hour

    @property
    def cheapest_usd_per_hour(self) -> float:
        """What a VM costs in the cheapest region; nothing if there is none left."""
        if self.spot:
            return min((r.spot_usd_per_hour for r in self.regions), default=0.0)
        return min((r.usd_per_hour for r in self.regions), default=0.0)
