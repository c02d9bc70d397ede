"""The product's own decisions behind the replayed cloud.

Nothing is decided here: observations go through `fold`, jobs through `plan_jobs`, VMs through
`plan_cluster`, exactly as the ClusterManager and the loop do it; what is replayed is the cloud,
the clock, and the rows that the store would hold.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import assert_never

from core.actions import Action, Create, Delete, Drain, NoAction, Queue, Undrain, Unqueue
from core.active import ActiveIndex, ActiveRows
from core.changes import Snapshot
from core.cluster import ClusterSpec, RegionSpec
from core.demand import VmRequest
from core.ids import RandomIds
from core.job import Budgets, E, Job, Rules, S, SavedWork
from core.job_fields import JobSpec
from core.job_steps import EventFacts, new_job
from core.messages import Control, OutMessage
from core.mig import MachineState, ManagedInstance, MigSnapshot, Refusal
from core.names import Names
from core.queueing import QueuePolicy
from core.region_blocks import BlockKind, RegionBlock
from core.remaining import RunTimes
from core.supply import (
    ARRIVALS_HORIZON_S,
    ARRIVALS_MAX,
    Arrivals,
    CapacityPolicy,
    SupplyHistory,
    arrivals_by_cluster,
)
from core.tenants import HOLDS
from core.timers import Timers
from core.vm import Vm, VmEvent, advance_vm, new_vm
from orchestrator.planning.analysis import Analysis, survey
from orchestrator.planning.plan import decide, look_again
from orchestrator.planning.plan_input import PlanInput, at_work, demand_of
from orchestrator.supply.members import GroupObservation
from orchestrator.supply.observations import ClusterRules, ClusterState, fold
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import Silence
from scheduler.plan_builder import PlanBuilder
from sim.replay.engine import WAIT_MAX_S, ReplayCloud
from sim.replay.physics import News, ReplayJob, ReplayVm

EPOCH = datetime(2025, 1, 1, tzinfo=UTC)
CLUSTER = "1xreplay"
MACHINE_TYPE = "replayed"
# A drain is followed by its delete, a VM called back by its job: the product needs another cycle.
TURNS_MAX = 6
_STOCKOUT = (Refusal(BlockKind.STOCKOUT, "the zone has no such VM"),)
_NOTHING = OutMessage(topic="", body=b"", attributes={})


@dataclass(frozen=True, slots=True)
class Setup:
    """How the product is configured: one configuration for all suites."""

    vm_max: int
    spot: bool = False
    vm_min: int = 0
    idle_timeout_s: float | None = None
    timers: Timers = field(default_factory=Timers)
    policy: CapacityPolicy = field(default_factory=CapacityPolicy)
    gpus: int = 1
    """Of each VM."""


class Product:
    """A cluster with one region per zone of the supply, under the real planners."""

    hears_supply = False

    def __init__(
        self,
        cloud: ReplayCloud,
        setup: Setup,
        *,
        seed: int,
        heeds_notices: bool = True,
    ) -> None:
        self.heeds_notices = heeds_notices
        self._setup = setup
        self._places = [self._place(zone.name) for zone in cloud.zones]
        """(cluster, region) of each zone."""
        self._zone = {place: index for index, place in enumerate(self._places)}
        names = dict.fromkeys(cluster for cluster, _ in self._places)
        self._specs = {name: _spec(name, cloud, self._places, setup) for name in names}
        self.starts: list[tuple[str, str, str]] = []
        """(job, cluster, region) of each start."""
        self._names = Names("z")
        self._ids = RandomIds(random.Random(seed))
        # A replay ends when every job is done: no budget may end one before. It is about where VMs
        # come from: no job is preempted for another.
        budgets = Budgets(losses=10**6, preemptions=10**6)
        self._rules = Rules(setup.timers, budgets, QueuePolicy(least_run_s=WAIT_MAX_S))
        self._active = ActiveIndex()
        """What the store would keep. A VM's uid is the name of its machine."""
        self._heads: dict[str, Job] = {}
        """Jobs that hold and await no VM."""
        self._machines: dict[str, ReplayVm] = {}
        self._leaving: set[str] = set()
        """Names that the cloud was asked to delete."""
        self._runs: dict[str, ReplayJob] = {}
        self._at_work: dict[str, dict[str, VmRequest]] = {name: {} for name in self._specs}
        """By cluster and the job's uid, as `at_work` would find them."""
        self._blocks: tuple[RegionBlock, ...] = ()
        self._supply: tuple[SupplyHistory, ...] = ()
        self._admitted: Mapping[str, Sequence[str]] = {}
        self._submitted: deque[tuple[str, datetime]] = deque(maxlen=ARRIVALS_MAX)
        """The newest first."""
        self._lately: Arrivals | None = None
        self._look: float | None = None

    def step(self, cloud: ReplayCloud, news: Sequence[News]) -> float | None:
        """Hear, then run cycles until nothing more follows."""
        now = cloud.now
        moment = _moment(now)
        full = len(self._active.vms) >= self._setup.vm_max
        done = self._hear(news, moment)
        due = self._look is not None and self._look <= now
        if not full and not due and all(n.kind == "gone" for n in news):
            return self._look  # rows of VMs that were given back: there was room with them
        told = any(n.kind in ("arrived", "done", "taken") for n in news)
        if told or self._is_awaited(news) or self._look_within_s is not None:
            self._plan_jobs(cloud, done, moment)
        analyses = [self._settle(cloud, spec, moment) for spec in self._specs.values()]
        looks = [_seconds(look) for look in map(look_again, analyses) if look is not None]
        if self._look_within_s is not None:
            looks.append(now + self._look_within_s)
        self._look = max(min(looks), now + 0.001) if looks else None
        return self._look

    @property
    def _look_within_s(self) -> float | None:
        """While a job waits that time alone may move: it is planned anew at least this often."""
        return None

    def _is_awaited(self, news: Sequence[News]) -> bool:
        """Whether a VM got ready that somebody waits for."""
        waits = bool(self._heads or self._active.admitted)
        return waits and any(n.kind == "ready" for n in news)

    def _settle(self, cloud: ReplayCloud, spec: ClusterSpec, moment: datetime) -> Analysis:
        """Plan and act until nothing more follows; returns the analysis after it."""
        analysis = self._analysis(spec, moment)
        for _ in range(TURNS_MAX):
            actions = decide(analysis, self._names, self._ids)
            for action in actions:
                self._apply(cloud, spec, action, moment)
            if any(isinstance(action, Undrain) for action in actions):
                self._plan_jobs(cloud, (), moment)
            if any(not isinstance(action, NoAction) for action in actions):
                analysis = self._analysis(spec, moment)
            if not any(isinstance(action, Drain | Undrain) for action in actions):
                break
        return analysis

    def _analysis(self, spec: ClusterSpec, moment: datetime) -> Analysis:
        return survey(self._inputs(spec, moment), self._setup.timers, moment)

    # --- hearing -------------------------------------------------------------------------

    def _hear(self, news: Sequence[News], moment: datetime) -> list[str]:
        """Returns the jobs that are done."""
        done: list[str] = []
        zones: list[int] = []
        for item in news:
            if item.kind == "arrived" and item.job is not None:
                self._submit(item.job, moment)
            elif item.kind == "ready" and item.machine is not None:
                self._ready(item.machine, moment)
            elif item.kind == "done" and item.job is not None:
                done.append(_job_uid(item.job))
            elif item.zone not in zones:
                zones.append(item.zone)
        for zone in zones:
            self._observe(zone, moment)
        return done

    def _submit(self, run: ReplayJob, moment: datetime) -> None:
        uid = _job_uid(run)
        spec = JobSpec(uid, cluster=CLUSTER, max_runtime_s=WAIT_MAX_S, queue_timeout_s=WAIT_MAX_S)
        self._heads[uid] = new_job(uid, self._asked(spec, moment), CLUSTER, moment)
        self._runs[uid] = run
        self._submitted.appendleft((CLUSTER, moment))
        self._lately = None

    def _asked(self, spec: JobSpec, moment: datetime) -> JobSpec:
        """What a job asks for beyond its run."""
        del moment
        return spec

    def _place(self, zone: str) -> tuple[str, str]:
        """The cluster and the region that a zone of the supply stands for."""
        return CLUSTER, zone

    def _ready(self, machine: ReplayVm, moment: datetime) -> None:
        """The bus says so, before or after the cloud shows it RUNNING."""
        vm = self._active.vms.get(machine.name)
        if vm is not None and vm.state.in_flight:
            since, words = vm.running_since or moment, "its worker is ready"
            ready = advance_vm(
                vm, VmEvent.WORKER_READY, moment, words, boot_nonce="boot", running_since=since
            )
            self._keep(ready)

    def _observe(self, zone: int, moment: datetime) -> None:
        cluster, name = self._places[zone]
        vms = (vm for vm in self._active.vms.values() if vm.cluster == cluster)
        here = [vm for vm in vms if vm.region == name and vm.counted]
        members = tuple(
            _member(vm, self._machines[vm.uid])
            for vm in here
            if self._machines[vm.uid].gone_at is None
        )
        observed = MigSnapshot(name, cluster, name, len(members), True, members, moment)
        rules = ClusterRules(self._specs[cluster], self._setup.timers, self._setup.policy, moment)
        known = ClusterState(tuple(here), self._blocks, self._supply)
        folded = fold(GroupObservation(observed), known, rules)
        self._blocks, self._supply = folded.blocks, folded.supply
        for before, vm in zip(here, folded.vms, strict=True):
            if vm is not before:
                self._keep(vm)

    def _keep(self, vm: Vm) -> None:
        """A row that is gone and holds nothing is not looked at any more."""
        if vm.state.gone:
            self._leaving.discard(vm.name)
        if vm.counted or vm.leases:
            self._active.put_vm(vm)
        elif vm.uid in self._active.vms:
            self._active.drop_vm(vm.uid)
            del self._machines[vm.uid]

    # --- deciding ------------------------------------------------------------------------

    def _plan_jobs(self, cloud: ReplayCloud, done: Sequence[str], moment: datetime) -> None:
        active, heads = self._active, tuple(self._heads.values())
        snapshot = Snapshot(
            now=moment,
            jobs=ActiveRows(active.jobs, heads),
            vms=ActiveRows(active.vms),
            blocks=self._blocks,
            requests=(),
            reasons={},
            open_alerts={},
            active=active,
            heads=heads,
        )
        plan = PlanBuilder(snapshot, self._rules, _encode)
        plan.saved = self._saved
        for uid in done:
            plan.step(plan.jobs[uid], E.EXITED_OK, "exit code 0", facts=EventFacts(exit_code=0))
        around = Circumstances(self._specs, Silence(()), bus_steady=True)
        plan_jobs(plan, snapshot, around, self._ids)
        self._admitted = plan.admitted
        for job in [job for job in plan.jobs.news.values() if job.status is S.ASSIGNED]:
            assert job.lease is not None, "assigned to a VM"
            cloud.start(self._runs[job.uid], self._machines[job.lease.vm_uid])
            self.starts.append((job.uid, job.cluster, job.lease.region))
            plan.step(plan.step(job, E.CLAIMED, "claimed"), E.STARTED, "started")
        for job in plan.jobs.news.values():
            self._put(job)
        for vm in plan.vms.news.values():
            self._keep(vm)

    def _put(self, job: Job) -> None:
        """A job where it belongs, and nowhere if it is done."""
        self._heads.pop(job.uid, None)
        for name, spec in self._specs.items():
            self._at_work[name].pop(job.uid, None)
            self._at_work[name].update((job.uid, request) for request in at_work((job,), spec))
        if job.status in HOLDS:
            self._active.put_job(job)
            return
        self._active.drop_job(job.uid)
        if not job.status.final:
            self._heads[job.uid] = job

    def _saved(self, job: Job) -> SavedWork | None:
        """What the job would have told of its checkpoints in this attempt; None: nothing."""
        del job
        return None

    def _inputs(self, spec: ClusterSpec, moment: datetime) -> PlanInput:
        active = self._active
        waiting = [active.jobs[uid] for uid in active.admitted]
        return PlanInput(
            spec=spec,
            demand=demand_of(
                spec.name, waiting, self._run_times, self._admitted.get(spec.name, ())
            ),
            vms=tuple(self._vms_of(spec)),
            blocks=self._blocks,
            asked=frozenset(self._leaving),
            supply=self._supply,
            arrivals=self._arrivals(moment) if spec.name == CLUSTER else None,
            policy=self._setup.policy,
            at_work=tuple(self._at_work[spec.name].values()),
        )

    def _vms_of(self, spec: ClusterSpec) -> list[Vm]:
        vms = self._active.vms.values()
        return [vm for vm in vms if vm.counted and vm.cluster == spec.name]

    @property
    def _run_times(self) -> RunTimes:
        return RunTimes(self._setup.timers.max_runtime_s, self._setup.policy.typical_run_s)

    def _arrivals(self, moment: datetime) -> Arrivals | None:
        """As the store answers; the list itself is made anew only when it changed."""
        horizon = moment - timedelta(seconds=ARRIVALS_HORIZON_S)
        while self._submitted and self._submitted[-1][1] < horizon:
            self._submitted.pop()
            self._lately = None
        if self._lately is None:
            self._lately = arrivals_by_cluster(self._submitted, moment).get(CLUSTER)
        elif len(self._submitted) < ARRIVALS_MAX:
            self._lately = Arrivals(horizon, self._lately.times)
        return self._lately

    # --- doing ---------------------------------------------------------------------------

    def _apply(
        self, cloud: ReplayCloud, spec: ClusterSpec, action: Action, moment: datetime
    ) -> None:
        match action:
            case Create():
                for name in action.names:
                    self._create(cloud, spec, name, action, moment)
            case Delete():
                for vm in [self._named(name) for name in action.names]:
                    self._leaving.add(vm.name)
                    self._keep(advance_vm(vm, VmEvent.DELETE_ASKED, moment, action.reason))
                    cloud.delete(self._machines[vm.uid])
            case Drain():
                vm = self._named(action.vm_name)
                self._keep(advance_vm(vm, VmEvent.DRAIN_ASKED, moment, action.reason))
            case Undrain():
                vm = self._named(action.vm_name)
                self._keep(advance_vm(vm, VmEvent.DRAIN_WITHDRAWN, moment, action.reason))
            case NoAction():
                pass
            case Queue() | Unqueue():
                raise AssertionError("a trace has no gangs")
            case _:
                assert_never(action)

    def _named(self, name: str) -> Vm:
        return self._active.vms[self._active.names[name]]

    def _create(
        self, cloud: ReplayCloud, spec: ClusterSpec, name: str, action: Create, moment: datetime
    ) -> None:
        machine = cloud.create(self._zone[spec.name, action.region])
        self._machines[machine.name] = machine
        vm = new_vm(
            spec, action.region, uid=machine.name, name=name, now=moment, reason=action.reason
        )
        self._keep(replace(vm, request_id=action.request_id))


