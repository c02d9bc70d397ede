"""A small cluster with a queue, for tests of preemption."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from core.changes import Charge, Snapshot
from core.cluster import ClusterSpec
from core.job import E, Job, Lease, Membership, S
from core.job_fields import JobSpec
from core.job_steps import EventFacts, advance, new_job
from core.messages import Control, Heartbeat, HeartbeatStatus, OutMessage
from core.region_blocks import RegionBlock
from core.tenants import Tenant, Usage
from core.vm import Vm
from scheduler.cycle.heartbeats import ReceivedHeartbeat, apply_heartbeats
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import Silence
from scheduler.forecast.run_times import Guess, unknown
from scheduler.placement.simulation_results import Answers
from scheduler.plan_builder import PlanBuilder
from tests.builders import NOW, REGIONS, RULES, cluster, dice, vm
from tests.workers import trusted

LOW, NORMAL, URGENT = 100, 500, 2000
HOUR = 3600.0


class World:
    """Turns over values. `saved_s` ago every job has saved its work; None: never."""

    def __init__(self, spec: ClusterSpec, *, saved_s: float | None = 60.0, **tenants: Tenant):
        self.spec, self.tenants, self.saved_s = spec, tenants, saved_s
        self.jobs: dict[str, Job] = {}
        self.vms: dict[str, Vm] = {}
        self.now = NOW
        self.told: list[Control] = []
        self.reasons: dict[str, str] = {}
        self.blocks: tuple[RegionBlock, ...] = ()
        self.answers = Answers()
        self.usage: dict[str, Usage] = {}
        self.short: set[str] = set()
        """Jobs that are known to run for a minute."""
        self.rules = RULES
        self._ids = dice()

    def vm(self, name: str, region: str = REGIONS[0]) -> str:
        made = vm(name, region=region, zone=f"{region}-a", gpus=self.spec.gpus)
        self.vms[made.uid] = replace(made, cluster=self.spec.name)
        return made.uid

    def waits(self, name: str, priority: int = NORMAL, waited_s: float = 0.0, **spec: Any) -> Job:
        job = job_of(name, self.spec.name, self.now - timedelta(seconds=waited_s), priority, **spec)
        self.jobs[job.uid] = job
        return job

    def gang(self, name: str, size: int, priority: int = NORMAL, waited_s: float = 0.0) -> None:
        since = self.now - timedelta(seconds=waited_s)
        for rank in range(size):
            job_id = f"{name}.{rank}" if rank else name
            spec = JobSpec(job_id, command=("x",), priority=priority, replicas=size)
            member = Membership(f"{name}-0", rank, size)
            self.jobs[f"{name}-{rank}"] = new_job(
                f"{name}-{rank}", spec, self.spec.name, since, gang=member
            )

    def run(self, uid: str, vm_uid: str, ran_s: float = HOUR, slots: tuple[int, ...] = (0,)) -> Job:
        """The job has run there for so long."""
        job, began = self.jobs[uid], self.now - timedelta(seconds=ran_s)
        on = self.vms[vm_uid]
        lease = Lease(f"lease-{uid}", on.name, vm_uid, on.region, on.zone, slots)
        assert job.due_at is not None
        due = job.due_at - timedelta(seconds=ran_s)
        job = replace(job, due_at=due, submitted_at=began, queued_since=began, status_since=began)
        for event in (E.ADMITTED, E.PLACED, E.CLAIMED, E.STARTED):
            job = advance(
                job,
                event,
                began,
                RULES,
                facts=EventFacts(lease=lease if event is E.PLACED else None),
            )
        self.jobs[uid] = job
        self.vms[vm_uid] = replace(on, leases=(*on.leases, lease.lease_id), idle_since=None)
        return job

    def cycle(self, *heartbeats: Heartbeat, after_s: float = 0.0) -> PlanBuilder:
        self.now += timedelta(seconds=after_s)
        self.told = []
        jobs, vms = tuple(self.jobs.values()), tuple(self.vms.values())
        tenants, usage = self.tenants, dict(self.usage)
        seen = Snapshot(self.now, jobs, vms, self.blocks, (), {}, {}, tenants=tenants, usage=usage)
        plan = PlanBuilder(seen, self.rules, self._keep)
        apply_heartbeats(
            plan,
            [ReceivedHeartbeat(heartbeat, self.now, "m") for heartbeat in heartbeats],
            trusted,
        )
        around = Circumstances(
            {self.spec.name: self.spec},
            Silence(()),
            True,
            guess=lambda job: MINUTE if job.uid in self.short else unknown(job),
            saved_at=self._saved_at,
            answers=self.answers,
        )
        self.reasons |= {n.uid: n.why for n in plan_jobs(plan, seen, around, self._ids)}
        self.jobs, self.vms = dict(plan.jobs), dict(plan.vms)
        for change in (change for batch in plan.batches for change in batch):
            if isinstance(change, Charge):
                used = self.usage.get(change.tenant_id, Usage())
                charged = used.plus(change.gpu_s, change.at, change.half_life_s)
                self.usage[change.tenant_id] = charged
        return plan

    def _saved_at(self, job: Job) -> datetime | None:
        return None if self.saved_s is None else self.now - timedelta(seconds=self.saved_s)

    def _keep(self, message: Control) -> OutMessage:
        self.told.append(message)
        return OutMessage("control", b"")

    def asked(self) -> set[str]:
        """Which jobs are preempted."""
        return {uid for uid, job in self.jobs.items() if job.status is S.PREEMPTING}

    def preempted(self) -> list[Heartbeat]:
        """The last heartbeats of the preempted jobs."""
        return [
            self._heartbeat(self.jobs[uid], HeartbeatStatus.STOPPED) for uid in sorted(self.asked())
        ]

    @staticmethod
    def _heartbeat(job: Job, status: HeartbeatStatus) -> Heartbeat:
        assert job.lease is not None
        return Heartbeat(
            status,
            job.lease.vm_name,
            job.spec.job_id,
            attempt=job.attempt,
            lease_id=job.lease.lease_id,
            boot_nonce="nonce",
        )


MINUTE = Guess((50.0,) * 9, "9 past runs")


def job_of(name: str, where: str, since: datetime, priority: int, **spec: Any) -> Job:
    words = {"command": ("true",), "priority": priority, **spec}
    return new_job(name, JobSpec(name, **words), where, since)


def full(vms: int, priority: int = LOW, ran_s: float = HOUR, **more: Any) -> World:
    """A cluster whose VMs all run a job."""
    world = World(cluster(vm_max=vms), **more)
    for number in range(vms):
        world.waits(f"old-{number}", priority)
        world.run(f"old-{number}", world.vm(f"vm-{number}"), ran_s)
    return world


def status(world: World, uid: str) -> S:
    return world.jobs[uid].status
