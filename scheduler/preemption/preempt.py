"""Preemptions for those at the head of a queue who found no room. Pure.

A simulation comes first: only if the waiting job would then start is any job preempted
(scheduler/preemption/policy.py says who may claim whose place, and at what price). Victims get
SIGTERM and their grace, and wait again with their budgets untouched; both timelines hold the
receipt.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from core.changes import JobNote
from core.cluster import ClusterSpec
from core.job import E, Job, S, TimelineEntry, by_gang
from core.queueing import PriorityClass, QueueRule, class_of, due_at
from core.tenants import Tenant, told_name
from core.waits import WaitKind, WaitNote
from scheduler.admission.admit import Admission
from scheduler.placement.elastic import Bending, look_at
from scheduler.placement.gang import preemption_message
from scheduler.placement.simulation import RoomSimulation
from scheduler.placement.simulation_results import Answers, SimulationResult
from scheduler.placement.slots import Slots
from scheduler.plan_builder import PlanBuilder
from scheduler.preemption.policy import (
    Fairer,
    PreemptionResult,
    Runs,
    Wants,
    is_settled,
    least_of_all_s,
    nobody,
    result,
)
from scheduler.queue.fair_share import Shares

HEADS = 4
"""So many of a cluster's first gangs are tried for in a cycle: those behind them have less
claim."""
PACE_S = 0.5
"""A simulation looks at all jobs that run in its cluster: one cluster at a time, and so far apart.
High classes are tried for at once."""
ASK_S = 10.0
"""A cluster is not asked again sooner, unless for a higher class."""
_LAST_S = 1e15
"""Later than anybody is due."""
LATE_S = 120.0
"""One that was admitted waits for the cloud so long before others are preempted for it."""
SETTLES_S = 30.0
"""What was freed is kept so long for the one that it was freed for: a cycle or two."""
SPARE = -1
"""Below every class: members that elastic jobs can do without."""
SavedAt = Callable[[Job], datetime | None]


def never_saved(_: Job) -> datetime | None:
    """Nobody has reported a checkpoint."""
    return None


@dataclass(frozen=True, slots=True)
class PreemptionContext:
    """What a cycle knows that preemptions depend on."""

    shares: Shares
    tenants: Mapping[str, Tenant]
    saved_at: SavedAt
    answers: Answers
    served: frozenset[str] = frozenset()
    """Jobs for which elastic ones make room already."""


def make_room(
    plan: PlanBuilder,
    clusters: Mapping[str, ClusterSpec],
    admissions: Mapping[str, Admission],
    ask: PreemptionContext,
) -> None:
    """For the first gangs that are stuck: one cluster with those of a high class, and one of the
    others, the one that has waited longest for a simulation."""
    queues: dict[bool, list[tuple[datetime, str, list[Sequence[Job]]]]] = {True: [], False: []}
    for name, admission in admissions.items():
        gangs = _stuck(plan, clusters[name], admission, ask)
        if not gangs:
            ask.answers.of.pop(name, None)
        elif (since := _since(gangs[0][0], ask.answers.of.get(name), plan.now)) is not None:
            high = class_of(gangs[0][0].spec.priority) >= PriorityClass.HIGH
            queues[high].append((since, name, gangs))
    last = ask.answers.last
    if last is not None and plan.now - last < timedelta(seconds=PACE_S):
        queues[False] = []
    for high, queue in queues.items():
        if not queue:
            continue
        _, name, gangs = min(queue, key=lambda entry: entry[:2])
        words = Round(plan, clusters[name], admissions[name], ask).serve(gangs)
        first = gangs[0][0]
        tier = class_of(first.spec.priority)
        ask.answers.of[name] = SimulationResult(first.uid, tier, plan.now, words)
        if not high:
            ask.answers.last = plan.now


def _since(first: Job, last: SimulationResult | None, now: datetime) -> datetime | None:
    """Since when a simulation is due; None: not yet."""
    if last is None:
        return first.status_since
    tier = class_of(first.spec.priority)
    another = tier >= PriorityClass.HIGH and first.uid != last.first
    due = now - last.at >= timedelta(seconds=ASK_S) or tier > last.tier or another
    return last.at if due else None


def _stuck(
    plan: PlanBuilder, spec: ClusterSpec, admission: Admission, ask: PreemptionContext
) -> list[Sequence[Job]]:
    """The first gangs without a place: the ones that were admitted and found no VM, then the ones
    without room. Empty if none of them may preempt, or no job here is ever preempted."""
    if spec.queue is QueueRule.FIFO or spec.drain or spec.worker == "v1":
        return []
    gangs = [*unplaced(plan, admission), *admission.short][:HEADS]
    may = any(may_preempt(gang[0], ask) and gang[0].uid not in ask.served for gang in gangs)
    return gangs if may else []


def unplaced(plan: PlanBuilder, admission: Admission) -> list[Sequence[Job]]:
    """Gangs that were admitted and have no VM yet, in order; of a few the first."""
    gangs: dict[str, list[Job]] = {}
    for uid in admission.admitted:
        job = plan.jobs[uid]
        if job.status is S.PROVISIONING:
            gangs.setdefault(job.gang_uid, []).append(job)
            if len(gangs) > HEADS:
                break
    return list(gangs.values())


def may_preempt(job: Job, ask: PreemptionContext) -> bool:
    tenant = ask.tenants.get(job.spec.tenant_id)
    return tenant is None or tenant.may_preempt


class Round:
    """One cluster's simulations."""

    def __init__(
        self, plan: PlanBuilder, spec: ClusterSpec, admission: Admission, ask: PreemptionContext
    ) -> None:
        self._plan, self._spec, self._ask = plan, spec, ask
        self._fair = spec.queue is QueueRule.FAIR
        self._refused = admission.refused
        self._shares = ask.shares.plus(_just_placed(plan))
        awaiting = sum(plan.jobs[u].status is S.PROVISIONING for u in admission.admitted)
        self._simulation = RoomSimulation(plan, spec, awaiting)
        self._members: dict[str, Sequence[Job]] = {}
        self._leaving: list[Runs] = []
        """Jobs that have been told: they will wait again."""
        self._running: dict[str, Runs] = {}
        self._kept_out: list[Sequence[Job]] = []
        """Those who would go first, but for their quotas."""
        self._given: Counter[str] = Counter()
        """Tenant → GPUs of the jobs that were served in this cycle."""
        self._behind: Sequence[Sequence[Job]] = ()
        self._passed_by = False
        self._passed: list[Sequence[Job]] = []
        """Those who would be passed by one behind them."""

    def serve(self, gangs: Iterable[Sequence[Job]]) -> dict[str, str]:
        """In order. Returns what to tell those for whom room is being made."""
        words: dict[str, str] = {}
        leaving, queue = list(self._simulation.leaving), list(gangs)
        self._running = self._look(max(class_of(gang[0].spec.priority) for gang in queue))
        shapes: set[object] = set()
        for place, gang in enumerate(queue):
            if leaving and shapes and shapes != {self._shape(gang)}:
                break
            self._behind, self._passed_by = queue[place + 1 :], False
            gone = () if self._simulation.fits(gang) else self._victims(gang)
            if gone is None:
                if self._passed_by:
                    self._passed.append(gang)
                    continue
                if gang[0].uid in self._refused:
                    self._kept_out.append(gang)
                    continue
                break  # what is freed is reserved for it
            shapes.add(self._shape(gang))
            self._simulation.give(gang, gone)
            self._given[gang[0].spec.tenant_id] += sum(job.spec.slots for job in gang)
            leaving += gone
            if leaving and gang[0].status is S.QUEUED:
                told = "waits for the places of jobs that are preempted or end"
                words.update((member.uid, told) for member in gang)
        return words

    def _shape(self, gang: Sequence[Job]) -> object:
        """Places that come free one by one are given to the first job that fits: only for those
        that are alike it does not matter which one each gets."""
        spec = gang[0].spec
        where = (spec.regions, spec.regions_denied, spec.max_usd_per_hour, len(gang))
        if not self._spec.share:
            return where
        tenant = spec.tenant_id if self._spec.keeps_tenants_apart else ""
        return where, spec.slots, spec.cpu_cores, spec.memory_mb, tenant

    def _victims(self, gang: Sequence[Job]) -> Sequence[Job] | None:
        """Which jobs are preempted for the gang; None: none."""
        first = gang[0]
        able = may_preempt(first, self._ask) and first.uid not in self._refused
        if not able or first.uid in self._ask.served or not self._is_late(first):
            return None
        wants = self._wants(gang)
        found = result(
            wants,
            self._running.values(),
            lambda gone: self._simulation.fits(gang, self._jobs(gone)),
            others=lambda gone: self._others(gone) or self._overtaken(wants, gone),
            fairer=fairer_by(self._shares) if self._fair else nobody,
            least_run_s=self._plan.rules.queue.least_run_s,
        )
        note = WaitNote(first.uid, WaitKind.PREEMPTION, "", found.why, self._plan.now)
        self._ask.answers.notes.happened(note)
        if not found.victims:
            return None
        return self._preempt(gang, wants, found)

    def _is_late(self, first: Job) -> bool:
        """One that was admitted waits for the cloud first: VMs that come are cheaper than work
        that is lost."""
        if first.status is S.QUEUED:
            return True
        if any(vm.state.in_flight for vm in self._plan.vms_of(self._spec.name)):
            return False
        return self._plan.now - first.status_since >= timedelta(seconds=LATE_S)

    def _others(self, gone: Sequence[Runs]) -> bool:
        """Whether one that its quota keeps out would come in: its own tenant's jobs would go."""
        jobs, tenants = self._jobs(gone), {runs.tenant for runs in gone}
        return any(
            gang[0].spec.tenant_id in tenants and self._simulation.fits(gang, jobs)
            for gang in self._kept_out
        )

    def _overtaken(self, wants: Wants, gone: Sequence[Runs]) -> bool:
        """Whether somebody would go first then who does not now, and take what is freed or have it
        reserved: one that is preempted and waits again, or one behind whose tenant has less at work
        without these. That one is simulated later."""
        leaving = [*self._leaving, *gone]
        freed, shares = _freed(leaving), self._shares

        def share(tenant: str) -> float:
            moved = self._given[tenant] - freed[tenant]
            return shares.used_by(tenant) + shares.part(tenant, moved)

        mine = share(wants.tenant)
        for runs in leaving:
            if runs.tier != wants.tier:
                first = runs.tier > wants.tier
            elif runs.tenant == wants.tenant:
                first = runs.due_s <= wants.due_s
            else:
                first = share(runs.tenant) <= mine
            if first:
                return True

        def goes_first(gang: Sequence[Job]) -> bool:
            tier = class_of(gang[0].spec.priority)
            if tier != wants.tier:
                return tier > wants.tier
            other = gang[0].spec.tenant_id != wants.tenant
            return other and share(gang[0].spec.tenant_id) < mine

        # Those whose tenants lose nothing stay behind; nobody behind is of a higher class.
        behind = [gang for gang in self._behind if freed[gang[0].spec.tenant_id]]
        self._passed_by = self._fair and any(goes_first(gang) for gang in behind)
        return self._passed_by or any(goes_first(gang) for gang in self._passed)

    def _jobs(self, some: Sequence[Runs]) -> list[Job]:
        return [job for runs in some for job in self._members[runs.uid]]

    def _wants(self, gang: Sequence[Job]) -> Wants:
        first, now = gang[0], self._plan.now
        return Wants(
            uid=first.uid,
            gpus=sum(job.spec.slots for job in gang),
            # Elsewhere arrival or the number decides: no job of its class is preempted for it.
            due_s=first.due.timestamp() if self._fair else math.inf,
            waited_s=(now - first.queued_since).total_seconds(),
            tier=class_of(first.spec.priority),
            tenant=first.spec.tenant_id,
            name=first.spec.job_id,
        )

    # --- who runs

    def _look(self, highest: int) -> dict[str, Runs]:
        """All jobs that may be preempted for some job of a class no higher than that; the others,
        which are nearly all, are left out by the cheapest test."""
        plan = self._plan
        gangs = by_gang(plan.leased_in(self._spec.name))
        since = plan.now - timedelta(seconds=least_of_all_s(plan.rules.queue.least_run_s))
        found: dict[str, Runs] = {}
        for uid in [uid for uid, members in gangs.items() if members[0].spec.elastic]:
            if (whole := look_at(plan.gang(uid), plan.now)) is not None:
                found |= self._surplus(whole)
                gangs[uid] = [member for member in whole.here if member not in whole.extra]
        for uid, members in gangs.items():
            if any(job.status is S.PREEMPTING for job in members):
                self._members[uid] = members
                self._leaving.append(self._runs(uid, members))
            elif self._may_be_claimed(members, highest) and all(
                self._may_be_preempted(job, since) for job in members
            ):
                self._members[uid] = members
                found[uid] = self._runs(uid, members)
        return found

    def _may_be_claimed(self, members: Sequence[Job], highest: int) -> bool:
        tier = class_of(members[0].spec.priority)
        if tier != highest:
            return tier < highest
        ran_s, unsaved_s = self._spans(members)
        return is_settled(ran_s, unsaved_s)

    def _spans(self, members: Sequence[Job]) -> tuple[float, float]:
        """For how long a gang has run, and since when it has saved nothing: what its first member
        saves it saves for all."""
        now, saved_at = self._plan.now, self._ask.saved_at
        began = max([job.started_at or job.status_since for job in members])
        saved = max([saved_at(job) or began for job in members])
        return (now - began).total_seconds(), max(0.0, (now - max(saved, began)).total_seconds())

    def _surplus(self, job: Bending) -> dict[str, Runs]:
        """What an elastic job can do without is preempted before any whole job, the highest ranks
        first: it loses nothing, and the job goes on."""
        found = {}
        for place, member in enumerate(job.extra):
            vm = self._plan.vms.get(member.lease.vm_uid) if member.lease else None
            if vm is not None and Slots.serves(vm, self._spec):
                self._members[member.uid] = [member]
                found[member.uid] = Runs(
                    uid=member.uid,
                    gpus=member.spec.slots,
                    due_s=_LAST_S - place,
                    ran_s=math.inf,
                    unsaved_s=0.0,
                    tier=SPARE,
                    tenant=member.spec.tenant_id,
                    name=member.spec.job_id,
                )
        return found

    def _may_be_preempted(self, job: Job, since: datetime) -> bool:
        began = job.started_at
        if job.status is not S.RUNNING or began is None or began > since:
            return False
        if not job.spec.reschedulable or job.lease is None:
            return False
        tenant = self._ask.tenants.get(job.spec.tenant_id)
        vm = self._plan.vms.get(job.lease.vm_uid)
        able = vm is not None and Slots.serves(vm, self._spec)
        return able and (tenant is None or tenant.preemptible)

    def _runs(self, uid: str, members: Sequence[Job]) -> Runs:
        """A gang's as one."""
        first = members[0]
        ran_s, unsaved_s = self._spans(members)
        had = first.attained_gpu_s + ran_s * first.spec.slots
        due = due_at(first.submitted_at, first.spec, had, self._plan.rules.queue)
        return Runs(
            uid=uid,
            gpus=sum(job.spec.slots for job in members),
            due_s=max(first.due, due).timestamp(),
            ran_s=ran_s,
            unsaved_s=unsaved_s,
            times_preempted=first.times_preempted,
            tier=class_of(first.spec.priority),
            tenant=first.spec.tenant_id,
            name=first.spec.job_id,
        )

    # --- what is done

    def _preempt(self, gang: Sequence[Job], wants: Wants, found: PreemptionResult) -> Sequence[Job]:
        plan, gone = self._plan, self._jobs(found.victims)
        with plan.together():
            for runs in found.victims:
                words = _victim_words(wants, runs)
                for job in self._members[runs.uid]:
                    plan.step(
                        job,
                        E.PREEMPTION_ASKED,
                        words,
                        tell=preemption_message(plan, job, words),
                        made_room_for=told_name(wants.name, wants.tenant, runs.tenant),
                        unsaved_s=round(runs.unsaved_s),
                    )
                del self._running[runs.uid]
                self._leaving.append(runs)
            deadlines = [plan.jobs[job.uid].deadline_at for job in gone]
            latest = max((moment for moment in deadlines if moment), default=plan.now)
            plan.add(JobNote(gang[0].uid, _receipt(gang[0], found, latest, plan.now)))
            until, answers = latest + timedelta(seconds=SETTLES_S), self._ask.answers
            answers.served[gang[0].uid] = until
            answers.left.update((job.lease.vm_uid, until) for job in gone if job.lease is not None)
        return gone


