"""A crash at every boundary: the only replica dies right before and right after each write to the
database, each publish and each call that changes the cloud, one run for each.

The run is small and nothing else fails: five jobs that end well, fail, are tried again, are
stopped, and lose their spot VM; then the VMs are given back. A run that crashes must end as the
run that does not: every job in the same state, after the same number of attempts, each started on
a VM exactly as often, no VM left.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

from config.settings import Settings
from core.job import Job, JobStatus
from sim.cloud.faults import Preempt
from sim.cloud.world import CloudPhysics, World
from sim.virtual.pretend_jobs import Nature, OnTerm
from sim.virtual.pretend_vms import Site
from sim.virtual.replicas import Host, Tripwire
from sim.virtual.run import SimulationPlan, SimulationRun
from sim.virtual.setting import cloud_world, settings
from sim.virtual.workload import Order

RESTART_S = 1.0
LOOK_S = 1.0
JOBS_BOUND_S = 900.0
REST_BOUND_S = 300.0
REGIONS_MAX = 1
CLUSTERS = ("1xl4", "1xa100-80gb")
"""A spot one and one that is not."""
PHYSICS = CloudPhysics(create_s=(1.0, 2.0), boot_s=(2.0, 4.0), delete_s=3.0, spot_notice_s=10.0)
KINDS = {
    "commit": "commit of changes",
    "mark": "lease, or mark of what is sent",
    "publish": "publish",
    "cloud_call": "create or delete call",
}

_SHORT = Nature(0.5, 8.0, 0, OnTerm.LEAVE, 1.0, False, False, 30.0)
_LONG = replace(_SHORT, compute_s=60.0, checkpoint_s=5.0)
_BAD = replace(_SHORT, compute_s=4.0, exit_code=1)


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How one job ended."""

    status: str
    attempts: int
    runs: int


@dataclass(frozen=True, slots=True)
class CrashRun:
    """One run: where the replica died, and what came of it."""

    number: int | None
    kind: str
    stage: str
    ended: Mapping[str, JobEnd]
    boundaries: tuple[tuple[str, str], ...]
    violations: tuple[str, ...]
    virtual_s: float
    wall_s: float


def nature(job_id: str, attempt: int) -> Nature:
    """What each of the five does."""
    match job_id:
        case "fails":
            return _BAD
        case "fails-once":
            return _BAD if attempt == 1 else _SHORT
        case "is-stopped" | "loses-its-vm":
            return _LONG
        case _:
            return _SHORT


def orders() -> list[Order]:
    """Over both doors, in both clusters."""
    spot, a100 = ({"cluster": name, "command": ["pretend"]} for name in CLUSTERS)
    l4 = {**spot, "spot": True}
    return [
        Order(1.0, {"job_id": "ends-well", **a100}, False, 1, None),
        Order(2.0, {"job_id": "loses-its-vm", **l4}, True, 1, None),
        Order(2.5, {"job_id": "fails-once", "retries": 1, **a100}, True, 1, None),
        Order(3.0, {"job_id": "is-stopped", "stop_grace_s": 5, **l4}, False, 2, None),
        Order(4.0, {"job_id": "fails", "retries": 0, **a100}, False, 1, None),
    ]


