"""Why jobs wait and what would change it, in words: one ordered list of rules. Pure.

The first rule that has words for a job gives its pending reason, for the head of a queue in a
scheduling cycle and for the millionth job when somebody asks the API. A new reason is a new entry
of RULES.

No durations and no counts of jobs in the text: a sentence that changes with each job that ends
would be written for the whole queue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from operator import attrgetter

from core.changes import PendingReason, Snapshot
from core.cluster import ClusterSpec
from core.job import WAITING, Job, JobStatus, S
from core.job_fields import JobSpec
from core.queueing import QueueRule, class_of
from core.region_blocks import RegionBlock
from core.tenants import told_name
from core.vm import Vm
from core.waits import NOTES_PER_CYCLE, WaitKind, WaitNote, fold_key
from scheduler.admission.admit import Admission, has_a_region
from scheduler.placement.gang import JOINS_LATER, pause_until
from scheduler.placement.simulation_results import Answers
from scheduler.plan_builder import PlanBuilder
from scheduler.queue.budgets import BudgetStatus
from scheduler.queue.price_caps import price_words, within_cap

_NOBODY = Admission()
_QUEUED = frozenset({S.QUEUED})
_PROVISIONING = frozenset({S.PROVISIONING})


@dataclass(frozen=True)
class Situation:
    """What is known of one cluster when a pending reason is asked for. Without a plan builder
    nobody has ranked the queue: the job stands too far back, or has only just come."""

    now: datetime
    spec: ClusterSpec | None
    """None: it is not in the configuration any more."""
    budgets: BudgetStatus
    refused: Callable[[Job], str | None]
    """What a quota refuses the job, in words."""
    plan: PlanBuilder | None = None
    admission: Admission = _NOBODY
    answers: Answers | None = None
    blocks: Sequence[RegionBlock] = ()
    far_back: bool = False
    """Without a plan builder: others are ahead of the job for certain."""

    @cached_property
    def vms(self) -> Sequence[Vm]:
        """Of the cluster; read only for jobs that wait for one."""
        if self.plan is None or self.spec is None:
            return ()
        return self.plan.vms_of(self.spec.name)

    @cached_property
    def last(self) -> Job | None:
        """The last job that got a place, if any did."""
        admitted = self.admission.admitted
        return self.plan.jobs[admitted[-1]] if self.plan is not None and admitted else None

    @cached_property
    def requested_together(self) -> Mapping[str, Sequence[Vm]]:
        """Gang → its VMs that wait in the cloud's own queue, all or none."""
        found: dict[str, list[Vm]] = {}
        flex = self.spec is not None and self.spec.flex_start_wait_s is not None
        for vm in self.vms if flex else ():
            if vm.queued:
                found.setdefault(vm.gang, []).append(vm)
        return found

    @cached_property
    def _behind(self) -> dict[tuple[str, int], str]:
        return {}

    def behind(self, job: Job) -> str:
        """Whom it is behind: the same words for the jobs of a tenant and class."""
        assert self.spec is not None, "nobody is ahead where there is no queue"
        key = (job.spec.tenant_id, job.spec.priority)
        words = self._behind.get(key)
        if words is None:
            words = self._behind[key] = behind_words(job, self.spec.queue, self.last)
        return words

    def members(self, job: Job) -> Sequence[Job]:
        """All of its gang, by rank; where that is not known, the job alone."""
        if self.plan is None or job.gang is None:
            return (job,)
        return self.plan.gang(job.gang.uid)