def _spec(
    name: str, cloud: ReplayCloud, places: Sequence[tuple[str, str]], setup: Setup
) -> ClusterSpec:
    regions = tuple(
        RegionSpec(region, (region,), zone.usd_per_hour, zone.usd_per_hour)
        for zone, (cluster, region) in zip(cloud.zones, places, strict=True)
        if cluster == name
    )
    return ClusterSpec(
        name=name,
        gpu_type="replay",
        gpus=setup.gpus,
        machine_type=MACHINE_TYPE,
        vm_max=setup.vm_max,
        regions=regions,
        vm_min=setup.vm_min,
        spot=setup.spot and name == CLUSTER,
        idle_timeout_s=setup.idle_timeout_s,
    )


def _member(vm: Vm, machine: ReplayVm) -> ManagedInstance:
    running = machine.running_at is not None
    return ManagedInstance(
        name=vm.name,
        zone=vm.region,
        machine=MachineState.RUNNING if running else MachineState.NONE,
        instance_id=machine.name if running else "",
        refusals=_STOCKOUT if machine.refusals and not running else (),
    )


def _job_uid(run: ReplayJob) -> str:
    return f"{run.index:08d}"


def _encode(_: Control) -> OutMessage:
    return _NOTHING


def _moment(now: float) -> datetime:
    return EPOCH + timedelta(seconds=now)


def _seconds(moment: datetime) -> float:
    return (moment - EPOCH).total_seconds()
