"""What came of the last simulations for room: kept from cycle to cycle by the leader."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from core.job import WAITING, Job
from core.queueing import PriorityClass
from core.waits import WaitNotes
from scheduler.plan_builder import PlanBuilder


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What came of the last simulation of a cluster."""

    first: str
    """For whom."""
    tier: PriorityClass
    at: datetime
    words: Mapping[str, str] = field(default_factory=dict)
    """Job → whose place it waits for."""


@dataclass(frozen=True, slots=True)
class Made:
    """Room that is being made."""

    served: Collection[str] = ()
    """The jobs for which others are preempted."""
    vms: Collection[str] = ()
    """Where they do."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What others leave on these VMs is for these jobs, whether they have a place or wait for one.
    It comes free piece by piece, and the first piece must not go to those who left it."""

    vms: Collection[str] = ()
    jobs: Collection[str] = ()

    def keeps(self, vm_uid: str, job: Job) -> bool:
        """Whether the VM is not for this job."""
        return vm_uid in self.vms and job.uid not in self.jobs


NOTHING_KEPT = Kept()


@dataclass(slots=True)
class Answers:
    """Of all clusters."""

    of: dict[str, SimulationResult] = field(default_factory=dict)
    """Cluster → the last one."""
    last: datetime | None = None
    """When a cluster was last asked for jobs that are not of a high class."""
    served: dict[str, datetime] = field(default_factory=dict)
    """Job → until when what others leave is for it, and for nobody else of its class. Not stored:
    a new leader goes by the order alone, which nearly always says the same."""

    left: dict[str, datetime] = field(default_factory=dict)
    """VM → until when what others leave there is for the jobs that are served. Which of them gets
    it is a matter of their order."""

    notes: WaitNotes = field(default_factory=WaitNotes)
    """What came of preemption attempts, for the jobs that they were made for."""

    def still_made(self, plan: PlanBuilder) -> Made:
        """Jobs that wait for what others leave."""
        for uid, until in list(self.served.items()):
            job = plan.jobs.get(uid)
            if job is None or job.status not in WAITING or plan.now > until:
                del self.served[uid]
        self.left = {uid: until for uid, until in self.left.items() if plan.now <= until}
        return Made(self.served.keys(), self.left.keys())

    def words(self, job: Job) -> str | None:
        """What a job is told for which room is being made."""
        answer = self.of.get(job.cluster)
        return answer.words.get(job.uid) if answer is not None else None
