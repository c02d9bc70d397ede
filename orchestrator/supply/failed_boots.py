"""VMs that are paid for and never get to work: what is learned of them. Pure.

One is bad luck (hardware, a kernel that panics), and so may be two. More in a row, with none in
between that gets to work, are a fault of the place as it is set up: its image, its service
account, its subscriptions. Then nothing is bought there for a while, for longer each time, and
after that one VM is tried before all others (orchestrator/planning/vm_requests.py).

The row is ended by a VM that was asked for when the first of the lost ones was, or later, and has
done what they did not: said READY, or claimed a job. So the few that fail among many that work are
never a row, and what works since long proves nothing for what is bought today. What is known is of
(region, machine type, spot), as all that blocks is: a cluster's name says what its machines are, so
its group is hardly ever not alone with it (N1 machines, which take various GPUs, share it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from core.changes import Change, DropRegionBlock, PutRegionBlock
from core.cluster import ClusterSpec
from core.job import Job, S
from core.region_blocks import (
    BAD_LUCK_MAX,
    NEVER_WORKS,
    BlockKey,
    BlockKind,
    RegionBlock,
    block_key,
    first_seen,
    is_remembered,
)
from core.timers import Timers
from core.vm import GivenUp, Vm
from orchestrator.supply.blocks import block_s
from orchestrator.supply.observations import ClusterRules, ClusterState

K = BlockKind
_CLAIMED = frozenset({S.STARTING, S.RUNNING})


@dataclass(frozen=True, slots=True)
class Loss:
    """A VM that was deleted before it got to work."""

    kind: BlockKind
    vm: Vm
    asked_at: datetime
    """When the VM was asked for; of one that did not claim, when it was given the job."""
    at: datetime
    """The same whenever it is looked at: by it a loss is told from one that is counted already."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for or against a VM, beside its own row."""

    jobs: Sequence[Job]
    hears: bool
    """Workers can be heard. While they cannot, a VM that is not READY has done nothing wrong."""
    proofs: Mapping[str, datetime]
    """See proofs()."""


def heed(state: ClusterState, evidence: Evidence, rules: ClusterRules) -> ClusterState:
    """What is known after VMs that came up and never got to work."""
    spec = rules.spec
    before = {block.key: block for block in state.blocks}
    known = dict(before)
    if not spec.terms.owned:  # machines that are there anyway are not bought
        for loss in _losses(state.vms, evidence, rules):
            key = block_key(spec.supply_key(loss.vm.region), loss.kind)
            if key not in before or loss.at > before[key].last_seen:
                known[key] = _one_more(known.get(key), key, loss, rules)
    for key in [key for key, t in known.items() if _is_over(t, spec, state.vms, evidence)]:
        del known[key]
    changes: list[Change] = [DropRegionBlock(key) for key in before if key not in known]
    changes += [PutRegionBlock(t) for key, t in known.items() if before.get(key) is not t]
    return replace(state, blocks=tuple(known.values())).with_changes(changes)


# --- what went wrong ----------------------------------------------------------------------


def _losses(vms: Iterable[Vm], evidence: Evidence, rules: ClusterRules) -> list[Loss]:
    """In the order they were deleted. What did not claim was judged by the code that gave the
    job."""
    spec, timers = rules.spec, rules.timers
    found: list[Loss] = []
    regions = {region.region for region in spec.regions}
    for vm in (vm for vm in vms if vm.region in regions):  # elsewhere none is bought any more
        if vm.state.deleting and vm.given_up is GivenUp.UNCLAIMED:
            given_at = vm.state_since - timedelta(seconds=timers.claim_timeout_s)
            found.append(Loss(K.UNCLAIMED, vm, given_at, vm.state_since))
            continue
        if vm.state.deleting and vm.health.unready and vm.ready_at is None:
            found.append(Loss(K.UNREADY, vm, vm.requested_at, vm.state_since))
            continue
        at = _given_up_at(vm, timers, rules.now) if evidence.hears else None
        if at is not None and (spec.worker == "v2" or _had_work(vm, evidence.jobs)):
            found.append(Loss(K.UNREADY, vm, vm.requested_at, at))
    return sorted(found, key=lambda loss: (loss.at, loss.vm.name))