def _just_placed(plan: PlanBuilder) -> Counter[str]:
    """Tenant → GPUs of jobs that were given a VM in this cycle: its shares are older."""
    found: Counter[str] = Counter()
    for before, after in plan.moves:
        if before.status is S.PROVISIONING and after.lease is not None:
            found[after.spec.tenant_id] += after.spec.slots
    return found


def _freed(some: Iterable[Runs]) -> Counter[str]:
    """Tenant → GPUs that these leave."""
    found: Counter[str] = Counter()
    for runs in some:
        found[runs.tenant] += runs.gpus
    return found


def fairer_by(shares: Shares) -> Fairer:
    """How much more others have had, if it is more even after the exchange: else two would take
    turns."""

    def fairer(wants: Wants, some: Sequence[Runs]) -> float:
        mine = shares.used_by(wants.tenant) + shares.part(wants.tenant, wants.gpus)
        freed = _freed(some).items()
        theirs = min(shares.used_by(name) - shares.part(name, n) for name, n in freed)
        return theirs / mine if mine <= (1 - shares.hysteresis) * theirs else 0.0

    return fairer


# --- the words, for both timelines


def _receipt(first: Job, found: PreemptionResult, latest: datetime, now: datetime) -> TimelineEntry:
    """For the timeline of the job that others are preempted for, by `latest`."""
    mine = first.spec.tenant_id
    names = [told_name(runs.name, runs.tenant, mine) for runs in found.victims]
    return TimelineEntry(
        at=now,
        event="room_made",
        from_status=first.status,
        to_status=first.status,
        attempt=first.attempt,
        reason=_winner_words(names, found, latest),
        data={"victims": names},
        dedup_key=f"room-{first.attempt}-{now.timestamp():.0f}",
    )


