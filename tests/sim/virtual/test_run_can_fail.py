"""A simulator that cannot fail proves nothing: with each guard taken out, some seed of a small set
must notice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from zlib import crc32

import pytest

import orchestrator.cluster_manager
import orchestrator.planning.plan
import scheduler.cycle.heartbeats
import scheduler.cycle.lost_vms
import scheduler.placement.gang
import scheduler.placement.slots
import scheduler.queue.quotas
import sim.memory.cost
import sim.memory.store
import sim.virtual.fault_plan
from agent.attempt import Work
from agent.driver import Ear
from agent.events import ControlReceived, StartProcess
from agent.state_machine import AgentMachine
from core.actions import Delete, Drain
from core.changes import AtomicBatch, Committed, NewRequest
from core.commit import KnownRows, judge
from core.cost import CostKind, Life, Settlement, settle
from core.job_steps import EventFacts
from core.messages import HeartbeatStatus, InMessage, StartJob
from core.reasons import CommitRefusal, RefusalKind
from core.vm import Vm
from messaging.proofs.control import Numbers
from orchestrator.planning.analysis import Analysis
from orchestrator.planning.plan_input import PlanInput
from orchestrator.reconcile.applier import Applier
from orchestrator.reconcile.calls import request_of
from orchestrator.reconcile.orphans import Orphans
from scheduler.cycle.heartbeats import Latest, ReceivedHeartbeat
from scheduler.cycle.silence import BusClock
from scheduler.placement.slots import SlotUse
from scheduler.plan_builder import PlanBuilder
from sim.memory.config_versions import MemoryConfigVersions
from sim.memory.store import MemoryStore
from sim.virtual.run import SimulationPlan, simulate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

SEEDS = range(1, 25)
"""Most guards are missed by the first seed already: what each of them is there for is made to
happen often. The others are tried so that a change elsewhere does not hide a guard."""
OFTEN = 100


def caught(
    monkeypatch: pytest.MonkeyPatch, invariants: Sequence[str], *often: str, jobs: int = 80
) -> str:
    """The first violation of one of these, with the faults that provoke it often; the test fails
    if no seed finds any."""
    faults = {**sim.virtual.fault_plan.FAULTS, **dict.fromkeys(often, OFTEN)}
    monkeypatch.setattr(sim.virtual.fault_plan, "FAULTS", faults)
    for seed in SEEDS:
        outcome = simulate(SimulationPlan(seed=seed, jobs=jobs))
        for violation in outcome.violations[:1]:
            assert violation.invariant in invariants, str(violation)
            print(f"seed {seed}: {violation}")  # shown by -s: what a lost guard costs
            return str(violation)
    pytest.fail(f"no seed of {list(SEEDS)} noticed that the guard is gone")


def test_with_all_guards_in_place_the_first_seeds_are_quiet() -> None:
    """So that what follows is the guards' doing."""
    for seed in SEEDS[:2]:
        assert simulate(SimulationPlan(seed=seed, jobs=80)).violations == []


def test_fencing_by_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat that is believed whatever lease it speaks for ends another attempt's work."""

    def believe(
        plan: PlanBuilder, vm: Vm, item: ReceivedHeartbeat, _: str | None, __: Latest
    ) -> None:
        heartbeat = item.heartbeat
        job = next((j for j in plan.jobs.values() if j.spec.job_id == heartbeat.job_id), None)
        if job is None or job.lease is None or heartbeat.status is HeartbeatStatus.FROZEN:
            return
        for event, reason in scheduler.cycle.heartbeats._events(job, heartbeat, vm):
            current = plan.jobs[job.uid]
            plan.step(current, event, reason, facts=EventFacts(exit_code=heartbeat.exit_code))

    monkeypatch.setattr(scheduler.cycle.heartbeats, "_job_heartbeat", believe)
    assert caught(monkeypatch, ["I2", "I4", "crash"], "vm_cut_off", "agent_restarted")


def test_compare_and_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that writes over what the writer has not read."""

    def accept(batches: Sequence[AtomicBatch], known: KnownRows) -> dict[int, CommitRefusal]:
        refusals = judge(batches, known)
        return {index: why for index, why in refusals.items() if why.kind is not RefusalKind.MOVED}

    commit = MemoryStore.commit

    async def late(
        self: MemoryStore, batches: Sequence[AtomicBatch], term: int | None
    ) -> Committed:
        await asyncio.sleep(3)  # else two writers of one row are rare
        return await commit(self, batches, term)

    monkeypatch.setattr(sim.memory.store, "judge", accept)
    monkeypatch.setattr(MemoryStore, "commit", late)
    assert caught(monkeypatch, ["I2", "I4", "crash"])


def test_limit_of_the_whole_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan and a store that both look away when the cluster is full."""

    def accept(batches: Sequence[AtomicBatch], known: KnownRows) -> dict[int, CommitRefusal]:
        refusals = judge(batches, known)
        return {index: why for index, why in refusals.items() if why.kind is not RefusalKind.LIMIT}

    plan = orchestrator.planning.plan.plan_cluster

    def generous(inputs: PlanInput, *others: object) -> object:
        return plan(replace(inputs, spec=replace(inputs.spec, vm_max=1000)), *others)  # type: ignore[arg-type]

    monkeypatch.setattr(sim.memory.store, "judge", accept)
    monkeypatch.setattr(orchestrator.cluster_manager, "plan_cluster", generous)
    assert caught(monkeypatch, ["I5"])


