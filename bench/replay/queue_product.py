"""The product's own queue on the replayed pool.

Nothing is decided here: jobs go through `new_job`, `couple`, `run_queue` and `end_holds`, exactly
as in a scheduling cycle; `heads_for` says which heads of the queue are read. Replayed are the
pool, the clock, the workers, and the rows that the store would hold.

Each GPU of the pool is a VM with one GPU, so that any free GPUs serve any job: a job of n GPUs is a
gang of n members, an elastic one has as many more as it may grow to.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from bench.replay.pool import Orders, PoolJob, ReplayPool
from core.active import ActiveRows
from core.changes import Snapshot
from core.cluster import ClusterSpec, RegionSpec
from core.ids import RandomIds
from core.job import E, Job, Membership, Rules, S, SavedWork
from core.job_fields import JobSpec
from core.job_steps import EventFacts, new_job
from core.messages import OutMessage
from core.queueing import Live, due_at
from core.supply import CapacityPolicy
from core.tenants import Tenant
from core.timers import Timers
from core.vm import Vm, VmEvent, VmFacts, advance_vm, new_vm
from scheduler.cycle.plan import Circumstances, run_queue
from scheduler.cycle.silence import Silence
from scheduler.forecast.run_times import Book, Guess, expected_s, kind_of
from scheduler.placement.gang import settle_gangs
from scheduler.placement.gang_placement import end_holds
from scheduler.placement.simulation_results import Answers
from scheduler.plan_builder import PlanBuilder
from scheduler.queue.heads import TenantQueues, heads_for
from scheduler.submission.tenant_access import told_bound_s
from sim.memory.tables import Tables

EPOCH = datetime(2025, 1, 1, tzinfo=UTC)
REGION = "replay"
CLUSTER = "1xreplay"
TENANT = "default"
LOOK_MIN_S, LOOK_MAX_S = 60.0, 600.0
"""The service runs a cycle each second. The replay runs one at each arrival and each end; while a
preemption or a larger size may come with time, also a minute, two minutes, four minutes later, and
then every ten minutes."""
CYCLES_MAX = 6
"""Of one moment: a preempted job leaves in one cycle, another one starts in the next."""
HEADS_MAX = 10_000
_NOTHING = OutMessage(topic="", body=b"", attributes={})
_NEVER_S = 1e8


@dataclass(slots=True)
class ProductQueue:
    """A policy of the pool. `preempts`: running jobs may be preempted."""

    preempts: bool = True
    longest_s: float = JobSpec("any").max_runtime_s
    """No run lasts longer: what the told bounds rest on."""
    bounds: dict[int, float] = field(default_factory=dict)
    """Which job → the wait for its first start that it was told at most."""
    book: Book = field(default_factory=Book)
    tables: Tables = field(default_factory=Tables)
    """What the store would hold."""
    cluster: ClusterSpec | None = None
    _jobs: dict[str, PoolJob] = field(default_factory=dict)
    """uid of the first member → the job of the pool."""
    _new: list[PoolJob] = field(default_factory=list)
    _done: list[str] = field(default_factory=list)
    _ahead: int = 0
    """Members that wait and never ran."""
    _answers: Answers = field(default_factory=Answers)
    _queues: TenantQueues = field(default_factory=TenantQueues)
    _ids: RandomIds = field(default_factory=lambda: RandomIds(random.Random(0)))
    _moved_s: float = 0.0
    """When something happened last."""

    @property
    def rules(self) -> Rules:
        """As configured."""
        return Rules(Timers(max_runtime_s=self.longest_s))

    def arrived(self, job: PoolJob, now: float) -> None:
        self._new.append(job)
        self._moved_s = now

    def ended(self, job: PoolJob, now: float) -> None:
        self._done.append(uid_of(job))
        self._moved_s = now
        self.book.add(kind_of(self._first(job).spec, CLUSTER), job.work_s)

    def guess(self, job: Job) -> Guess:
        """How long it runs, from what ran before."""
        return self.book.guess(kind_of(job.spec, job.cluster))

    def decide(self, pool: ReplayPool) -> Orders:
        cluster = self._cluster(pool)
        for job in self._new:
            self._submit(job, cluster)
        self._new.clear()
        had = {uid_of(job): job.size for job in pool.running.values()}
        for _ in range(CYCLES_MAX):
            if not self._cycle(pool, cluster):
                break
        return self._orders(pool, had)

    # --- what the store would hold -------------------------------------------------------

    def _cluster(self, pool: ReplayPool) -> ClusterSpec:
        if self.cluster is None:
            regions = (RegionSpec(REGION, (REGION,), 1.0, 1.0),)
            self.cluster = ClusterSpec(
                CLUSTER, "replay", 1, "replayed", pool.gpus, regions, pool="static"
            )
            self.tables.tenants[TENANT] = Tenant(TENANT, may_preempt=self.preempts)
            for number in range(pool.gpus):
                self.tables.set_vm(_vm(self.cluster, f"vm-{number:05}"))
        return self.cluster

    def _submit(self, job: PoolJob, cluster: ClusterSpec) -> None:
        now, first = moment_of(job.submit_s), uid_of(job)
        spec = JobSpec(
            job_id=first,
            workflow=job.tenant,  # traces have no names of programs: whose they are stands for it
            cluster=cluster.name,
            replicas=job.most,
            replicas_min=job.least if job.elastic else None,
            max_runtime_s=self.longest_s,
            queue_timeout_s=_NEVER_S,
        )
        expected = expected_s(self.book.guess(kind_of(spec, cluster.name)), spec)
        due = due_at(now, spec, 0.0, self.rules.queue, expected)
        for rank in range(job.most):
            member = new_job(
                _member_uid(first, rank),
                spec,
                cluster.name,
                now,
                due=due,
                gang=Membership(first, rank, job.most) if job.most > 1 else None,
            )
            self.tables.add_job(member, "")
        self._jobs[first] = job
        self._ahead += job.least
        aging_s = (due - now).total_seconds()
        told = told_bound_s(aging_s, cluster, self.longest_s, self._ahead)
        self.bounds[job.index] = math.inf if told is None else told

    def _first(self, job: PoolJob) -> Job:
        return self.tables.jobs[uid_of(job)].job

    def members(self, uid: str) -> list[Job]:
        """All members of a job, by rank."""
        return [
            self.tables.jobs[_member_uid(uid, rank)].job for rank in range(self._jobs[uid].most)
        ]

    def snapshot(self, now: datetime, cluster: ClusterSpec) -> Snapshot:
        """What a cycle reads."""
        tables, active = self.tables, self.tables.active
        ahead_s = CapacityPolicy().typical_run_s
        ask = heads_for({cluster.name: cluster}, (), self.rules.queue, ahead_s, self._queues)
        live = Live(
            now,
            ActiveRows(active.jobs),
            tables.tenants,
            tables.usage,
            (cluster.name,),
            active.census,
        )
        heads = tuple(tables.heads(ask(live), HEADS_MAX, now))
        return Snapshot(
            now=now,
            jobs=ActiveRows(active.jobs, heads),
            vms=ActiveRows(active.vms),
            blocks=(),
            requests=(),
            reasons={},
            open_alerts={},
            tenants=tables.tenants,
            active=active,
            heads=heads,
        )

    # --- a scheduling cycle --------------------------------------------------------------

    def _cycle(self, pool: ReplayPool, cluster: ClusterSpec) -> bool:
        """Whether a job started or was preempted: then another cycle may follow."""
        now = moment_of(pool.now)
        snapshot = self.snapshot(now, cluster)
        plan = PlanBuilder(snapshot, self.rules, lambda _: _NOTHING)
        plan.saved = lambda job: self._saved(job, pool)
        for uid in self._done:
            self._finish(plan, self.members(uid))
        self._done.clear()
        around = Circumstances(
            {cluster.name: cluster},
            Silence(()),
            bus_steady=True,
            guess=self.guess,
            saved_at=lambda job: self._saved_at(job, pool),
            answers=self._answers,
        )
        settle_gangs(plan)
        run_queue(plan, snapshot, around, self._ids)
        end_holds(plan, around.clusters, ())
        self._answers.notes.take(now)
        moved = self._work(plan)
        for uid in dict.fromkeys(after.uid for _, after in plan.moves):
            self.tables.set_job(plan.jobs[uid])
        for vm in plan.vms.news.values():
            self.tables.set_vm(vm)
        return moved

    @staticmethod
    def _finish(plan: PlanBuilder, members: Iterable[Job]) -> None:
        """Its work is done."""
        for member in members:
            if member.lease is not None:
                plan.step(member, E.EXITED_OK, "exit code 0", facts=EventFacts(exit_code=0))
            else:
                plan.step(member, E.STOP_ASKED, "the job has ended")

    @staticmethod
    def _work(plan: PlanBuilder) -> bool:
        """Workers do at once what they are told. Whether any was told something."""
        told = False
        for uid in dict.fromkeys(after.uid for _, after in plan.moves):
            job = plan.jobs[uid]
            if job.status is S.ASSIGNED:
                plan.step(plan.step(job, E.CLAIMED, "claimed"), E.STARTED, "started")
            elif job.status is S.PREEMPTING:
                plan.step(job, E.PREEMPTED, "gone")
            else:
                continue
            told = True
        return told

    def _saved(self, job: Job, pool: ReplayPool) -> SavedWork:
        mine = self._jobs[job.gang_uid]
        kept = mine.done_at(pool.now) - mine.unsaved_s(pool.now, pool.costs)
        return SavedWork(kept - job.saved_s)

    def _saved_at(self, job: Job, pool: ReplayPool) -> datetime:
        return moment_of(pool.now - self._jobs[job.gang_uid].unsaved_s(pool.now, pool.costs))

    # --- what the pool is told -----------------------------------------------------------

    def _orders(self, pool: ReplayPool, had: dict[str, int]) -> Orders:
        """What has become of the jobs. `had`: which ones ran before, with how many GPUs."""
        orders, active = Orders(), self.tables.active
        has = Counter(active.jobs[uid].gang_uid for uid in active.leased_in(CLUSTER))
        for uid, size in has.items():
            job = self._jobs[uid]
            again = uid in had and self._first(job).attempt > job.preemptions + 1
            if uid not in had or again:
                orders.start.append((job, size))
                orders.stop += [job] if again else []
                self._ahead -= job.least if math.isinf(job.first_at) else 0
            elif size != had[uid]:
                orders.resize.append((job, size))
        orders.stop += [self._jobs[uid] for uid in had if uid not in has]
        if orders.start or orders.stop or orders.resize:
            self._moved_s = pool.now
        preempts = self.preempts and bool(pool.waiting)
        if preempts or any(job.elastic for job in pool.running.values()):
            quiet_s = pool.now - self._moved_s
            orders.look_at = pool.now + min(max(quiet_s, LOOK_MIN_S), LOOK_MAX_S)
        return orders


def uid_of(job: PoolJob) -> str:
    """Of its first member."""
    return f"{job.index:07}"


def _member_uid(first: str, rank: int) -> str:
    return f"{first}-{rank:03}" if rank else first


def _vm(cluster: ClusterSpec, name: str) -> Vm:
    asked = new_vm(cluster, REGION, uid=name, name=name, now=EPOCH, reason="")
    facts: VmFacts = {"zone": REGION, "boot_nonce": "boot", "running_since": EPOCH}
    return advance_vm(asked, VmEvent.WORKER_READY, EPOCH, "", **facts)


def moment_of(now: float) -> datetime:
    """A second of the trace, as the product counts time."""
    return EPOCH + timedelta(seconds=now)
