"""Act: what was planned is stored first, then the cloud is called, then its answer is stored."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import assert_never

import structlog

from core.actions import Action, CloudCall, Create, Delete, Drain, NoAction, Queue, Undrain, Unqueue
from core.changes import (
    AtomicBatch,
    Change,
    CloudRequest,
    NewRequest,
    NewVm,
    SettleRequest,
    Snapshot,
    VmMove,
)
from core.errors import MigMissing, ZenError
from core.mig import OperationFailed
from core.vm import Vm, VmEvent, advance_vm, new_vm
from core.waits import WaitKind, WaitNote
from orchestrator.planning.plan_input import PlanInput
from orchestrator.reconcile.calls import action_of, is_passing, kind_of, request_of
from orchestrator.reconcile.context import ClusterContext
from orchestrator.reconcile.observer import FailedCreate, Observer
from orchestrator.reconcile.recorder import Recorder

log = structlog.get_logger("orchestrator")
E = VmEvent


class Applier:
    """Carries out the plans of one cluster."""

    def __init__(self, context: ClusterContext, observer: Observer, recorder: Recorder) -> None:
        self._context = context
        self._observer = observer
        self._recorder = recorder

    async def apply(self, actions: Sequence[Action], inputs: PlanInput, now: datetime) -> None:
        """Everything is written down first; then the regions are called side by side, the calls
        of one region in order. What a busy region cannot be told now, a later reconcile repeats."""
        by_region: dict[str, list[Action]] = {}
        for action in actions:
            place = "" if isinstance(action, Drain | Undrain) else action.region
            by_region.setdefault(place, []).append(action)
        written = await asyncio.gather(
            *(self._write_down(group, inputs, now) for group in by_region.values())
        )
        lanes = self._context.lanes
        busy = lanes.busy()
        for region, calls in zip(by_region, written, strict=True):
            if calls and region not in busy:
                lanes.start(region, self._call_in_order(calls, now))
        await lanes.settle()

    async def repeat_unsettled(self, snapshot: Snapshot) -> None:
        """Calls whose answer we never saw, perhaps a former leader's: the same request id makes
        the repeat harmless. Regions that fail are left alone for a while."""
        lanes, spec = self._context.lanes, self._context.spec
        by_region: dict[str, list[CloudRequest]] = {}
        for request in snapshot.requests:
            if request.cluster == spec.name:
                by_region.setdefault(request.region, []).append(request)
        left_alone = self._context.calls.quiet(by_region) | lanes.busy()
        for region, group in by_region.items():
            if region not in left_alone:
                lanes.start(region, self._repeat(group, snapshot.now))
        await lanes.settle()

    # --- writing down --------------------------------------------------------------------

    async def _write_down(
        self, actions: Sequence[Action], inputs: PlanInput, now: datetime
    ) -> list[CloudCall]:
        """The calls that are to be made now."""
        calls: list[CloudCall] = []
        for action in actions:
            match action:
                case Create() | Queue():
                    if await self._create(action, now):
                        calls.append(action)
                case Delete() | Unqueue():
                    if await self._delete(action, inputs, now):
                        calls.append(action)
                case Drain():
                    await self._move(action, E.DRAIN_ASKED, inputs, now)
                case Undrain():
                    await self._move(action, E.DRAIN_WITHDRAWN, inputs, now)
                case NoAction():
                    pass  # its reason is in the region's status
                case _:
                    assert_never(action)
        return calls

    async def _create(self, action: Create | Queue, now: datetime) -> bool:
        """Names and request id are stored, and counted against the limit, before the call: all of
        them or none. The limit is the one of this moment: it may have been lowered since the plan
        was made."""
        spec = self._context.newest_spec
        if all(region.region != action.region for region in spec.regions):
            return False  # withdrawn in the meantime
        causes = dict(zip(action.names, action.causes, strict=False))
        vms = [self._new_vm(name, action, causes.get(name), now) for name in action.names]
        rows: list[Change] = [NewVm(vm, vm_max=spec.vm_max) for vm in vms]
        rows.append(NewRequest(request_of(action, spec.name, now)))
        asked = Counter(vm.caused_by for vm in vms if vm.caused_by)
        rows += [
            WaitNote(uid, WaitKind.VM_REQUEST, action.region, action.reason, now, count)
            for uid, count in asked.items()
        ]
        if not await self._context.write([tuple(rows)]):
            return False
        self._recorder.awaits(vm.uid for vm in vms)
        self._log(action)
        return True

    def _new_vm(self, name: str, action: Create | Queue, cause: str | None, now: datetime) -> Vm:
        spec, wiring = self._context.spec, self._context.wiring
        uid = wiring.ids.uid(now)
        vm = new_vm(spec, action.region, uid=uid, name=name, now=now, reason=action.reason)
        return replace(
            vm,
            request_id=action.request_id,
            together=action.name if isinstance(action, Queue) else "",
            caused_by=cause,
            idle_max_s=spec.idle_timeout_s or self._context.settings.timers.idle_timeout_s,
        )

    async def _delete(self, action: Delete | Unqueue, inputs: PlanInput, now: datetime) -> bool:
        """A VM that holds a lease is never deleted here unless it is already lost: the move to
        DELETING is compare-and-set, and every new lease grows the version."""
        changes: list[Change] = [
            VmMove(vm, advance_vm(vm, E.DELETE_ASKED, now, action.reason))
            for vm in inputs.vms
            if vm.name in action.names and not vm.state.deleting
        ]
        changes.append(NewRequest(request_of(action, self._context.spec.name, now)))
        waiting = {request.job for request in inputs.demand.requests}
        given_up = [vm for vm in inputs.vms if vm.name in action.names and vm.ready_at is None]
        causes = {vm.caused_by for vm in given_up if vm.caused_by and vm.caused_by in waiting}
        changes += [
            WaitNote(uid, WaitKind.REQUEST_CANCELLED, action.region, action.reason, now)
            for uid in sorted(causes)
        ]
        if not await self._context.write([tuple(changes)]):
            return False
        self._log(action)
        return True

    async def _move(
        self, action: Drain | Undrain, event: VmEvent, inputs: PlanInput, now: datetime
    ) -> None:
        vm = next(vm for vm in inputs.vms if vm.name == action.vm_name)
        await self._context.write([(VmMove(vm, advance_vm(vm, event, now, action.reason)),)])

    def _log(self, action: CloudCall) -> None:
        cluster, names = self._context.spec.name, list(action.names)
        log.info(
            kind_of(action), cluster=cluster, region=action.region, vms=names, why=action.reason
        )

    # --- calling -------------------------------------------------------------------------

    async def _call_in_order(self, actions: Sequence[CloudCall], now: datetime) -> None:
        for action in actions:
            await self._call(action, now, first=True)

    async def _repeat(self, requests: Iterable[CloudRequest], now: datetime) -> None:
        for request in requests:
            if not await self._call(action_of(request), now, first=False):
                return  # the region does not answer: the rest would not fare better

    async def _call(self, action: CloudCall, now: datetime, *, first: bool) -> bool:
        """Whether the call was answered, one way or the other."""
        self._context.wiring.term()  # not a leader any more: no call
        error = await self._context.calls.apply(action)
        self._observer.look_again([action.region])
        if error is None:
            if isinstance(action, Create | Queue):
                self._observer.accepted(action.names)
            await self._context.write([(SettleRequest(action.request_id, "accepted", now),)])
            return True
        if is_passing(error):
            return False  # not settled: a later reconcile repeats it with the same request id
        await self._refused(action, error, now, first=first)
        return True

    async def _refused(
        self, action: CloudCall, error: ZenError, now: datetime, *, first: bool
    ) -> None:
        """A first call that is refused had no effect. An older one may have had: what it made, if
        anything, is left to observation. One that was accepted and then failed is folded into the
        next look, as the errors of members are."""
        context, creates = self._context, isinstance(action, Create | Queue)
        batches: list[AtomicBatch] = [(SettleRequest(action.request_id, f"refused: {error}", now),)]
        if isinstance(error, OperationFailed) and creates:
            await context.write(batches)
            self._observer.failed(
                action.region, FailedCreate(action.names, error.refusals, str(error))
            )
            return
        if creates and (first or isinstance(error, MigMissing)):
            batches += await self._unmade(action, error, now)
        await context.write(batches)
        if isinstance(action, Queue) and not first and not isinstance(error, MigMissing):
            return  # its name is in use: by itself, if the first call came through after all
        await context.block_region(action.region, error, now)

    async def _unmade(self, action: CloudCall, error: ZenError, now: datetime) -> list[AtomicBatch]:
        """The VMs of a create call that had no effect are gone, and their jobs are told."""
        snapshot = await self._context.snapshot()
        made = [vm for vm in snapshot.vms if vm.name in action.names and vm.state.unseen]
        reason = f"create refused: {error}"
        moves: list[AtomicBatch] = [
            (VmMove(vm, advance_vm(vm, E.CREATE_FAILED, now, reason)),) for vm in made
        ]
        causes = sorted({vm.caused_by for vm in made if vm.caused_by})
        refusal = WaitKind.REFUSAL
        return [
            *moves,
            *((WaitNote(uid, refusal, action.region, str(error), now),) for uid in causes),
        ]
