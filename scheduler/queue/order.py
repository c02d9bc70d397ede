"""The order in which waiting jobs are considered. Pure.

A fair queue is merged from the queues of its tenants: class by class, the tenant that has had
least goes next with the job that is due first, and is charged for it before the next pick. Those
of its jobs that are protected (scheduler/queue/guaranteed_start.py) come before, in the order of
arrival. In each class those go first for whom others have just made room: shares that are nearly
equal change while they do, and no job must be preempted for nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime

from core.job import Job, S
from core.queueing import PriorityClass, QueueRule, arrival_key, class_of, due_key, priority_key
from scheduler.queue.fair_share import Shares
from scheduler.queue.guaranteed_start import nobody

Protected = Callable[[Job], bool]


def ranked(
    jobs: Sequence[Job],
    rule: QueueRule,
    shares: Shares,
    protected: Protected = nobody,
    served: Collection[str] = (),
) -> Iterator[Job]:
    """Waiting jobs of one cluster, the next one first. Lazy: a caller that has filled its room
    stops. `served`: for which others were preempted."""
    match rule:
        case QueueRule.FIFO:
            return iter(sorted(jobs, key=arrival_key))
        case QueueRule.PRIORITY:
            return iter(sorted(jobs, key=lambda job: _among_numbers(job, served)))
        case QueueRule.FAIR:
            return _fair(jobs, shares, protected, served)


def _among_numbers(job: Job, served: Collection[str]) -> tuple[object, ...]:
    return (-class_of(job.spec.priority), job.uid not in served, *priority_key(job))


def _fair(
    jobs: Sequence[Job], shares: Shares, protected: Protected, served: Collection[str]
) -> Iterator[Job]:
    classes: dict[PriorityClass, dict[str, list[Job]]] = {}
    first: dict[PriorityClass, list[Job]] = {}
    for job in jobs:
        if job.uid in served:
            first.setdefault(class_of(job.spec.priority), []).append(job)
            continue
        tenants = classes.setdefault(class_of(job.spec.priority), {})
        tenants.setdefault(job.spec.tenant_id, []).append(job)
    charged: dict[str, float] = {}
    for kind in sorted({*classes, *first}, reverse=True):
        for job in first.get(kind, ()):
            yield job
            tenant = job.spec.tenant_id
            charged[tenant] = charged.get(tenant, 0.0) + shares.cost(job)
        yield from _merged(classes.get(kind, {}), shares, charged, protected)


def _merged(
    tenants: dict[str, list[Job]],
    shares: Shares,
    charged: dict[str, float],
    protected: Protected,
) -> Iterator[Job]:
    """`charged`: what was added to shares by picks of this ranking."""
    heap: list[tuple[float, datetime, str, int]] = []
    for tenant, jobs in tenants.items():
        jobs.sort(key=due_key)
        if any(map(protected, jobs)):
            first = sorted(filter(protected, jobs), key=lambda job: job.queued_since)
            jobs[:] = [*first, *(job for job in jobs if not protected(job))]
        heap.append((_weighed(jobs[0], shares, charged), jobs[0].due, tenant, 0))
    heapq.heapify(heap)
    while heap:
        _, _, tenant, place = heap[0]
        jobs = tenants[tenant]
        job = jobs[place]
        yield job
        charged[tenant] = charged.get(tenant, 0.0) + shares.cost(job)
        if place + 1 == len(jobs):
            heapq.heappop(heap)
            continue
        follower = jobs[place + 1]
        weighed = _weighed(follower, shares, charged)
        heapq.heapreplace(heap, (weighed, follower.due, tenant, place + 1))


def _weighed(job: Job, shares: Shares, charged: dict[str, float]) -> float:
    """The share of its tenant when the job is next. One that has its place already is only
    passed by a share that is clearly smaller."""
    tenant = job.spec.tenant_id
    used = shares.used_by(tenant) + charged.get(tenant, 0.0)
    return used * (1 - shares.hysteresis) if job.status is S.PROVISIONING else used
