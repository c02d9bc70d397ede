"""Start messages for v1 workers, which take them by themselves. Pure.

A v1 worker pulls one start message from its cluster's subscription, whichever comes first. So no
more of them are out than there are VMs to take them: each is sent for one VM that is about to look,
as late as that, and the next in the queue has it. Which VM really took it, its first word tells
(scheduler/v1/worker_messages.py). A message whose VM is no more is sent again for the next one, but
only when it is known not to be out any more, and not to be with a VM that has not spoken yet
(scheduler/v1/recall.py): else the job would run twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from core.cluster import ClusterSpec
from core.job import Job, Offer, S, TimelineEntry
from core.job_fields import worker_spec
from core.job_steps import offered
from core.messages import StartJob
from core.ports import Ids
from core.vm import Vm
from scheduler.plan_builder import PlanBuilder

OFFERED = "offered"
WITHDRAWN = "offer_withdrawn"


def offer(plan: PlanBuilder, spec: ClusterSpec, ids: Ids, admitted: Sequence[str]) -> None:
    """Every VM that will look for work finds a message, the next job's first."""
    takers = {vm.uid: vm for vm in _takers(plan, spec)}
    waiting: list[Job] = []
    for job in (plan.jobs[uid] for uid in admitted):
        if job.offer is None:
            waiting.append(job)
        elif takers.pop(job.offer.vm_uid, None) is None and _is_over(plan, job.offer):
            waiting.append(_withdraw(plan, job))
    for job, vm in zip(waiting, takers.values(), strict=False):
        _send(plan, job, vm, ids)


def held_ids(plan: PlanBuilder, clusters: Mapping[str, ClusterSpec]) -> dict[str, str] | None:
    """Job id → the job that has it to itself among all v1 clusters: a v1 stop names no user and no
    tenant, so the stop of one would be the stop of both. None: there are no v1 clusters."""
    v1 = {name for name, spec in clusters.items() if spec.worker == "v1"}
    if not v1:
        return None
    out = [job for job in plan.waiting() if job.offer is not None]
    leased = [job for name in sorted(v1) for job in plan.leased_in(name)]
    return {job.spec.job_id: job.uid for job in (*out, *leased)}


def twin_words(job: Job) -> str:
    return (
        f"another job {job.spec.job_id} is on a v1 cluster: v1 workers tell jobs by their "
        "id alone, so this one waits until that one has ended"
    )


def offered_first(order: Iterable[Job], jobs: Iterable[Job]) -> Iterator[Job]:
    """A message that is out cannot be relied on to come back: who has one keeps its place."""
    out = [job for job in jobs if job.offer is not None]
    yield from out
    kept = {job.uid for job in out}
    yield from (job for job in order if job.uid not in kept)


def is_lost(vms: Mapping[str, Vm], out: Offer) -> bool:
    """The VM that the message was sent for is no more, or never was up: it will not take it. One
    that is being deleted, was up and has not been seen off may be at work on it."""
    vm = vms.get(out.vm_uid)
    if vm is None or vm.state.gone or vm.leases or vm.kept_until is not None:
        return True
    return not vm.state.booting and (vm.running_since is None or vm.stopped_at is not None)


def may_have_taken(vm: Vm) -> bool:
    """It was up, has not spoken, and has not been seen off."""
    spoke = vm.leases or vm.kept_until is not None or vm.state.unseen or vm.state.gone
    return not spoke and vm.running_since is not None and vm.stopped_at is None


def _takers(plan: PlanBuilder, spec: ClusterSpec) -> Iterator[Vm]:
    """VMs that exist, so that no stockout is in the way any more, and have not spoken yet; those
    first that will look first."""
    ours = {region.region for region in spec.regions}
    vms = [
        vm
        for vm in plan.vms_of(spec.name)
        if vm.state.booting and vm.instance_id and not vm.taken and vm.region in ours
    ]
    known = (vm for vm in vms if vm.running_since is not None)
    yield from sorted(known, key=attrgetter("running_since", "name"))
    yield from sorted(
        (vm for vm in vms if vm.running_since is None), key=attrgetter("requested_at", "name")
    )


def _is_over(plan: PlanBuilder, out: Offer) -> bool:
    """The message is not out any more, and nobody can have it who has not said so."""
    suspects = plan.recalled.get(out.lease_id)
    if suspects is None or not is_lost(plan.vms, out):
        return False
    return not any(uid in plan.vms and may_have_taken(plan.vms[uid]) for uid in suspects)


def _withdraw(plan: PlanBuilder, job: Job) -> Job:
    assert job.offer is not None, "only a message that is out is taken back"
    words = "the VM that its start message was sent for is no more: it will be sent again"
    return plan.put_job(job, offered(job, None), _entry(plan, job, WITHDRAWN, words))


def _send(plan: PlanBuilder, job: Job, vm: Vm, ids: Ids) -> None:
    assert job.status is S.PROVISIONING, f"{job.spec.job_id} is {job.status}"
    out = Offer(ids.token(), vm.uid, plan.now)
    start = StartJob(
        vm_name=vm.name,
        boot_nonce="",
        spec=worker_spec(job.spec),
        cluster=job.cluster,
        region=vm.region,
        attempt=job.attempt + 1,
        lease_id=out.lease_id,
        slots=tuple(range(vm.slots)),
        resume=job.attempt > 0,
    )
    words = f"its start message is out for the v1 worker on {vm.name}, or whichever is sooner"
    plan.put_job(job, offered(job, out), _entry(plan, job, OFFERED, words), tell=[start])


def _entry(plan: PlanBuilder, job: Job, event: str, reason: str) -> TimelineEntry:
    return TimelineEntry(
        at=plan.now,
        event=event,
        from_status=job.status,
        to_status=job.status,
        attempt=job.attempt,
        reason=reason,
    )
