"""Moments that last a second, and that chance alone meets in one run of many: they are looked for,
and something goes wrong just then."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.job import Job, JobStatus
from sim.virtual.pretend_vms import AgentBoot, PretendVms
from sim.virtual.replicas import Ground

S = JobStatus
LOOK_S = 1.0
TAKEN_ODDS = 0.6
CUT_OFF_S = (20.0, 40.0)
HALF_WAY = {S.PREEMPTING: 1.0, S.ASSIGNED: 1.0, S.STARTING: 0.7, S.PROVISIONING: 0.1}
"""Where a member may be, and how often its gang fails then; the states that are soonest over most
often."""
RARE_FAULTS = ("gang_failed_half_way", "leaving_vm_taken")


@dataclass(frozen=True, slots=True)
class RareMoments:
    """Looks every few seconds until it is over."""

    ground: Ground
    fleet: PretendVms
    dice: random.Random
    over: Callable[[], bool]

    def look(self) -> None:
        if self.over():
            return
        # What the cloud deletes at this very moment is gone, also if its own turn comes after ours.
        self.ground.cloud.settle()
        gangs: dict[str, list[Job]] = {}
        for job in list(self.ground.store.tables.live.values()):
            if job.gang is not None:
                gangs.setdefault(job.gang.uid, []).append(job)
            if job.status is S.PREEMPTING and self.dice.random() < TAKEN_ODDS:
                self._take(job)
        for members in gangs.values():
            self._fail(members)
        self.ground.loop.later(LOOK_S, self.look)

    def _fail(self, members: Sequence[Job]) -> None:
        """The first member of a gang fails for good while another is on its way to its VM, or away
        from it, and cannot be heard."""
        half_way = [job for job in members if job.status in HALF_WAY]
        first = next((job for job in members if _is_first(job) and job.status is S.RUNNING), None)
        if first is None or not half_way or first.failures < first.spec.retries:
            return
        worker, odds = self._worker(first), max(HALF_WAY[job.status] for job in half_way)
        if worker is None or self.dice.random() >= odds or not worker.fail(_lease_of(first)):
            return
        self.ground.trace.fault("gang_failed_half_way", first.spec.job_id)
        for job in half_way:
            there = self._worker(job)
            if there is not None:
                self._cut_off(there.process.name)

    def _take(self, job: Job) -> None:
        """The cloud takes the VM that the job is just leaving, without a notice."""
        worker = self._worker(job)
        if worker is not None and worker.info.spot:
            info, now = worker.info, self.ground.loop.time()
            self.ground.trace.fault("leaving_vm_taken", info.name)
            self.ground.cloud.cloud.stop_instance(info.zone, info.name, None, now)
            self.ground.cloud.settle()

    def _cut_off(self, name: str) -> None:
        broker = self.ground.broker
        broker.cut_off.add(name)
        self.ground.loop.later(self.dice.uniform(*CUT_OFF_S), broker.reconnect, name)

    def _worker(self, job: Job) -> AgentBoot | None:
        name = job.lease.vm_name if job.lease is not None else ""
        found = (worker for worker in self.fleet.workers() if worker.info.name == name)
        return next((worker for worker in found if isinstance(worker, AgentBoot)), None)


def _is_first(job: Job) -> bool:
    return job.gang is not None and job.gang.rank == 0


def _lease_of(job: Job) -> str:
    return job.lease.lease_id if job.lease is not None else ""
