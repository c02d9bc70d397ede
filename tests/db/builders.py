"""Jobs, VMs and steps for tests of stores: all made by core's own functions."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from core.changes import Change, JobMove, NewJob, NewVm, VmMove
from core.ids import RandomIds
from core.job import Job, JobEvent, Lease, Rules
from core.job_fields import JobSpec
from core.job_steps import EventFacts, advance, entry_for, new_job
from core.ports import Store
from core.submission import content_hash
from core.vm import Vm, VmEvent, VmState, advance_vm, take_lease

T0 = datetime(2026, 1, 1, tzinfo=UTC)
RULES = Rules()


def at(seconds: float) -> datetime:
    """A moment after T0."""
    return T0 + timedelta(seconds=seconds)


class Maker:
    """Makes things with ids of their own."""

    def __init__(self, seed: int = 1) -> None:
        self._ids = RandomIds(random.Random(seed))
        self._count = 0

    def job(
        self,
        job_id: str | None = None,
        *,
        now: datetime = T0,
        cluster: str = "1xl4",
        **spec: object,
    ) -> Job:
        self._count += 1
        made = JobSpec(job_id=job_id or f"job-{self._count}", command=("true",), **spec)  # type: ignore[arg-type]
        return replace(new_job(self._ids.uid(now), made, cluster, now), reason="submitted")

    def vm(self, name: str | None = None, *, cluster: str = "1xl4", price: float = 2.0) -> Vm:
        self._count += 1
        return Vm(
            uid=self._ids.uid(T0),
            name=name or f"vm-{self._count}",
            cluster=cluster,
            region="us-central1",
            state=VmState.REQUESTED,
            version=1,
            request_id=self._ids.request_id(),
            gpus=1,
            spot=False,
            usd_per_hour=price,
            requested_at=T0,
            state_since=T0,
        )

    def lease(self, vm: Vm) -> Lease:
        return Lease(self._ids.token(), vm.name, vm.uid, vm.region, "us-central1-a", (0,))


def submitted(job: Job) -> NewJob:
    """The change that a submission is."""
    return NewJob(job, entry_for(None, job, JobEvent.SUBMITTED), content_hash(job.spec))


def step(
    job: Job,
    event: JobEvent,
    now: datetime = T0,
    *,
    lease: Lease | None = None,
    exit_code: int | None = None,
) -> JobMove:
    """The change that an event makes."""
    after = advance(
        job,
        event,
        now,
        RULES,
        facts=EventFacts(lease=lease, exit_code=exit_code),
    )
    return JobMove(job, after, (entry_for(job, after, event),))


def ready(vm: Vm, now: datetime = T0) -> VmMove:
    return VmMove(vm, advance_vm(vm, VmEvent.WORKER_READY, now, "said READY", running_since=now))


def leased(vm: Vm, lease: Lease) -> VmMove:
    return VmMove(vm, take_lease(vm, lease.lease_id))


async def put(store: Store, *changes: Change) -> None:
    """One atomic batch that must be accepted."""
    committed = await store.commit([changes], None)
    assert committed.all_applied, committed.refusals


async def put_ready_vm(store: Store, maker: Maker, *, price: float = 2.0) -> Vm:
    vm = maker.vm(price=price)
    move = ready(vm)
    await put(store, NewVm(vm, vm_max=1000), move)
    return move.after


async def put_placed(store: Store, maker: Maker, job: Job, vm: Vm, now: datetime) -> tuple[Job, Vm]:
    """The job, submitted before, on the VM."""
    admitted = step(job, JobEvent.ADMITTED, now)
    lease = maker.lease(vm)
    placed = step(admitted.after, JobEvent.PLACED, now, lease=lease)
    taken = leased(vm, lease)
    await put(store, admitted, placed, taken)
    return placed.after, taken.after