def _victim_words(wants: Wants, runs: Runs) -> str:
    """For the timeline of a preempted job: its tenant reads it, and may know of its own jobs."""
    name = told_name(wants.name, wants.tenant, runs.tenant)
    if runs.tier == SPARE:
        return f"gives its VM to job {name}"
    if runs.tier < wants.tier:
        mine, theirs = PriorityClass(wants.tier).name.lower(), PriorityClass(runs.tier).name.lower()
        why = f"class {mine} goes before {theirs}"
    elif runs.tenant == wants.tenant:
        why = "it is due first"
    else:
        why = f"its tenant has had less of its share than {runs.tenant}"
    return (
        f"gives {_gpus_words(runs.gpus)} to job {name}: {why}; SIGTERM sent, what it does "
        f"not save now is lost ({runs.unsaved_s:.0f} s since its last checkpoint); it waits again, "
        "its budgets untouched"
    )


def _winner_words(names: Sequence[str], found: PreemptionResult, latest: datetime) -> str:
    """For the timeline of the job that they are preempted for."""
    victims = ", ".join(f"job {name}" for name in sorted(names))
    return (
        f"{victims} give{'s' * (len(found.victims) == 1)} {_gpus_words(found.freed)} to it, by "
        f"{latest:%H:%M:%S} UTC at the latest; at most {found.lost_gpu_s:.0f} GPU-seconds of work "
        "are lost"
    )


def _gpus_words(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"
