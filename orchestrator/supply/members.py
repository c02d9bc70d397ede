"""What a group's list of members says of one VM. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from core.mig import MachineState, ManagedInstance, MigSnapshot, Queued, QueueState, Refusal
from core.region_blocks import BlockKind
from core.vm import Vm, VmEvent, VmFacts, advance_vm, with_facts

E = VmEvent
# Names of an accepted create call are listed at once; this much later their absence is real.
UNLISTED_AFTER_S = 30.0


@dataclass(frozen=True, slots=True)
class GroupObservation:
    """What a group showed, and what is known of the calls that were made before."""

    observed: MigSnapshot
    unsettled: frozenset[str] = frozenset()
    """VMs whose create call was not answered yet, or only just now: their absence means nothing."""
    failed_creates: Mapping[str, str] = field(default_factory=dict)
    """VMs whose create call was accepted and then failed, and why: their absence is final."""


def failed_requests(observed: MigSnapshot, vms: Iterable[Vm]) -> dict[str, Queued]:
    """Requests for several VMs at once that ended without any, as far as that is news: their VMs
    are still written down as waiting."""
    if not observed.requests:
        return {}
    open_ = {vm.together for vm in vms if vm.queued}
    over = (QueueState.FAILED, QueueState.CANCELLED)
    return {r.name: r for r in observed.requests if r.name in open_ and r.state in over}


def still_waits(vm: Vm, member: ManagedInstance | None, observed: MigSnapshot) -> bool:
    """Whether it has not been given yet. As long as the cloud keeps the request, what is not listed
    may still come."""
    request = next((r for r in observed.requests if r.name == vm.together), None)
    if member is None:
        return request is not None and not request.state.final
    ungiven = not member.machine.given and member.leaving is None
    return ungiven and (request is None or not request.state.final)


def after_failed_request(
    vm: Vm, request: Queued, member: ManagedInstance | None, now: datetime
) -> Vm:
    """Its members leave the group by themselves, all of them."""
    words = "; ".join(refusal.message for refusal in request.refusals)
    reason = f"the request for {request.vms} VMs at once is {request.state.lower()}"
    if words:
        reason = f"{reason}: {words}"[:500]
    return advance_vm(vm, E.CREATE_FAILED if member is None else E.CLOUD_ENDED, now, reason)


def missing(vm: Vm, seen: GroupObservation, now: datetime) -> Vm:
    """The group does not list it."""
    never_seen = vm.never_seen
    if never_seen and vm.name in seen.failed_creates:
        words = f"create failed: {seen.failed_creates[vm.name]}"[:500]
        return advance_vm(vm, E.CREATE_FAILED, now, words)
    young = (now - vm.requested_at).total_seconds() < UNLISTED_AFTER_S
    if vm.name in seen.unsettled or (never_seen and young):
        return vm  # its create call may still take effect
    if vm.queued:
        return advance_vm(vm, E.NOT_LISTED, now, "the group does not list it: its request is over")
    if vm.state.unseen:
        return advance_vm(vm, E.NOT_LISTED, now, "the group never listed it")
    if vm.state.deleting:
        return advance_vm(vm, E.NOT_LISTED, now, vm.reason or "deleted")
    taken = vm.taken or _may_be_reclaimed(vm)
    return advance_vm(vm, E.NOT_LISTED, now, "the group does not list it any more", taken=taken)


def _may_be_reclaimed(vm: Vm) -> bool:
    """Spot, or the end of the time that was asked for: the cloud's doing, not a loss. A v1 worker
    that has done its one job deletes its VM itself."""
    return (vm.spot and vm.kept_until is None) or bool(vm.together)


def present(vm: Vm, member: ManagedInstance, refused: Sequence[Refusal], now: datetime) -> Vm:
    """The group lists it. `refused`: why it could not be made so far."""
    replaced = bool(vm.instance_id and member.instance_id) and vm.instance_id != member.instance_id
    facts: VmFacts = {}
    # A worker that deletes its VM without telling the group leaves a member with no machine.
    unmade = member.machine is MachineState.NONE and not member.instance_id
    vanished = vm.running_since is not None and unmade
    if replaced or vanished or member.machine is MachineState.OFF:
        # No worker lives on a machine that is off, or on one that is another by now; nor is it
        # billed any further.
        facts = {"boot_nonce": "", "stopped_at": vm.stopped_at or now}
    if vm.state.deleting:
        if member.machine is MachineState.RUNNING and not replaced:
            facts["running_since"] = vm.running_since or now  # too late to be used, not to be paid
        return with_facts(vm, **facts)
    if replaced:
        return advance_vm(vm, E.CLOUD_ENDED, now, "another machine took its name", **facts)
    if vanished:
        reason = "its machine was deleted, its group lists it"
        return advance_vm(vm, E.CLOUD_ENDED, now, reason, **facts)
    if member.machine.ending:
        facts["taken"] = vm.taken or _may_be_reclaimed(vm)
        return advance_vm(vm, E.CLOUD_ENDED, now, _end_words(vm, member), **facts)
    return _alive(vm, member, refused, now)


def _end_words(vm: Vm, member: ManagedInstance) -> str:
    if not _may_be_reclaimed(vm):
        return f"found {member.machine}"
    return f"taken by the cloud ({'spot' if vm.spot else 'the end of its run'})"


def _alive(vm: Vm, member: ManagedInstance, refused: Sequence[Refusal], now: datetime) -> Vm:
    facts = _facts(vm, member, now)
    facts["refused"] = bool(refused)
    # The group tries again for ever. For a stockout that is of use (the plan keeps one); the other
    # kinds do not heal by trying.
    hopeless = next((r.kind for r in refused if r.kind is not BlockKind.STOCKOUT), None)
    if hopeless is not None:
        reason = f"taken back: {hopeless} in {vm.region}"
        return advance_vm(vm, E.DELETE_ASKED, now, reason, **facts)
    if member.leaving is not None:
        reason = f"the group is {member.leaving} it"
        facts["taken"] = vm.taken or bool(vm.together)
        return advance_vm(vm, E.CLOUD_ENDED, now, reason, **facts)
    return advance_vm(vm, E.LISTED, now, "seen in its group", **facts)


def _facts(vm: Vm, member: ManagedInstance, now: datetime) -> VmFacts:
    running = member.machine is MachineState.RUNNING
    return {
        "zone": member.zone or vm.zone,
        "instance_id": member.instance_id or vm.instance_id,
        "running_since": vm.running_since or (now if running else None),
        "ends_at": member.terminates_at or vm.ends_at if vm.together else None,
    }
