"""Which VM and which of its GPUs an admitted job gets. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from core.cluster import ClusterSpec
from core.job import E, Job, Lease
from core.job_fields import worker_spec
from core.job_steps import EventFacts
from core.messages import StartJob
from core.ports import Ids
from core.vm import take_lease
from scheduler.placement.elastic_sizes import size_with
from scheduler.placement.gang import Gangs
from scheduler.placement.gang_placement import Post, Seat, gather_gang, post_of
from scheduler.placement.reservation import ReservedRoom
from scheduler.placement.simulation_results import NOTHING_KEPT, Kept
from scheduler.placement.slots import Slots, VmWithRoom
from scheduler.plan_builder import PlanBuilder
from scheduler.v1.offers import offer


def place(
    plan: PlanBuilder,
    spec: ClusterSpec,
    ids: Ids,
    admitted: Sequence[str],
    held_room: ReservedRoom | None = None,
    kept: Kept = NOTHING_KEPT,
) -> Slots | None:
    """VMs with free GPUs serve the cluster's demand, the next job first; one that is reserved for a
    job that waits for all of its GPUs is left alone. Returns what is left, if that was looked at;
    what is kept for a gang is not in it."""
    if not admitted:
        return None
    if spec.worker == "v1":
        offer(plan, spec, ids, admitted)
        return None
    slots, gangs = Slots(plan, spec), Gangs(plan)
    seen: set[str] = set()
    for job in (plan.jobs[uid] for uid in admitted):
        if job.gang is not None:
            gang = gangs.of(job) or ()
            # None: a member has moved since they were admitted, in this very cycle. Not now.
            if gang and job.uid not in seen:
                place_gang(plan, spec, slots, gang, gangs.leader_of(job), ids, kept)
            seen.update(member.uid for member in gang)
        elif (found := _best(slots, job, held_room, kept)) is not None:
            assign(plan, job, Seat(found, slots.take(found, job.spec)), ids)
    return slots


def _best(slots: Slots, job: Job, held_room: ReservedRoom | None, kept: Kept) -> VmWithRoom | None:
    if not kept.vms and (held_room is None or not held_room.vm):
        return slots.best(job.spec)

    def may(place: VmWithRoom) -> bool:
        reserved = held_room is not None and held_room.keeps(place.uid, job)
        return not reserved and not kept.keeps(place.uid, job)

    return slots.best(job.spec, may)


def place_gang(
    plan: PlanBuilder,
    spec: ClusterSpec,
    slots: Slots,
    gang: Sequence[Job],
    leader: Job,
    ids: Ids,
    kept: Kept = NOTHING_KEPT,
) -> None:
    """All of a gang in one atomic batch: the store takes all of their leases or none."""
    seats = gather_gang(plan, slots, gang, spec, leader, kept)
    if not seats:
        return
    runs = leader.lease is not None
    leader_vm = plan.vms[leader.lease.vm_uid if leader.lease else seats[0].place.uid]
    attempt = leader.attempt if runs else leader.attempt + 1
    size = None
    if leader.spec.elastic:
        seated = [(job, plan.vms[seat.place.uid]) for job, seat in zip(gang, seats, strict=True)]
        size = size_with(plan, leader, seated)
    with plan.together():
        for job, seat in zip(gang, seats, strict=True):
            assign(plan, job, seat, ids, post_of(job, leader, leader_vm, attempt, size))


def assign(plan: PlanBuilder, job: Job, seat: Seat, ids: Ids, post: Post | None = None) -> None:
    """The job goes there: its lease, the VM's, and the start message in one step."""
    place = seat.place
    vm = plan.vms[place.uid]
    lease = Lease(
        lease_id=ids.token(),
        vm_name=vm.name,
        vm_uid=vm.uid,
        region=vm.region,
        zone=vm.zone,
        slots=seat.gpus,
    )
    start = StartJob(
        vm_name=vm.name,
        boot_nonce=vm.boot_nonce,
        spec=worker_spec(job.spec),
        cluster=job.cluster,
        region=vm.region,
        attempt=job.attempt + 1,
        lease_id=lease.lease_id,
        slots=lease.slots,
        resume=job.attempt > 0,
        rank=post.rank if post else 0,
        world_size=post.world if post else 1,
        leader_address=post.leader_address if post else "",
        barrier=post is not None and post.barrier,
        size=post.size if post else None,
    )
    held = take_lease(vm, lease.lease_id)
    where = f"placed on {vm.name} in {vm.region}"
    neighbours = f", beside {len(vm.leases)} other{'s' * (len(vm.leases) > 1)}" if vm.leases else ""
    reason = where + neighbours
    plan.step(
        job,
        E.PLACED,
        reason,
        facts=EventFacts(lease=lease),
        vm=held,
        tell=[start],
        slots=list(lease.slots),
    )
