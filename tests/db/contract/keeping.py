"""What a store keeps from snapshot to snapshot is what a store that knows nothing reads."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from core.active import ActiveIndex
from core.changes import (
    Change,
    Charge,
    JobMove,
    NewVm,
    PendingReason,
    PutTenant,
    Snapshot,
    VmHeartbeat,
    VmMove,
)
from core.health import BadGpu, GpuFault, VmHealth
from core.job import Job, JobEvent, Lease, S
from core.ports import Store
from core.tenants import Quota, Tenant
from core.vm import Vm, VmEvent, VmState, advance_vm, drop_lease, take_lease
from tests.db.builders import Maker, at, step, submitted

E = JobEvent
V = VmState
T = TypeVar("T")
Another = Callable[[], Awaitable[Store]]
STEPS = 60
_ENDS = (E.EXITED_OK, E.EXITED_ERROR, E.VM_LOST, E.STOP_ASKED)


class History:
    """Something happens, again and again, through either of two doors."""

    def __init__(self, doors: tuple[Store, Store], maker: Maker, seed: int) -> None:
        self._doors, self._maker, self._dice = doors, maker, random.Random(seed)
        self.jobs: dict[str, Job] = {}
        self.vms: dict[str, Vm] = {}
        self._version = 0

    async def go_on(self, second: int) -> None:
        """A few things in one commit, perhaps by somebody else; what grows no version is the
        leader's, who has the first door."""
        changes: list[Change] = []
        for _ in range(self._dice.randrange(1, 4)):
            changes += self._one(second)
        if not changes:
            return
        door = self._dice.choice(self._doors)
        done = await door.commit([tuple(changes)], None)
        assert done.all_applied, done.refusals
        said = self._words(second)
        if said:
            assert (await self._doors[0].commit([(word,) for word in said], None)).all_applied

    def _one(self, second: int) -> list[Change]:
        kind = self._dice.choice([self._submit, self._machine, self._move, self._place, self._turn])
        return kind(second)

    def _submit(self, second: int) -> list[Change]:
        job = self._maker.job(now=at(second), tenant_id=self._dice.choice("ab"), queue_timeout_s=40)
        self.jobs[job.uid] = job
        return [submitted(job)]

    def _machine(self, second: int) -> list[Change]:
        vm = self._maker.vm(cluster=self._dice.choice(("1xl4", "4xl4")))
        awake = advance_vm(vm, VmEvent.WORKER_READY, at(second), "ready", boot_nonce="n")
        self.vms[vm.uid] = awake
        return [NewVm(vm, 1000), VmMove(vm, awake)]

    def _place(self, second: int) -> list[Change]:
        job = self._any(self.jobs, lambda j: j.status in (S.QUEUED, S.PROVISIONING))
        vm = self._any(self.vms, lambda v: v.idle)
        if job is None or vm is None:
            return []
        moves = [] if job.status is S.PROVISIONING else [step(job, E.ADMITTED, at(second))]
        lease = self._maker.lease(vm)
        moves.append(step(moves[-1].after if moves else job, E.PLACED, at(second), lease=lease))
        return [*map(self._moved, moves), self._put(vm, take_lease(vm, lease.lease_id))]

    def _move(self, second: int) -> list[Change]:
        job = self._any(self.jobs, lambda j: not j.status.final)
        if job is None:
            return []
        match job.status:
            case S.QUEUED:
                event = self._dice.choice((E.ADMITTED, E.STOP_ASKED))
            case S.PROVISIONING:
                event = self._dice.choice((E.WITHDRAWN, E.STOP_ASKED))
            case S.STOPPING:
                event = E.STOPPED
            case S.RUNNING:
                event = self._dice.choice(_ENDS)
            case _:
                event = E.STARTED
        code = 1 if event is E.EXITED_ERROR else None
        move = step(job, event, at(second), exit_code=code)
        return [self._moved(move), *self._let_go(job.lease, move.after, second)]

    def _let_go(self, lease: Lease | None, after: Job, second: int) -> list[Change]:
        if lease is None or after.lease is not None or self._dice.random() < 0.3:
            return []  # some are forgotten: the job is gone, the VM still speaks of it
        vm = self.vms[lease.vm_uid]
        return [self._put(vm, drop_lease(vm, lease.lease_id, at(second)))]

    def _turn(self, second: int) -> list[Change]:
        """A VM goes its way, or is found to be unwell; or a tenant is set up."""
        vm = self._any(self.vms, lambda v: v.state is not V.GONE)
        if vm is None or self._dice.random() < 0.2:
            self._version += 1
            quota = Quota(jobs=self._dice.randrange(9))
            return [PutTenant(Tenant("c", quota=quota, version=self._version))]
        if self._dice.random() < 0.3:
            unhealthy = VmHealth((BadGpu(0, GpuFault.HOT, "hot", at(second)),))
            return [self._put(vm, replace(vm, health=unhealthy, version=vm.version + 1))]
        onward = {
            V.READY: VmEvent.DRAIN_ASKED,
            V.DRAINING: VmEvent.DELETE_ASKED,
            V.DELETING: VmEvent.NOT_LISTED,
        }[vm.state]
        return [self._put(vm, advance_vm(vm, onward, at(second), "so it goes"))]

    def _words(self, second: int) -> list[Change]:
        said: list[Change] = [Charge("a", 10.0, at(second), 3600.0)]
        if (vm := self._any(self.vms, lambda _: True)) is not None:
            said.append(VmHeartbeat(vm.uid, at(second)))
        if (job := self._any(self.jobs, lambda j: j.lease is None)) is not None:
            said.append(PendingReason(job.uid, f"waits at {second}"))
        return said

    def _any(self, rows: dict[str, T], fits: Callable[[T], bool]) -> T | None:
        found = [row for row in rows.values() if fits(row)]
        return self._dice.choice(found) if found else None

    def _moved(self, move: JobMove) -> JobMove:
        self.jobs[move.after.uid] = move.after
        return move

    def _put(self, before: Vm, after: Vm) -> VmMove:
        self.vms[after.uid] = after
        return VmMove(before, after)