Words = Callable[[Job, Situation], str | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason to wait."""

    kind: str
    words: Words
    """Nothing: it is not the reason."""
    statuses: Collection[JobStatus] = WAITING
    alike: bool = False
    """All jobs of a cluster that ask for the same have the same words."""
    possible: Callable[[Situation], bool] = lambda _: True
    """Whether any job of the cluster can have it."""


# --- the rules ---------------------------------------------------------------------------


def _retry(job: Job, at: Situation) -> str | None:
    """When the next attempt starts, of a job whose last one failed; of a gang, any member's."""
    if job.gang is None and job.retry_at is None:
        return None
    waits = [m for m in at.members(job) if m.status is S.QUEUED and m.is_backing_off(at.now)]
    if not waits:
        return None
    late = max(waits, key=lambda m: (m.retry_at or at.now, m.uid))
    code = "a failure" if late.exit_code is None else f"exit code {late.exit_code}"
    number = f"attempt {late.failures + 1} of {late.spec.retries + 1} after {code}"
    return f"{number}: starts at {late.retry_at:%H:%M:%S} UTC"


def _gang_pause(job: Job, at: Situation) -> str | None:
    """What keeps a gang that is not admitted."""
    if job.gang is None:
        return None
    if job.spec.elastic and at.members(job)[0].lease is not None:
        return JOINS_LATER
    if pause_until(job) <= at.now:
        return None
    return f"{job.reason}; its gang tries again at {pause_until(job):%H:%M:%S} UTC"


def _flex_start(job: Job, at: Situation) -> str | None:
    queued = at.requested_together.get(job.gang.uid, ()) if job.gang is not None else ()
    if not queued:
        return None
    first = min(queued, key=attrgetter("requested_at"))
    return (
        f"asked for {len(queued)} VMs together in {first.region}, queued there since "
        f"{first.requested_at:%H:%M} UTC; they come when the cloud has room for all of them"
    )


def _price_or_size(job: Job, at: Situation) -> str | None:
    """Whatever ends before it frees nothing that it may use."""
    if at.spec is None or at.spec.drain or not has_a_region(job, at.spec):
        return None
    return price_words(job.spec, at.spec)


def _reservation(job: Job, at: Situation) -> str | None:
    """Of a job that finds no room beside what is reserved for another one, and of that one."""
    held_room, room = at.admission.held_room, at.admission.room
    start = held_room.at if held_room is not None else None
    if held_room is None or start is None or room is None or room.gpus < 1:
        return None
    if any(member.uid == job.uid for member in held_room.gang):
        return f"has a reservation: enough GPUs are expected to be free at about {start:%H:%M} UTC"
    first = held_room.gang[0].spec
    name = told_name(first.job_id, first.tenant_id, job.spec.tenant_id)
    return (
        f"waits behind the reservation of job {name} until about "
        f"{start:%H:%M} UTC; one that is predicted to end before passes it"
    )


def _no_cluster(job: Job, at: Situation) -> str | None:
    if at.spec is not None:
        return None
    return f"cluster {job.cluster} is not in the configuration any more"


def _drained(job: Job, at: Situation) -> str | None:
    if at.spec is None or not at.spec.drain:
        return None
    return f"cluster {job.cluster} is being drained: it takes no more jobs"


def _no_region(job: Job, at: Situation) -> str | None:
    if at.spec is None or has_a_region(job, at.spec):
        return None
    names = ", ".join(job.spec.regions)
    return f"cluster {job.cluster} has none of the job's regions any more ({names})"


def _supply(job: Job, at: Situation) -> str | None:
    assert at.spec is not None, "the rules before say so if it is not there"
    return supply_words(job.spec, at.spec, at.vms, at.blocks)


def _too_many_vms(job: Job, at: Situation) -> str | None:
    if at.spec is None or job.spec.least <= at.spec.vm_max:
        return None
    return (
        f"needs {job.spec.least} VMs at once, and cluster {job.cluster} may have {at.spec.vm_max}; "
        "it starts when vm_max is raised"
    )


def _queue_order(job: Job, at: Situation) -> str | None:
    if at.spec is None:
        return None
    if at.plan is not None:
        together = f"needs {job.spec.least} VMs at once: " if job.spec.least > 1 else ""
        limit = f"cluster {job.cluster} is at its limit of {at.spec.vm_max} VMs"
        return together + limit + at.behind(job)
    if not at.far_back:
        return None  # it has only just come: the next cycle says why it waits
    return (
        f"other jobs for cluster {job.cluster} are ahead: of higher classes, of tenant "
        f"{job.spec.tenant_id}, or of tenants that have used less of their share; it moves up as "
        "they end"
    )


RULES: Sequence[Rule] = (
    Rule(
        "budget",
        lambda job, at: at.budgets.why(job),
        _QUEUED,
        possible=lambda at: bool(at.budgets.held),
    ),
    Rule("retry", _retry, _QUEUED),
    Rule("quota", lambda job, at: at.refused(job), _QUEUED),
    Rule("gang_pause", _gang_pause, _QUEUED),
    Rule("flex_start", _flex_start, _PROVISIONING),
    Rule("price_or_size", _price_or_size, alike=True),
    Rule("preemption", lambda job, at: at.answers.words(job) if at.answers else None, _QUEUED),
    Rule(
        "reservation", _reservation, _QUEUED, possible=lambda at: at.admission.held_room is not None
    ),
    Rule("no_cluster", _no_cluster, alike=True),
    Rule("drained", _drained, alike=True),
    Rule("no_region", _no_region, alike=True),
    Rule("vm_supply", _supply, _PROVISIONING, alike=True),
    Rule("too_many_vms", _too_many_vms, _QUEUED, alike=True),
    Rule("queue_order", _queue_order, _QUEUED),
)
"""The first one with words gives the reason."""
_RULES_OF = {status: [r for r in RULES if status in r.statuses] for status in JobStatus}


def pending_reason(job: Job, at: Situation) -> str:
    """Why the job waits; empty: that is not known yet."""
    return next((words for rule in _RULES_OF[job.status] if (words := rule.words(job, at))), "")


class _Reasons:
    """Of the jobs of one cluster in one cycle. Words that many jobs share are found once."""

    def __init__(self, at: Situation) -> None:
        self._at = at
        self._known: dict[tuple[object, ...], tuple[list[Words], str]] = {}
        """What jobs ask for → the rules to be asked for each of them, and the words after that."""

    def of(self, job: Job) -> str:
        spec = job.spec
        kind = (
            *(job.status, spec.regions, spec.regions_denied, spec.least),
            *(spec.max_usd_per_hour, spec.gpu_count, spec.cpu_cores, spec.memory_mb),
        )
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = self._rules_for(job)
        own, shared = known
        for rule in own:
            if words := rule(job, self._at):
                return words
        return shared

    def _rules_for(self, job: Job) -> tuple[list[Words], str]:
        own: list[Words] = []
        for rule in _RULES_OF[job.status]:
            if not rule.alike:
                if rule.possible(self._at):
                    own.append(rule.words)
            elif words := rule.words(job, self._at):
                return own, words
        return own, ""


# --- a cycle -----------------------------------------------------------------------------


def explain(
    plan: PlanBuilder,
    snapshot: Snapshot,
    clusters: Mapping[str, ClusterSpec],
    budgets: BudgetStatus,
    admissions: Mapping[str, Admission],
    answers: Answers | None = None,
) -> list[PendingReason]:
    """The pending reason of every waiting job whose words changed. The plan builder gets what is to
    be noted of their waits."""
    news: list[PendingReason] = []
    blocks = [t for t in snapshot.blocks if t.blocks(plan.now)]
    blocks.sort(key=attrgetter("region"))
    for name, jobs in plan.waiting_by_cluster().items():
        admission = admissions.get(name, _NOBODY)
        at = Situation(
            now=plan.now,
            spec=clusters.get(name),
            budgets=budgets,
            refused=_refused_by(admission),
            plan=plan,
            admission=admission,
            answers=answers,
            blocks=blocks,
        )
        reasons = _Reasons(at)
        for job in jobs:
            why, known = reasons.of(job), snapshot.reasons.get(job.uid, "")
            if known != why:
                news.append(PendingReason(job.uid, why))
                if len(news) <= NOTES_PER_CYCLE and fold_key(known) != fold_key(why):
                    plan.wait_notes += _noted(job.uid, known, why, plan.now)
    plan.wait_notes += _ended(plan, snapshot)
    return news


def _refused_by(admission: Admission) -> Callable[[Job], str | None]:
    return lambda job: admission.refused.get(job.uid)


def _noted(uid: str, known: str, why: str, now: datetime) -> Iterator[WaitNote]:
    """One reason has lasted until now, another one begins."""
    if known:
        yield WaitNote(uid, WaitKind.PENDING_REASON, "", known, now, 0)
    yield WaitNote(uid, WaitKind.PENDING_REASON, "", why, now)


def _ended(plan: PlanBuilder, snapshot: Snapshot) -> list[WaitNote]:
    """Of jobs that wait no more: their last reason has lasted until now."""
    return [
        WaitNote(after.uid, WaitKind.PENDING_REASON, "", known, plan.now, 0)
        for before, after in plan.moves
        if before.status in WAITING
        and after.status not in WAITING
        and (known := snapshot.reasons.get(after.uid, ""))
    ]


def behind_words(job: Job, rule: QueueRule, last: Job | None) -> str:
    """Whom it is behind, by the rule of its queue, and what would change that. `last`: the last
    one that got a place, if any did."""
    if rule is not QueueRule.FAIR or last is None:
        return ", and other jobs are ahead; it is next when they end, or sooner if vm_max is raised"
    mine, theirs = class_of(job.spec.priority), class_of(last.spec.priority)
    if theirs > mine:
        return (
            f", and jobs of class {theirs.name.lower()} are ahead of {mine.name.lower()}; it moves "
            "up as they end, or with a higher priority"
        )
    if last.spec.tenant_id != job.spec.tenant_id:
        return (
            f", and tenants that have used less of their share than {job.spec.tenant_id} are "
            "ahead; it moves up as they are served, or with a higher weight of its tenant"
        )
    return (
        f", and other jobs of tenant {job.spec.tenant_id} are due before it; it moves up as they "
        "end, or sooner if vm_max is raised"
    )


# --- words -------------------------------------------------------------------------------


def supply_words(
    request: JobSpec, spec: ClusterSpec, vms: Sequence[Vm], blocks: Sequence[RegionBlock]
) -> str:
    """What keeps VMs from jobs that allow the same regions."""
    in_flight = (vm for vm in vms if vm.state.in_flight)
    its = (vm for vm in in_flight if request.affords(vm.usd_per_hour))
    coming = sorted({vm.region for vm in its if request.allows_region(vm.region)})
    concern = [t for t in blocks if _concerns(t, spec) and request.allows_region(t.region)]
    asked = {r.region for r in within_cap(request, spec)}
    block = [t for t in concern if t.region in asked]
    words = [f"waits for a VM in {', '.join(coming)}" if coming else "waits for a VM"]
    words += [f"{t.region} {t.words}" for t in block]
    if block and asked <= {t.region for t in block}:
        words += _elsewhere(spec, request, asked, {t.region for t in concern})
    counted = sum(vm.counted for vm in vms)
    if not coming and counted >= spec.vm_max:
        words.append(f"cluster limit {spec.vm_max} reached")
    return "; ".join(words)


def _elsewhere(
    spec: ClusterSpec, request: JobSpec, asked: Collection[str], blocked: Collection[str]
) -> list[str]:
    """What there is to do if all regions that are `asked` for the job are blocked."""
    allowed = [r.region for r in spec.regions if request.allows_region(r.region)]
    other = len(allowed) < len(spec.regions)
    words = ["then it is tried again" + (", or it allows other regions" if other else "")]
    dear = sum(region not in asked and region not in blocked for region in allowed)
    if dear:
        which = "1 region" if dear == 1 else f"{dear} regions"
        verb = "is" if dear == 1 else "are"
        words.append(f"{which} above its cap of ${request.max_usd_per_hour:g} {verb} not asked")
    return words


def _concerns(block: RegionBlock, spec: ClusterSpec) -> bool:
    return block.concerns(spec) and any(r.region == block.region for r in spec.regions)
