"""What a cluster is asked for: one VM per job that is admitted and has none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from core.vm import Vm


class VmRequestKind(StrEnum):
    """For whom a VM is asked for."""

    JOB = "job"
    """A job that is admitted and has no VM."""
    FLOOR = "floor"
    """Nobody waits: the cluster keeps so many VMs warm."""
    SPARE = "spare"
    """Nobody waits yet: the next job is expected to."""


@dataclass(frozen=True, slots=True)
class VmRequest:
    """One VM, and what it must be for the job that needs it."""

    regions: tuple[str, ...] = ()
    """The regions that the job allows; empty: any."""
    max_usd_per_hour: float | None = None
    """What the VM may cost at most."""
    since: datetime | None = None
    """How long it has waited: the price it may pay grows with it. None: no job waits."""
    start_by: datetime | None = None
    """A job with a deadline takes any price that it allows from here on; before, it waits for one
    within the price band."""
    left_s: float = 0.0
    """What remains of its run, if it has a deadline."""
    denied: tuple[str, ...] = ()
    """Regions that the job does not allow."""
    gpus: int = 1
    """How many of the VM's GPUs it needs, where jobs share VMs; the same for the next two."""
    cpus: float = 0.0
    memory_mb: float = 0.0
    tenant: str = ""
    """Whose job it is; empty: nobody's."""
    gang: str = ""
    """Whose member it is; empty: nobody's."""
    run_s: float = 0.0
    """How long it may run."""
    job: str | None = None
    """The uid of the job that waits; of several that share a VM, the first in the queue. Of a spare
    VM, the job that the next one is expected to be like."""
    kind: VmRequestKind = VmRequestKind.JOB
    position: int = 0
    """Of a job: its place in the order of admission."""

    def allows(self, region: str, usd_per_hour: float) -> bool:
        """Whether a VM there, at that price, serves it."""
        cheap = self.max_usd_per_hour is None or usd_per_hour <= self.max_usd_per_hour
        return cheap and self.in_reach(region)

    def served_by(self, vm: Vm, now: datetime) -> bool:
        """Whether that VM would do; one that is a gang's, for its members only."""
        able = vm.gang == self.gang if vm.together else vm.lasts(self.run_s, now)
        return able and self.allows(vm.region, vm.usd_per_hour)

    def waited_s(self, now: datetime) -> float:
        return 0.0 if self.since is None else max(0.0, (now - self.since).total_seconds())

    def has_slack(self, now: datetime) -> bool:
        """Whether it has a deadline, and time to wait for a better price."""
        return self.start_by is not None and now < self.start_by

    def in_reach(self, region: str) -> bool:
        return region not in self.denied and (not self.regions or region in self.regions)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a cluster is asked for, in the order of admission."""

    cluster: str
    requests: tuple[VmRequest, ...] = ()
