"""Which VM and which of its GPUs an admitted job gets. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from core.capacity import ClusterSpec, take_lease
from core.job import E, Job, Lease
from core.messages import StartJob
from core.ports import Ids
from scheduler.draft import Draft
from scheduler.queue.gang import Teams
from scheduler.queue.muster import Post, Seat, muster, post_of
from scheduler.queue.slots import Slots


def place(draft: Draft, spec: ClusterSpec, ids: Ids, admitted: Sequence[str]) -> None:
    """VMs with free GPUs serve the cluster's demand, the next job first."""
    if not admitted:
        return
    slots, teams = Slots(draft, spec), Teams(draft)
    seen: set[str] = set()
    for job in (draft.jobs[uid] for uid in admitted):
        if job.gang is not None:
            team = teams.of(job) or ()
            if job.uid not in seen:
                _place_team(draft, spec, slots, team, teams.leader_of(job), ids)
            seen.update(member.uid for member in team)
        elif (found := slots.best(job.spec)) is not None:
            assign(draft, job, Seat(found, slots.take(found, job.spec)), ids)


def _place_team(
    draft: Draft,
    spec: ClusterSpec,
    slots: Slots,
    team: Sequence[Job],
    leader: Job,
    ids: Ids,
) -> None:
    """All of a gang in one unit: the store takes all of their leases or none."""
    seats = muster(draft, slots, team, spec, leader)
    if not seats:
        return
    runs = leader.lease is not None
    leader_vm = draft.vms[leader.lease.vm_uid if leader.lease else seats[0].place.uid]
    attempt = leader.attempt if runs else leader.attempt + 1
    with draft.together():
        for job, seat in zip(team, seats, strict=True):
            assign(draft, job, seat, ids, post_of(job, leader, leader_vm, attempt))


def assign(draft: Draft, job: Job, seat: Seat, ids: Ids, post: Post | None = None) -> None:
    """The job goes there: its lease, the VM's, and the start message in one step."""
    place = seat.place
    vm = draft.vms[place.uid]
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
        spec=job.spec,
        cluster=job.cluster,
        region=vm.region,
        attempt=job.attempt + 1,
        lease_id=lease.lease_id,
        slots=lease.slots,
        resume=job.attempt > 0,
        rank=post.rank if post else 0,
        world_size=post.size if post else 1,
        leader_address=post.leader_address if post else "",
        barrier=post is not None,
    )
    held = take_lease(vm, lease.lease_id)
    where = f"placed on {vm.name} in {vm.region}"
    neighbours = f", beside {len(vm.leases)} other{'s' * (len(vm.leases) > 1)}" if vm.leases else ""
    reason = where + neighbours
    draft.step(job, E.PLACED, reason, lease=lease, vm=held, tell=[start], slots=list(lease.slots))
