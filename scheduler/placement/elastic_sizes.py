"""How large elastic jobs are, and who is told when that changes. Pure.

A member counts from the moment that it runs until it is preempted or its VM is lost. All of
it follows from the rows: the generation of a size is the sum of the members' versions, which grows
with whatever happens to any of them, so no message that comes late passes for news.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core.changes import JobNote
from core.job import Job, S, TimelineEntry
from core.messages import Peer, ResizeJob, Size
from core.vm import Vm
from scheduler.plan_builder import PlanBuilder, address_of

RESIZED = "resized"
"""The event on the timeline of the first member."""


def size_with(plan: PlanBuilder, leader: Job, seated: Sequence[tuple[Job, Vm]]) -> Size:
    """The size that members learn when they start, themselves among those who are there."""
    assert leader.gang is not None, "an elastic job has members"
    members = plan.gang(leader.gang.uid)
    there = [*_vms(plan, (m for m in members if _counts(m))), *seated]
    # Their own steps are not taken yet.
    return _size(members, there, len(seated))


def tell_sizes(plan: PlanBuilder) -> None:
    """Members that run on are told who is there now; the timeline says why."""
    before: dict[str, Job] = {}
    for old, _ in plan.moves:
        if old.gang is not None and old.spec.elastic:
            before.setdefault(old.uid, old)
    for uid in dict.fromkeys(job.gang.uid for job in before.values() if job.gang is not None):
        members = plan.gang(uid)
        _tell(plan, [before.get(m.uid, m) for m in members], members)


def _tell(plan: PlanBuilder, before: Sequence[Job], members: Sequence[Job]) -> None:
    leader = members[0]
    was = {m.uid for m in before if _counts(m)}
    now = [m for m in members if _counts(m)]
    if leader.status is not S.RUNNING or was == {m.uid for m in now}:
        return
    starting = any(m.status in (S.ASSIGNED, S.STARTING) for m in members)
    if len(now) < leader.spec.least and starting:
        return  # it forms for the first time: they know of each other already
    size = _size(members, _vms(plan, now), 0)
    for member, vm in _vms(plan, now):
        plan.tell(ResizeJob(**address_of(member, vm.boot_nonce), size=size))
    left = [m for m in members if m.uid in was and not _counts(m)]
    plan.add(JobNote(leader.uid, _entry(plan, leader, len(was), size, left)))


def _counts(member: Job) -> bool:
    return member.status is S.RUNNING


def _vms(plan: PlanBuilder, members: Iterable[Job]) -> list[tuple[Job, Vm]]:
    leased = [(m, plan.vms.get(m.lease.vm_uid)) for m in members if m.lease is not None]
    return [(m, vm) for m, vm in leased if vm is not None]


def _size(members: Sequence[Job], there: Sequence[tuple[Job, Vm]], to_come: int) -> Size:
    peers = [Peer(m.gang.rank, vm.address or vm.name) for m, vm in there if m.gang is not None]
    spec = members[0].spec
    generation = sum(m.version for m in members) + to_come
    by_rank = tuple(sorted(peers, key=lambda peer: peer.rank))
    return Size(generation, spec.least, spec.replicas, by_rank)


def _entry(
    plan: PlanBuilder, leader: Job, before: int, size: Size, left: Sequence[Job]
) -> TimelineEntry:
    count = len(size.members)
    forms = before < leader.spec.least and not leader.spec.replace_members
    if before == 0 or forms:
        words = f"begins with {count}"
    elif count == before:
        words = f"is still {count}"
    else:
        words = f"{'shrank' if count < before else 'grew'} to {count}"
    for reason, who in _by_reason(left).items():
        words += f": {', '.join(who)} {reason}"
    return TimelineEntry(
        at=plan.now,
        event=RESIZED,
        from_status=leader.status,
        to_status=leader.status,
        attempt=leader.attempt,
        reason=words,
        data={"size": count, "ranks": [peer.rank for peer in size.members]},
        dedup_key=f"size/{size.generation}",
    )


def _by_reason(left: Sequence[Job]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for member in left:
        found.setdefault(f"({member.reason})", []).append(member.spec.job_id)
    return found
