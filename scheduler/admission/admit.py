"""Which waiting jobs count as demand. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from core.cluster import ClusterSpec
from core.job import E, Job, S
from core.job_steps import EventFacts
from core.queueing import QueueRule, due_key
from core.region_blocks import RegionBlock
from scheduler.placement.gang import Gangs
from scheduler.placement.gang_placement import Regions, where
from scheduler.placement.reservation import Guesses, ReservedRoom
from scheduler.placement.simulation_results import NOTHING_KEPT, Kept, Made
from scheduler.placement.slots import Room
from scheduler.plan_builder import PlanBuilder
from scheduler.queue.fair_share import Shares
from scheduler.queue.guaranteed_start import protected_at
from scheduler.queue.order import ranked
from scheduler.queue.price_caps import may_be_bought, price_words, size_words
from scheduler.queue.quotas import Quotas
from scheduler.v1.offers import offered_first, twin_words

DISPLACED = "another job goes first, or the limit was lowered"


@dataclass(frozen=True, slots=True)
class Admission:
    """Who has a place in one cluster."""

    admitted: Sequence[str] = ()
    """In order."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Job → the quota that it does not fit, in words."""
    short: Sequence[Sequence[Job]] = ()
    """Jobs and gangs for which there was no room, or no quota, in order: the first, and as many
    more as were asked for."""
    room: Room | None = None
    """What is left."""
    held_room: ReservedRoom | None = None
    """To the first of those without room."""
    kept: Kept = NOTHING_KEPT


@dataclass(frozen=True, slots=True)
class AdmissionContext:
    """What the admissions of all clusters in one cycle share."""

    plan: PlanBuilder
    shares: Shares
    quotas: Quotas
    leased: Mapping[str, int]
    """Cluster → how many of its jobs have a VM."""
    blocks: Sequence[RegionBlock]
    guess: Guesses
    made: Made
    """The room that others make."""
    v1_ids: dict[str, str] | None
    """Of v1 clusters, job id → the job that has it to itself; those admitted are added."""


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """Who waits for one cluster."""

    spec: ClusterSpec
    jobs: Sequence[Job]
    more: int = 0
    """So many are to be named that find no room, besides the first."""


def admit(context: AdmissionContext, queue: ClusterQueue) -> Admission:
    """The first `room` waiting jobs count as demand; one that lost its rank goes back. One that no
    region may serve any more, or none at its price, or that its tenant's quota forbids, has no
    rank: it must not hold a place that others could use. A gang is admitted whole, and all of it
    is sent to one region. The first that finds no room has a reservation: those behind it pass
    only if they do not delay it."""
    plan, quotas, spec = context.plan, context.quotas, queue.spec
    held = [job for job in queue.jobs if job.status is S.PROVISIONING]
    for job in held:
        quotas.take(job, -1)
    found = _Picks(context, queue)
    found.choose(_in_order(context, queue, held))
    chosen, refused = found.chosen, found.refused
    # First the jobs that leave: the store counts what they held as free for the next ones.
    for job in held:
        if job.uid not in chosen:
            lost = refused.get(job.uid) or price_words(job.spec, spec) or DISPLACED
            servable = has_a_region(job, spec)
            plan.step(job, E.WITHDRAWN, lost if servable else "its regions were withdrawn")
    regions, gangs = Regions(plan, spec, context.blocks), Gangs(plan)
    for gang in chosen.values():
        fresh = [job for job in gang if job.status is S.QUEUED]
        if fresh:
            whole = len(fresh) == len(gang)
            region = where(gangs, regions, gang) if whole else gang[0].gang_region
            _admit_gang(plan, spec, fresh, region, quotas)
    return Admission(tuple(chosen), refused, found.short, found.room, found.held_room, found.kept)


def _in_order(context: AdmissionContext, queue: ClusterQueue, held: Sequence[Job]) -> Iterator[Job]:
    plan = context.plan
    protected = protected_at(plan.now, plan.rules.timers.max_runtime_s)
    order = ranked(queue.jobs, queue.spec.queue, context.shares, protected, context.made.served)
    return offered_first(order, held) if queue.spec.worker == "v1" else order


def set_aside(
    plan: PlanBuilder,
    clusters: Mapping[str, ClusterSpec],
    queues: Mapping[str, Iterable[Job]],
    quotas: Quotas,
) -> frozenset[str]:
    """Of each tenant, the job that has been due longest has its part of the quota set aside.
    Returns the clusters of these jobs. Where only priorities count, nobody is ever due."""
    longest: dict[str, Job] = {}
    for name, jobs in queues.items():
        spec = clusters.get(name)
        if spec is None or spec.queue is QueueRule.PRIORITY or spec.worker == "v1" or spec.drain:
            continue
        for job in jobs:
            known = longest.get(job.spec.tenant_id)
            waits = job.status is S.QUEUED and job.due <= plan.now
            if (
                waits
                and may_be_bought(job.spec, spec)
                and (known is None or due_key(job) < due_key(known))
            ):
                longest[job.spec.tenant_id] = job
    gangs = Gangs(plan)
    found = ((job, gangs.of(job)) for job in longest.values())
    return frozenset(job.cluster for job, gang in found if gang and quotas.set_aside(gang))


