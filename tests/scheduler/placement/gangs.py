"""Gangs and the VMs that hold them, for tests."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from core.job import E, Job, JobEvent, Lease, Membership, S
from core.job_fields import JobSpec
from core.job_steps import EventFacts, advance, new_job
from core.messages import Control, GoJob, Heartbeat, HeartbeatStatus, OutMessage, StopJob
from core.region_blocks import RegionBlock
from core.vm import Vm, VmState
from scheduler.cycle.heartbeats import ReceivedHeartbeat, apply_heartbeats
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import Silence
from scheduler.plan_builder import PlanBuilder
from tests.builders import NOW, REGIONS, RULES, cluster, dice, snapshot, vm
from tests.workers import trusted

B, V = HeartbeatStatus, VmState


def gang(name: str, size: int, now: datetime = NOW, **spec: object) -> list[Job]:
    """A gang as it is submitted."""
    words = {"command": ("true",), "replicas": size, **spec}
    return [
        new_job(
            f"{name}-uid-{rank}",
            JobSpec(job_id=f"{name}.{rank}" if rank else name, **words),  # type: ignore[arg-type]
            "1xl4",
            now,
            gang=Membership(f"{name}-uid-0", rank, size),
        )
        for rank in range(size)
    ]


def placed(members: Iterable[Job], *events: JobEvent) -> list[Job]:
    """The members on VMs of their own, after the events."""
    made = []
    for fresh in members:
        member = fresh
        assert member.gang is not None
        name = f"vm-{member.gang.rank}"
        lease = Lease(f"lease-{name}", name, f"uid-{name}", REGIONS[0], f"{REGIONS[0]}-a", (0,))
        for event in (E.ADMITTED, E.PLACED, *events):
            given = lease if event is E.PLACED else None
            member = advance(member, event, NOW, RULES, facts=EventFacts(lease=given))
        made.append(member)
    return made


def holders(members: Iterable[Job]) -> list[Vm]:
    leases = [member.lease for member in members if member.lease is not None]
    return [vm(x.vm_name, leases=(x.lease_id,), idle_since=None, zone=x.zone) for x in leases]


class World:
    """Turns over jobs and VMs that are only values."""

    def __init__(self, jobs: Iterable[Job], vms: Iterable[Vm] = (), vm_max: int = 8) -> None:
        self.jobs = {job.uid: job for job in jobs}
        self.vms = {one.uid: one for one in vms}
        self.vm_max = vm_max
        self.now = NOW
        self.told: list[Control] = []
        self.blocks: tuple[RegionBlock, ...] = ()
        self._ids = dice()

    def cycle(self, *heartbeats: Heartbeat, after_s: float = 0.0) -> PlanBuilder:
        """What is decided; the world is as decided afterwards."""
        self.now += timedelta(seconds=after_s)
        self.told = []
        seen = snapshot(tuple(self.jobs.values()), tuple(self.vms.values()), self.blocks, self.now)
        plan = PlanBuilder(seen, RULES, self._keep)
        apply_heartbeats(
            plan,
            [ReceivedHeartbeat(heartbeat, self.now, "m") for heartbeat in heartbeats],
            trusted,
        )
        around = Circumstances({"1xl4": cluster(vm_max=self.vm_max)}, Silence(()), True)
        plan_jobs(plan, seen, around, self._ids)
        self.jobs, self.vms = dict(plan.jobs), dict(plan.vms)
        return plan

    def _keep(self, message: Control) -> OutMessage:
        self.told.append(message)
        return OutMessage("control", b"")

    def heartbeat(self, uid: str, status: HeartbeatStatus, code: int | None = None) -> Heartbeat:
        job = self.jobs[uid]
        assert job.lease is not None
        return Heartbeat(
            status,
            job.lease.vm_name,
            job.spec.job_id,
            attempt=job.attempt,
            lease_id=job.lease.lease_id,
            boot_nonce="nonce",
            exit_code=code,
        )

    def lose(self, uid: str) -> None:
        """The member's VM is gone."""
        lease = self.jobs[uid].lease
        assert lease is not None
        self.vms[lease.vm_uid] = replace(self.vms[lease.vm_uid], state=V.GONE, gone_at=self.now)

    def statuses(self, name: str) -> list[S]:
        members = [j for j in self.jobs.values() if j.uid.startswith(f"{name}-uid-")]
        return [j.status for j in sorted(members, key=lambda j: j.gang.rank if j.gang else 0)]


def idle(count: int, region: str = REGIONS[0], address: str = "") -> list[Vm]:
    zone = f"{region}-a"
    return [vm(f"{region}-{n}", region=region, zone=zone, address=address) for n in range(count)]


def obey(world: World, dice_: random.Random) -> list[Heartbeat]:
    """Workers that do as they are told: claim, wait for `go`, run, end."""
    going = {m.lease_id for m in world.told if isinstance(m, GoJob)}
    stopping = {m.lease_id for m in world.told if isinstance(m, StopJob)}
    heartbeats = []
    for job in world.jobs.values():
        if job.lease is None:
            continue
        if job.lease.lease_id in stopping or job.status in (S.PREEMPTING, S.STOPPING):
            heartbeats.append(world.heartbeat(job.uid, B.STOPPED))
        elif job.status is S.ASSIGNED:
            heartbeats.append(world.heartbeat(job.uid, B.FOUND_VM))
        elif job.status is S.STARTING:
            heartbeats.append(
                world.heartbeat(job.uid, B.RUNNING if job.lease.lease_id in going else B.FOUND_VM)
            )
        elif job.status is S.RUNNING and dice_.random() < 0.2:
            heartbeats.append(world.heartbeat(job.uid, B.COMPLETED, 0))
    return heartbeats
