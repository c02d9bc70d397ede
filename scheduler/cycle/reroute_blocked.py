"""A job that has waited long for a cluster with nothing to give goes to the next one that serves
it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter

from core.changes import Snapshot
from core.cluster import ClusterSpec
from core.errors import BadInput
from core.job import WAITING, E, Job, S
from core.job_fields import JobSpec
from core.job_steps import EventFacts
from core.queueing import arrival_key
from scheduler.placement.slots import Room, Slots
from scheduler.plan_builder import PlanBuilder
from scheduler.queue.blocked_clusters import block_of
from scheduler.submission.cluster_selection import in_preference

Clusters = Mapping[str, ClusterSpec]
_REQUIREMENTS = (
    *("cluster", "gpu_type", "gpu_types", "gpu_count", "gpu_memory_mb", "cpu_cores", "memory_mb"),
    *("regions", "regions_denied", "max_usd_per_hour", "agreed_usd_per_hour"),
    *("spot", "allow_larger", "replicas"),
)
"""What decides which clusters serve a job: jobs that agree in all of it are served alike."""
_kind_of: Callable[[JobSpec], tuple[object, ...]] = attrgetter(*_REQUIREMENTS)


def fall_back(plan: PlanBuilder, snapshot: Snapshot, clusters: Clusters) -> None:
    """Moves no more jobs than the others have room for, the ones that have waited longest first.
    One that asked for exactly its cluster stays there."""
    after = timedelta(seconds=plan.rules.timers.fallback_after_s)
    usable = [spec for spec in clusters.values() if not spec.drain and spec.vm_max > 0]
    if len(usable) < 2:
        return
    others = _Others(plan, snapshot, clusters, usable)
    if not others.have_room:
        return  # where every cluster is full, it does not matter who waits
    stuck = [job for job in plan.waiting() if _waits_long(job, plan.now, after)]
    for job in sorted(stuck, key=arrival_key):
        why = others.nothing_for(job)
        target = others.next_for(job) if why else None
        if target is not None:
            waited_s = (plan.now - job.queued_since).total_seconds()
            reason = (
                f"moved from {job.cluster} to {target.name}, which serves the job too: after "
                f"{waited_s:.0f} s there is nothing to be had there ({why})"
            )
            plan.step(
                job, E.REROUTED, reason, facts=EventFacts(cluster=target.name), left=job.cluster
            )


def _waits_long(job: Job, now: datetime, wait_limit: timedelta) -> bool:
    """Also since its last move: nobody is sent to and fro."""
    free = job.status in WAITING and job.spec.cluster is None and job.blocked is None
    free = free and job.offer is None  # a v1 worker may have taken it already
    # A gang that moved one by one would be in two clusters: it stays where it is.
    return free and job.gang is None and now - max(job.queued_since, job.status_since) >= wait_limit


class _Others:
    """What the clusters have to give, as jobs are moved around."""

    def __init__(
        self,
        plan: PlanBuilder,
        snapshot: Snapshot,
        clusters: Clusters,
        usable: Sequence[ClusterSpec],
    ) -> None:
        self._plan, self._snapshot, self._clusters = plan, snapshot, clusters
        self._usable = usable
        self._rooms: dict[str, Room] = {}
        self._slots: dict[str, Slots] = {}
        # Many jobs are alike: each question about a cluster is answered once.
        self._blocks: dict[tuple[str, tuple[str, ...], tuple[str, ...]], str] = {}
        self._fleets: dict[str, tuple[int, frozenset[str]]] = {}
        self._choices: dict[tuple[object, ...], dict[str, ClusterSpec]] = {}
        """What jobs ask for → the clusters that serve it and may still have something."""
        self._hopeless: set[tuple[str, tuple[object, ...]]] = set()
        self._waiting = plan.waiting_by_cluster()
        self._census = plan.active.census.after(plan.moves)
        self._full = frozenset(spec.name for spec in usable if self._is_full(spec))

    @property
    def have_room(self) -> bool:
        """Nothing becomes free during a cycle: if no cluster has room, nobody moves."""
        return len(self._full) < len(self._usable)

    def _is_full(self, spec: ClusterSpec) -> bool:
        """For certain: where VMs are shared, that takes a look at all of them."""
        ahead = self._census.leased[spec.name] + len(self._waiting.get(spec.name, ()))
        return not spec.share and ahead >= spec.vm_max

    def nothing_for(self, job: Job) -> str:
        """Why its own cluster has nothing for it; empty: it may have something soon."""
        spec = self._clusters.get(job.cluster)
        if spec is None:
            return "the cluster is not in the configuration any more"
        counted, coming = self._fleet(spec)
        if job.status is S.QUEUED and counted >= spec.vm_max:
            return f"its limit of {spec.vm_max} VMs is reached"
        if any(map(job.spec.allows_region, coming)):
            return ""
        return self._block(job, spec)

    def _fleet(self, spec: ClusterSpec) -> tuple[int, frozenset[str]]:
        """How many VMs it has, and the regions where one is on its way that was not refused."""
        if spec.name not in self._fleets:
            plan = self._plan
            vms = (plan.vms[uid] for uid in plan.active.in_flight)
            mine = (vm for vm in vms if vm.cluster == spec.name and not vm.refused)
            coming = (vm for vm in mine if vm.state.in_flight)
            counted = plan.active.counted_in(spec.name)
            self._fleets[spec.name] = (counted, frozenset(vm.region for vm in coming))
        return self._fleets[spec.name]

    def _block(self, job: Job, spec: ClusterSpec) -> str:
        key = (spec.name, job.spec.regions, job.spec.regions_denied)
        if key not in self._blocks:
            found = block_of(job.spec, spec, self._snapshot.blocks, self._plan.now)
            self._blocks[key] = found
        return self._blocks[key]

    def next_for(self, job: Job) -> ClusterSpec | None:
        """The first in the job's preference that has a VM for it, or may get one."""
        kind = _kind_of(job.spec)
        if (job.cluster, kind) in self._hopeless:
            return None
        here, now, dear = self._clusters.get(job.cluster), self._plan.now, False
        choices = self._in_preference(kind, job.spec)
        for spec in tuple(choices.values()):
            if spec.name == job.cluster:
                continue
            if not self._plan.deadline_slack.allows(job, here, spec, now):
                dear = True
            elif self._has_something(job, spec):
                return spec
            elif not spec.keeps_tenants_apart:
                # It has nothing for any of this kind, and will not have during the cycle: with
                # many clusters, each is asked once, not once for each of the others.
                del choices[spec.name]
        if not dear:
            # Nothing becomes free during a cycle: the next one of its kind need not ask.
            self._hopeless.add((job.cluster, kind))
        return None

    def _in_preference(self, kind: tuple[object, ...], spec: JobSpec) -> dict[str, ClusterSpec]:
        """Clusters that are not full. Empty: or nothing in the configuration serves it any more."""
        if kind not in self._choices:
            try:
                found = in_preference(spec, self._usable)
            except BadInput:
                found = []
            self._choices[kind] = {one.name: one for one in found if one.name not in self._full}
        return self._choices[kind]

    def _has_something(self, job: Job, spec: ClusterSpec) -> bool:
        if spec.name not in self._rooms:
            self._rooms[spec.name] = self._room(spec)
        if not self._rooms[spec.name].fits(job.spec):
            return False
        if spec.name not in self._slots:
            self._slots[spec.name] = Slots(self._plan, spec)
        idle = self._slots[spec.name].best(job.spec) is not None
        return (idle or not self._block(job, spec)) and self._rooms[spec.name].take(job.spec)

    def _room(self, spec: ClusterSpec) -> Room:
        """Without what those who wait there already will take."""
        room = Room(self._plan, spec, self._census.leased[spec.name])
        for job in self._waiting.get(spec.name, ()):
            room.take(job.spec)
        return room