class _Picks:
    """Who gets a place, in order."""

    def __init__(self, context: AdmissionContext, queue: ClusterQueue) -> None:
        self._plan, self._spec, self._gangs = context.plan, queue.spec, Gangs(context.plan)
        self._quotas, self._guess, self._made = context.quotas, context.guess, context.made
        self._ids = context.v1_ids if queue.spec.worker == "v1" else None
        self._more = queue.more
        self.room = Room(context.plan, queue.spec, context.leased[queue.spec.name])
        self.chosen: dict[str, Sequence[Job]] = {}
        """The first of each gang with all of it, the others with nothing."""
        self.refused: dict[str, str] = {}
        """Whom a quota refuses, in words."""
        self.short: list[Sequence[Job]] = []
        self.held_room: ReservedRoom | None = None
        """To the first without room."""
        self.kept = NOTHING_KEPT

    def choose(self, order: Iterable[Job]) -> None:
        left_out: set[str] = set()
        for job in order:
            if job.uid in self.chosen or job.uid in self.refused or job.uid in left_out:
                continue
            gang = self._gangs.of(job)
            if gang is None or not self._may_be_served(job):
                continue
            lacks = self._quotas.take_all(gang)
            if lacks is not None:
                self.refused.update((member.uid, lacks.why()) for member in gang)
                self.short.append(gang)
            elif self._take(gang):
                self.chosen.update((m.uid, gang if m is gang[0] else ()) for m in gang)
                self._keep_for(gang)
                if self._ids is not None:
                    self._ids[job.spec.job_id] = job.uid
            else:
                for member in gang:
                    self._quotas.take(member, -1)
                self.short.append(gang)
                left_out.update(member.uid for member in gang)
                self._reserve_for(gang)
                self._keep_for(gang)
                if self._full() and len(self.short) > self._more:
                    break

    def _reserve_for(self, gang: Sequence[Job]) -> None:
        """Only the first has a reservation, and every job for which others are preempted."""
        if self.held_room is None:
            made = gang[0].uid in self._made.served
            self.held_room = ReservedRoom(
                self._plan, self._spec, gang, self._guess, self.chosen, made=made
            )

    def _keep_for(self, gang: Sequence[Job]) -> None:
        """Also for one that has a place: there may be room elsewhere that it may not use."""
        if gang[0].uid in self._made.served:
            self.kept = Kept(self._made.vms, {*self.chosen, *(job.uid for job in gang)})

    def _may_be_served(self, job: Job) -> bool:
        if job.out_of_queue or not (
            may_be_bought(job.spec, self._spec) or self._has_one_it_affords(job)
        ):
            return False
        if self._ids is not None and self._ids.get(job.spec.job_id, job.uid) != job.uid:
            self.refused[job.uid] = twin_words(job)
            return False
        return True

    def _has_one_it_affords(self, job: Job) -> bool:
        """A VM keeps the price that it was made with; prices may have risen since."""
        if size_words(job.spec, self._spec):
            return False
        return has_a_region(job, self._spec) and any(
            vm.counted and job.spec.allows_region(vm.region) and job.spec.affords(vm.usd_per_hour)
            for vm in self._plan.vms_of(self._spec.name)
        )

    def _take(self, gang: Sequence[Job]) -> bool:
        """Room for all of them that is not reserved for another job."""
        before = self.room.save()
        if not self.room.take_all(member.spec for member in gang):
            return False
        if self.held_room is None or self._keeps_its_place(gang):
            return True
        after = self.room.save()
        self.room.restore(before)
        if not self.held_room.lets(gang, self.room, self.chosen):
            return False
        self.room.restore(after)
        return True

    @staticmethod
    def _keeps_its_place(gang: Sequence[Job]) -> bool:
        """One that was let past another keeps its place while its VM comes."""
        return all(member.status is S.PROVISIONING for member in gang)

    def _full(self) -> bool:
        """Nobody behind could find room."""
        return self.room.gpus < 1


def _admit_gang(
    plan: PlanBuilder, spec: ClusterSpec, gang: Sequence[Job], region: str | None, quotas: Quotas
) -> None:
    words = f"admitted to {spec.name}" + (f", to look for VMs in {region}" if region else "")
    with plan.together():
        for job in gang:
            also = [quotas.reserve(job)]
            plan.step(job, E.ADMITTED, words, also=also, facts=EventFacts(gang_region=region))


def has_a_region(job: Job, spec: ClusterSpec) -> bool:
    return any(job.spec.allows_region(region.region) for region in spec.regions)