def _given_up_at(vm: Vm, timers: Timers, now: datetime) -> datetime | None:
    """When it was too late for it to be READY, or it was found off before it was. What was not
    delivered was not paid for, and what the cloud took is not at fault."""
    if vm.ready_at is not None or vm.running_since is None or vm.taken:
        return None
    if vm.has_boot_timed_out(timers.boot_timeout_s, now):
        return vm.boot_deadline(timers.boot_timeout_s)
    # Only in the round that finds it: what we delete is off a moment later as well.
    off = vm.state.deleting and vm.stopped_at == vm.state_since == now
    return now if off else None


def _had_work(vm: Vm, jobs: Iterable[Job]) -> bool:
    """A v1 worker is silent until it has found a job: without any it has done nothing wrong."""
    waiting = (job for job in jobs if job.status is S.PROVISIONING)
    return any(job.queued_since <= vm.requested_at for job in waiting)


def _one_more(
    before: RegionBlock | None, key: BlockKey, loss: Loss, rules: ClusterRules
) -> RegionBlock:
    """While the block lasts it is the same news: many that were lost at once double nothing."""
    timers, now = rules.timers, rules.now
    if before is not None and before.blocks(now):
        return replace(before, last_seen=loss.at)
    in_a_row = before is not None and is_remembered(before, timers, loss.at)
    count = before.count + 1 if before is not None and in_a_row else 1
    if loss.vm.health.unready:  # its worker has said what is wrong: the next VM would be no better
        count = max(count, BAD_LUCK_MAX + 1)
    held_s = block_s(loss.kind, count, timers)
    return replace(
        first_seen(key, loss.at),
        since=before.since if before is not None and in_a_row else loss.asked_at,
        until=now + timedelta(seconds=held_s) if held_s else loss.at,
        count=count,
        message=_words(loss, count, timers),
    )


def _words(loss: Loss, count: int, timers: Timers) -> str:
    if loss.vm.health.unready:
        return (
            f"{loss.vm.name} in {loss.vm.region} came up and cannot work: {loss.vm.health.unready}"
        )
    if loss.kind is K.UNREADY:
        return (
            f"{count} VMs in a row came up and never were READY (within {timers.boot_timeout_s:g} "
            f"s), the last was {loss.vm.name}: its serial log says why (image, startup script, "
            "service account, network)"
        )
    return (
        f"{count} VMs in a row were READY and did not claim the job they were given, the last was "
        f"{loss.vm.name}: its serial log says why (its control subscription, or its service "
        "account's role on it)"
    )


# --- what ends it -------------------------------------------------------------------------


def proofs(before: Mapping[str, datetime], vms: Iterable[Vm]) -> Mapping[str, datetime]:
    """Region → when the newest VM that has been READY there was asked for. Kept, since VMs that
    worked may be gone when the late ones of the same lot are deleted; not stored: after a change
    of leaders such a lot may block its place, once."""
    after = dict(before)
    for vm in vms:
        if vm.ready_at is not None:
            after[vm.region] = max(vm.requested_at, after.get(vm.region, vm.requested_at))
    return after


def _is_over(block: RegionBlock, spec: ClusterSpec, vms: Iterable[Vm], evidence: Evidence) -> bool:
    """READY does not end what was not claimed: the next VM would end its own block."""
    if not block.concerns(spec) or block.kind not in NEVER_WORKS:
        return False
    if block.kind is K.UNREADY:
        proof = evidence.proofs.get(block.region)
        return proof is not None and proof >= block.since
    newer = [vm for vm in vms if vm.region == block.region and vm.requested_at >= block.since]
    # A short job may have come and gone since we looked: its VM has been idle twice.
    return any(map(_has_worked, newer)) or any(
        job.status in _CLAIMED
        and job.lease is not None
        and job.lease.region == block.region
        and job.status_since >= block.since
        for job in evidence.jobs
    )


def _has_worked(vm: Vm) -> bool:
    if not vm.state.ready or vm.idle_since is None or vm.ready_at is None:
        return False
    return vm.idle_since > vm.ready_at
