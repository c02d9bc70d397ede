"""Why jobs wait and what would change it, in words. Pure: the same in events, API and CLI.

No durations and no counts of jobs in the text: a sentence that changes with each job that ends
would be written for the whole queue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter

from core.changes import JobWhy, View
from core.cluster import ClusterSpec
from core.job import WAITING, Job, JobSpec, JobStatus, S
from core.queueing import QueueRule, class_of
from core.region_blocks import Trouble
from core.vm import Vm, VmState
from core.waits import NOTES_PER_CYCLE, WaitKind, WaitNote, fold_key
from scheduler.admission.admit import Admission, has_a_region
from scheduler.placement.gang import why as gang_why
from scheduler.placement.simulation_results import Answers
from scheduler.plan_builder import Draft
from scheduler.queue.budgets import Standing
from scheduler.queue.price_caps import price_words, within_cap

V = VmState
_NOBODY = Admission()


def explain(
    draft: Draft,
    view: View,
    clusters: Mapping[str, ClusterSpec],
    budgets: Standing,
    admissions: Mapping[str, Admission],
    answers: Answers | None = None,
) -> list[JobWhy]:
    """The pending reason of every waiting job whose words changed. The draft gets what is to be
    noted of their waits."""
    news: list[JobWhy] = []
    blocks = [t for t in view.troubles if t.blocks(draft.now)]
    blocks.sort(key=attrgetter("region"))
    for name, jobs in draft.waiting_by_cluster().items():
        spec, admission = clusters.get(name), admissions.get(name, _NOBODY)
        last = draft.jobs[admission.admitted[-1]] if admission.admitted else None
        words: dict[tuple[object, ...], str] = {}
        dear: dict[tuple[object, ...], bool] = {}
        vms: list[Vm] | None = None
        together: dict[str, list[Vm]] | None = None
        for job in jobs:
            if job.blocked is not None:
                continue  # it waits for other jobs: whoever blocked it has said so
            # The same for all of its kind in this cluster.
            kind = (
                *(job.status, job.spec.regions, job.spec.regions_denied),
                *(job.spec.tenant_id, job.spec.priority, job.spec.least),
                *(job.spec.max_usd_per_hour, job.spec.gpu_count),
                *(job.spec.cpu_cores, job.spec.memory_mb),
            )
            if kind not in words:
                if vms is None and job.status is S.PROVISIONING:
                    vms = draft.vms_of(name)  # only what awaits one speaks of them
                words[kind] = _why(job, spec, last, blocks, vms or ())
                dear[kind] = spec is not None and words[kind] == price_words(job.spec, spec)
            why = words[kind]
            if job.status is S.PROVISIONING and job.gang is not None and spec is not None:
                together = _queued(vms or (), spec) if together is None else together
                why = _together_words(together.get(job.gang.uid, ())) or why
            if job.status is S.QUEUED:
                refusal = retry_words(job, draft) or admission.refused.get(job.uid)
                refusal = refusal or gang_why(job, draft)
                ahead = (answers.words(job) if answers else None) or promise_words(job, admission)
                if dear[kind]:
                    ahead = None  # whoever ends before it frees nothing that it may pay
                why = budgets.why(job) or refusal or ahead or why
            known = view.whys.get(job.uid, "")
            if known != why:
                news.append(JobWhy(job.uid, why))
                if len(news) <= NOTES_PER_CYCLE and fold_key(known) != fold_key(why):
                    draft.wait_notes += _noted(job.uid, known, why, draft.now)
    draft.wait_notes += _ended(draft, view)
    return news


def retry_words(job: Job, draft: Draft) -> str:
    """When the next attempt starts, of a job whose last one failed; of a gang, any member's."""
    team = (job,) if job.gang is None else draft.gang(job.gang.uid)
    waits = [m for m in team if m.status is S.QUEUED and m.is_backing_off(draft.now)]
    if not waits:
        return ""
    late = max(waits, key=lambda m: (m.retry_at or draft.now, m.uid))
    code = "a failure" if late.exit_code is None else f"exit code {late.exit_code}"
    number = f"attempt {late.failures + 1} of {late.spec.retries + 1} after {code}"
    return f"{number}: starts at {late.retry_at:%H:%M:%S} UTC"


def _noted(uid: str, known: str, why: str, now: datetime) -> Iterator[WaitNote]:
    """One reason has lasted until now, another one begins."""
    if known:
        yield WaitNote(uid, WaitKind.PENDING_REASON, "", known, now, 0)
    yield WaitNote(uid, WaitKind.PENDING_REASON, "", why, now)


def _ended(draft: Draft, view: View) -> list[WaitNote]:
    """Of jobs that wait no more: their last reason has lasted until now."""
    return [
        WaitNote(after.uid, WaitKind.PENDING_REASON, "", known, draft.now, 0)
        for before, after in draft.moves
        if before.status in WAITING
        and after.status not in WAITING
        and (known := view.whys.get(after.uid, ""))
    ]