class Crashing(SimulationRun):
    """The run, with a wire that kills."""

    def __init__(self, at: int | None, *, verbose: bool = False) -> None:
        self._at = at
        self._done: set[str] = set()
        super().__init__(SimulationPlan(seed=1, jobs=5, replicas=1, faults=False, verbose=verbose))

    def _settings(self) -> Settings:
        whole = settings()
        small = tuple(
            replace(cluster, vm_max=2, regions=cluster.regions[:REGIONS_MAX])
            for cluster in whole.clusters
            if cluster.name in CLUSTERS
        )
        timers = replace(
            whole.timers,
            loop_interval_s=10.0,
            idle_timeout_s=15.0,
            leader_lease_s=6.0,
            leader_renew_s=2.0,
        )
        return replace(whole, clusters=small, timers=timers)

    def _world(self) -> World:
        whole = cloud_world(1, self.settings.names, self._dice("scene"))
        wanted = {
            self.settings.names.mig(cluster.name, region.region)
            for cluster in self.settings.clusters
            for region in cluster.regions
        }
        migs = tuple(
            replace(mig, default_action_on_failure="DO_NOTHING")
            for mig in whole.migs
            if mig.name in wanted
        )
        return replace(whole, migs=migs, physics=PHYSICS)

    def _site(self) -> Site:
        return replace(super()._site(), nature=nature)

    def _hosts(self) -> list[Host]:
        hosts = super()._hosts()
        self.ground.tripwire = Tripwire(self._at)
        return hosts

    async def _acts(self) -> None:
        self._make_infrastructure()
        self._keep_up()
        self.cloud.settle()
        self.clients.schedule(orders())
        await self._until(JOBS_BOUND_S, self._all_ended)
        await self._until(REST_BOUND_S, self._all_at_rest)
        self.checkers.committed()
        self.checkers.at_the_end(self.cloud.cloud, dict.fromkeys(CLUSTERS, 0))

    def _keep_up(self) -> None:
        """A replica that died is started again after a moment; nobody waits for the moment
        itself."""
        for host in self.hosts:
            host.start()
        self.loop.later(RESTART_S, self._keep_up)

    async def _until(self, bound_s: float, over: Callable[[], bool]) -> None:
        ends_at = self.loop.time() + bound_s
        while self.loop.time() < ends_at and not over():
            self._interfere()
            await asyncio.sleep(LOOK_S)

    def _interfere(self) -> None:
        """By what is seen and not by the clock, so that a crash does not change what happens."""
        for job in self._jobs():
            name = job.spec.job_id
            if job.status is not JobStatus.RUNNING or name in self._done or job.lease is None:
                continue
            if name == "is-stopped":
                self._done.add(name)
                self.clients.stop(next(o for o in orders() if o.job_id == name))
            elif name == "loses-its-vm":
                self._done.add(name)
                self.cloud.fault(Preempt(vm=job.lease.vm_name))

    def _jobs(self) -> list[Job]:
        return [row.job for row in self.store.tables.jobs.values()]

    def _all_ended(self) -> bool:
        jobs = self._jobs()
        return len(jobs) == len(orders()) and all(job.status.final for job in jobs)

    def _all_at_rest(self) -> bool:
        rows = [vm for vm in self.store.tables.seen_vms.values() if vm.counted]
        return not rows and not any(self._in_the_cloud(name) for name in CLUSTERS)

    def crash(self) -> CrashRun:
        """The run, and what is to be compared."""
        outcome = self.run()
        wire = self.ground.tripwire
        assert wire is not None
        kind, stage = wire.passed[self._at] if self._at is not None else ("", "")
        ended = {
            job.spec.job_id: JobEnd(
                str(job.status), job.attempt, self.checkers.computing.runs[job.spec.job_id]
            )
            for job in self._jobs()
        }
        return CrashRun(
            number=self._at,
            kind=kind,
            stage=stage,
            ended=ended,
            boundaries=tuple(wire.passed),
            violations=tuple(map(str, outcome.violations)),
            virtual_s=outcome.virtual_s,
            wall_s=outcome.wall_s,
        )


@dataclass(frozen=True, slots=True)
class Survey:
    """The run without a crash, and the crashes."""

    calm: CrashRun
    crashes: tuple[CrashRun, ...]

    def faults(self) -> list[str]:
        """Everything that did not end as it does without a crash."""
        found = [f"without a crash: {words}" for words in self.calm.violations]
        return found + [words for run in self.crashes for words in self.wrong(run)]

    def wrong(self, run: CrashRun) -> list[str]:
        where = f"crash {run.number} ({run.stage} {run.kind})"
        found = [f"{where}: {words}" for words in run.violations]
        for name, expected in self.calm.ended.items():
            if (ended := run.ended.get(name)) != expected:
                found.append(f"{where}: {name} is {ended}, without the crash {expected}")
        return found

    def rows(self) -> list[tuple[str, str, int, int, int]]:
        """(kind, stage, boundaries there are, crashed at, recovered)."""
        there = Counter(self.calm.boundaries)
        tried = Counter((run.kind, run.stage) for run in self.crashes)
        well = Counter((run.kind, run.stage) for run in self.crashes if not self.wrong(run))
        return [
            (KINDS[kind], stage, there[kind, stage], tried[kind, stage], well[kind, stage])
            for kind in KINDS
            for stage in ("before", "after")
        ]


def crash_at(number: int | None) -> CrashRun:
    """One run; None: nobody dies."""
    return Crashing(number).crash()


def survey(*, every: int = 1, workers: int = 1) -> Survey:
    """At every boundary, or at every so many-th of each kind."""
    calm = crash_at(None)
    found: dict[tuple[str, str], list[int]] = {}
    for number, where in enumerate(calm.boundaries):
        found.setdefault(where, []).append(number)
    numbers: Sequence[int] = sorted(n for same in found.values() for n in same[::every])
    if workers <= 1:
        return Survey(calm, tuple(map(crash_at, numbers)))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return Survey(calm, tuple(pool.map(crash_at, numbers, chunksize=8)))
