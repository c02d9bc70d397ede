"""A turn's decisions as they are made: jobs and VMs after each step, and the units to write.

Later steps of the same turn see what earlier ones did; the store checks every step again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from core.capacity import VM_TRANSITIONS, Vm, VmState, drop_lease, move_vm
from core.changes import Change, JobMove, Send, Unit, View, VmMove
from core.job import Job, JobEvent, Lease, Rules, advance, entry_for
from core.messages import Control, OutMessage, StopJob

Encode = Callable[[Control], OutMessage]


class Draft:
    """Collects units. Nothing here waits or asks: it is a value under construction."""

    def __init__(self, view: View, rules: Rules, encode: Encode) -> None:
        self.now: datetime = view.now
        self.rules = rules
        self.jobs: dict[str, Job] = {job.uid: job for job in view.jobs}
        self.vms: dict[str, Vm] = {vm.uid: vm for vm in view.vms}
        self.units: list[Unit] = []
        self.moves: list[tuple[Job, Job]] = []
        self._encode = encode

    def step(
        self,
        job: Job,
        event: JobEvent,
        reason: str,
        *,
        lease: Lease | None = None,
        exit_code: int | None = None,
        vm: Vm | None = None,
        tell: Iterable[Control] = (),
        **data: object,
    ) -> Job:
        """Move a job, with the VM and the messages that belong to the same step. `vm` is the VM
        after the step; if the step ends a lease, the VM that held it lets go of it as well."""
        after = advance(
            job, event, self.now, self.rules, reason=reason, lease=lease, exit_code=exit_code
        )
        if after is job:
            return job
        changes: list[Change] = [JobMove(job, after, (entry_for(job, after, event, **data),))]
        if vm is not None:
            changes.append(VmMove(self.vms[vm.uid], vm))
            self.vms[vm.uid] = vm
        if job.lease is not None and after.lease is None:
            changes += self._let_go(job.lease)
        changes += [Send(self._encode(message)) for message in tell]
        self.jobs[job.uid] = after
        self.moves.append((job, after))
        self.units.append(tuple(changes))
        return after

    def move_vm(self, vm: Vm, state: VmState, reason: str, **facts: object) -> Vm:
        """Move a VM on its own."""
        after = move_vm(vm, state, self.now, reason, **facts)
        self.put_vm(vm, after)
        return after

    def put_vm(self, before: Vm, after: Vm) -> None:
        """Write a VM whose facts changed without a change of state."""
        self.vms[after.uid] = after
        self.units.append((VmMove(before, after),))

    def tell(self, message: Control) -> None:
        """A message that belongs to no change (an answer to a stray worker)."""
        self.units.append((Send(self._encode(message)),))

    def add(self, change: Change) -> None:
        """A change that stands alone."""
        self.units.append((change,))

    def doom(self, vm: Vm, reason: str) -> Vm:
        """The VM is beyond use: delete it, whatever it holds. Its jobs go back when no worker
        can be alive on it any more."""
        if VmState.DELETING in VM_TRANSITIONS[vm.state]:
            return self.move_vm(vm, VmState.DELETING, reason)
        return vm

    def _let_go(self, lease: Lease) -> list[Change]:
        vm = self.vms.get(lease.vm_uid)
        if vm is None or lease.lease_id not in vm.leases:
            return []
        after = drop_lease(vm, lease.lease_id, self.now)
        self.vms[vm.uid] = after
        return [VmMove(vm, after)]


def stop_message(job: Job, boot_nonce: str, reason: str) -> StopJob:
    """The stop that belongs to the job's live lease."""
    assert job.lease is not None
    return StopJob(
        vm_name=job.lease.vm_name,
        boot_nonce=boot_nonce,
        job_id=job.spec.job_id,
        user_id=job.spec.user_id,
        attempt=job.attempt,
        lease_id=job.lease.lease_id,
        grace_s=job.spec.stop_grace_s,
        reason=reason,
    )