class Keeping:
    @pytest.mark.parametrize("seed", range(4))
    async def test_what_is_kept_is_what_is_stored(
        self, store: Store, another: Another, maker: Maker, seed: int
    ) -> None:
        """Whatever happened, through whichever door."""
        history = History((store, await another()), maker, seed)
        dice = random.Random(seed)
        for second in range(1, STEPS):
            await history.go_on(second)
            if dice.random() < 0.4:
                await store.snapshot(dice.choice((0, 100)))
            if second % 10 == 0:
                same(await store.snapshot(100), await (await another()).snapshot(100), second)
        assert any(job.lease for job in history.jobs.values())

    async def test_a_leader_that_returns_knows_the_heartbeats_of_the_other(
        self, store: Store, another: Another, maker: Maker
    ) -> None:
        """Heartbeats grow no version: a new term begins with a whole snapshot."""
        other, vm = await another(), maker.vm()
        first = await store.lead("one", 100.0)
        assert (await store.commit([(NewVm(vm, 9),)], first.term)).all_applied
        assert [seen.last_beat_at for seen in (await store.snapshot(1)).vms] == [None]
        await store.resign("one", first.term)
        second = await other.lead("two", 100.0)
        assert (await other.commit([(VmHeartbeat(vm.uid, at(5)),)], second.term)).all_applied
        await other.resign("two", second.term)
        await store.lead("one", 100.0)
        assert [seen.last_beat_at for seen in (await store.snapshot(1)).vms] == [at(5)]


def same(kept: Snapshot, whole: Snapshot, second: int) -> None:
    """Rows, words, and every index."""
    assert {job.uid: job for job in kept.jobs} == {job.uid: job for job in whole.jobs}
    assert {vm.uid: vm for vm in kept.vms} == {vm.uid: vm for vm in whole.vms}
    waiting = [job.uid for job in whole.jobs if job.status in (S.QUEUED, S.PROVISIONING)]
    assert {uid: kept.reasons[uid] for uid in waiting} == {
        uid: whole.reasons[uid] for uid in waiting
    }
    assert dict(kept.tenants) == dict(whole.tenants)
    for name, usage in whole.usage.items():
        assert kept.usage[name].gpu_s == pytest.approx(usage.gpu_s)
    assert kept.active is not None
    fresh = ActiveIndex.of(whole.jobs, whole.vms)
    assert facts(kept.active, second) == facts(fresh, second)


def facts(active: ActiveIndex, second: int) -> dict[str, object]:
    """All that can be asked."""
    census = active.census
    return {
        "leases": active.leases,
        "names": active.names,
        "sets": [
            set(some)
            for some in (
                *(active.admitted, active.in_flight, active.beyond_use),
                *(active.ailing, active.homeless),
            )
        ],
        "gangs": {name: set(uids) for name, uids in active.gangs.items()},
        "partial": set(active.partial),
        "on": {uid: set(active.jobs_on(uid)) for uid in active.vms},
        "leased in": {name: set(active.leased_in(name)) for name in ("1xl4", "4xl4")},
        "counted": {name: active.counted_in(name) for name in ("1xl4", "4xl4")},
        "idle in": {name: set(active.idle_in(name)) for name in ("1xl4", "4xl4")},
        "vms of": {name: set(active.vms_of(name)) for name in ("1xl4", "4xl4")},
        "due": {job.uid for job in active.due(at(second))},
        "quiet": {vm.uid for vm in active.quiet(at(second - 5))},
        "leased": {name: count for name, count in census.leased.items() if count},
        "gpus": {name: count for name, count in census.gpus.items() if count},
        "used": {n: round(census.gpu_s(n, at(second), 60.0)) for n, c in census.gpus.items() if c},
    }