def promise_words(job: Job, admission: Admission) -> str | None:
    """Of a job that finds no room beside what is promised to another one, and of that one."""
    promise, room = admission.promise, admission.room
    at = promise.at if promise is not None else None
    if promise is None or at is None or room is None or room.gpus < 1:
        return None
    if any(member.uid == job.uid for member in promise.team):
        return f"has a reservation: enough GPUs are expected to be free at about {at:%H:%M} UTC"
    return (
        f"waits behind the reservation of job {promise.team[0].spec.job_id} until about "
        f"{at:%H:%M} UTC; one that is predicted to end before passes it"
    )


def _why(
    job: Job,
    spec: ClusterSpec | None,
    last: Job | None,
    blocks: Sequence[Trouble],
    vms: Sequence[Vm],
) -> str:
    if spec is None:
        return f"cluster {job.cluster} is not in the configuration any more"
    if spec.drain:
        return f"cluster {spec.name} is being drained: it takes no more jobs"
    if not has_a_region(job, spec):
        names = ", ".join(job.spec.regions)
        return f"cluster {spec.name} has none of the job's regions any more ({names})"
    if dear := price_words(job.spec, spec):
        return dear
    if job.status is JobStatus.PROVISIONING:
        return _supply_words(vms, blocks, spec, job.spec)
    if job.spec.least > spec.vm_max:
        return (
            f"needs {job.spec.least} VMs at once, and cluster {spec.name} may have {spec.vm_max}; "
            "it starts when vm_max is raised"
        )
    together = f"needs {job.spec.least} VMs at once: " if job.spec.least > 1 else ""
    return together + limit_words(spec) + behind_words(job, spec.queue, last)


def limit_words(spec: ClusterSpec) -> str:
    """What every job of a full cluster waits for."""
    return f"cluster {spec.name} is at its limit of {spec.vm_max} VMs"


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


def _supply_words(
    vms: Sequence[Vm], blocks: Sequence[Trouble], spec: ClusterSpec, wish: JobSpec
) -> str:
    """What keeps VMs from jobs that allow the same regions."""
    in_flight = (vm for vm in vms if vm.state in (V.REQUESTED, V.BOOTING))
    its = (vm for vm in in_flight if wish.affords(vm.usd_per_hour))
    coming = sorted({vm.region for vm in its if wish.allows_region(vm.region)})
    concern = [t for t in blocks if _concerns(t, spec) and wish.allows_region(t.region)]
    asked = {r.region for r in within_cap(wish, spec)}
    block = [t for t in concern if t.region in asked]
    words = [f"waits for a VM in {', '.join(coming)}" if coming else "waits for a VM"]
    words += [f"{t.region} {t.words}" for t in block]
    if block and asked <= {t.region for t in block}:
        words += _elsewhere(spec, wish, asked, {t.region for t in concern})
    counted = sum(vm.counted for vm in vms)
    if not coming and counted >= spec.vm_max:
        words.append(f"cluster limit {spec.vm_max} reached")
    return "; ".join(words)


def _elsewhere(
    spec: ClusterSpec, wish: JobSpec, asked: Collection[str], blocked: Collection[str]
) -> list[str]:
    """What there is to do if all regions that are `asked` for the job are blocked."""
    allowed = [r.region for r in spec.regions if wish.allows_region(r.region)]
    other = len(allowed) < len(spec.regions)
    words = ["then it is tried again" + (", or it allows other regions" if other else "")]
    dear = sum(region not in asked and region not in blocked for region in allowed)
    if dear:
        which = "1 region" if dear == 1 else f"{dear} regions"
        verb = "is" if dear == 1 else "are"
        words.append(f"{which} above its cap of ${wish.max_usd_per_hour:g} {verb} not asked")
    return words


def _queued(vms: Sequence[Vm], spec: ClusterSpec) -> dict[str, list[Vm]]:
    """Gang → its VMs that wait in the cloud's own queue, all or none."""
    found: dict[str, list[Vm]] = {}
    for vm in vms if spec.flex_start_wait_s is not None else ():
        if vm.queued:
            found.setdefault(vm.gang, []).append(vm)
    return found


def _together_words(queued: Sequence[Vm]) -> str:
    if not queued:
        return ""
    first = min(queued, key=attrgetter("requested_at"))
    return (
        f"asked for {len(queued)} VMs together in {first.region}, queued there since "
        f"{first.requested_at:%H:%M} UTC; they come when the cloud has room for all of them"
    )


def _concerns(trouble: Trouble, spec: ClusterSpec) -> bool:
    return trouble.concerns(spec) and any(r.region == trouble.region for r in spec.regions)