def test_quota_of_a_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan and a store that both look away when a tenant has all that it may have."""

    def accept(batches: Sequence[AtomicBatch], known: KnownRows) -> dict[int, CommitRefusal]:
        refusals = judge(batches, known)
        return {index: why for index, why in refusals.items() if why.kind is not RefusalKind.QUOTA}

    monkeypatch.setattr(sim.memory.store, "judge", accept)
    monkeypatch.setattr(scheduler.queue.quotas, "shortage", lambda *_: None)
    assert caught(monkeypatch, ["I5"])


def test_drain_before_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle VM that is deleted by name without being taken out of use first."""
    drains = orchestrator.planning.plan._drains

    def straight(analysis: Analysis) -> list[object]:
        asked = drains(analysis)
        found = {vm.name: vm.region for vm in analysis.inputs.vms}
        names = [a.vm_name for a in asked if isinstance(a, Drain)]
        ids = {name: f"00000000-0000-4000-8000-{crc32(name.encode()):012d}" for name in names}
        return [Delete(found[name], (name,), ids[name], "idle") for name in names]

    delete = Applier._delete

    async def careless(self: Applier, action: Delete, inputs: PlanInput, now: datetime) -> bool:
        if action.reason != "idle":
            return await delete(self, action, inputs, now)
        request = request_of(action, self._context.spec.name, now)
        return await self._context.write([(NewRequest(request),)])

    monkeypatch.setattr(orchestrator.planning.plan, "_drains", straight)
    monkeypatch.setattr(Applier, "_delete", careless)
    assert caught(monkeypatch, ["I11"])


def test_reaper_of_vms_that_nobody_owns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A VM under a name of ours that nobody asked for stays for ever."""
    monkeypatch.setattr(Orphans, "adopt", lambda *_: [])
    assert caught(monkeypatch, ["I6"], "orphan_vm", jobs=20)


def test_memory_of_what_the_file_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is set back while nobody is awake has no effect: a cluster stays drained, or
    without the region that a job asks for."""

    async def unknown(*_: object) -> None:
        return None

    monkeypatch.setattr(MemoryConfigVersions, "file_seen", unknown)
    monkeypatch.setattr(sim.virtual.fault_plan, "ASLEEP_ODDS", 1.0)
    assert caught(monkeypatch, ["liveness"], "drain_edited", jobs=20)


def test_dedup_of_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that runs a start as often as it hears it."""

    def take(self: Ear, message: InMessage) -> bool:
        control = self._proofs.take(message)
        assert control is not None
        self._post(ControlReceived(control))
        return True

    def start(self: AgentMachine, order: StartJob, now: float) -> None:
        work = self.jobs[order.lease_id] = Work(order, now)
        self._say(work, HeartbeatStatus.FOUND_VM)
        self._out.append(StartProcess(order))

    monkeypatch.setattr(Ear, "take", take)
    monkeypatch.setattr(Numbers, "take", lambda *_: True)
    monkeypatch.setattr(AgentMachine, "_start", start)
    assert caught(monkeypatch, ["I9", "I10"])


def test_canary_and_settling_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence that is believed as soon as the bus is back."""
    monkeypatch.setattr(BusClock, "steady", lambda self, *_: self.bus_now is not None)
    assert caught(monkeypatch, ["silence"], "bus_down")


def test_the_job_stays_with_a_vm_that_may_still_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that goes back as soon as its VM is to be deleted runs on two VMs at once."""
    monkeypatch.setattr(Vm, "worker_may_run", property(lambda vm: not vm.state.beyond_use))
    assert caught(monkeypatch, ["I2"], "vm_cut_off", "vm_deleted_behind_our_back")


def test_worker_freezes_before_the_server_may_reassign(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that computes on while nobody hears it."""

    def pretend(self: AgentMachine, now: float) -> None:
        for work in self.jobs.values():
            work.frozen_since = work.frozen_since or now

    monkeypatch.setattr(AgentMachine, "_freeze", pretend)
    assert caught(monkeypatch, ["I2"], "vm_cut_off", jobs=240)


def test_term_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that takes a thawed leader's writes."""
    monkeypatch.setattr(sim.memory.store, "check_term", lambda *_: None)
    assert caught(monkeypatch, ["I7"], "leader_frozen")


def test_gpus_of_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A placement that does not look who holds which GPU of a shared VM gives one out twice."""

    def careless(vm: Vm, _: SlotUse | None) -> tuple[int, ...]:
        return tuple(range(vm.gpus))

    monkeypatch.setattr(scheduler.placement.slots, "free_gpus", careless)
    assert caught(monkeypatch, ["slots"])


def test_the_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that begins as soon as it is placed runs beside one that is not there yet."""
    start = AgentMachine._start

    def at_once(machine: AgentMachine, order: StartJob, now: float) -> None:
        start(machine, replace(order, barrier=False), now)

    monkeypatch.setattr(AgentMachine, "_start", at_once)
    assert "begins while" in caught(monkeypatch, ("I3",))


def test_a_gang_placed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that are placed as VMs come are not a gang."""
    monkeypatch.setattr(scheduler.placement.gang.Gangs, "of", lambda _, job: (job,))
    assert "were not placed" in caught(monkeypatch, ("I3",))


def test_bill_that_leaves_something_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle time that is settled for nobody."""

    def careless(life: Life, now: datetime) -> Settlement | None:
        done = settle(life, now)
        if done is None:
            return None
        kept = tuple(share for share in done.shares if share.kind is not CostKind.IDLE)
        return replace(done, shares=kept)

    monkeypatch.setattr(sim.memory.cost, "settle", careless)
    assert "the bills are" in caught(monkeypatch, ["I12"], jobs=20)
