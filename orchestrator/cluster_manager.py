"""ClusterManager: one cluster over all its regions. Observe, fold, plan, write down, act."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import assert_never

import structlog

from core.actions import Action, CloudCall, Create, Delete, Drain, Hold, Queue, Undrain, Unqueue
from core.changes import (
    Change,
    CloudRequest,
    ForgetRegion,
    NewRequest,
    NewVm,
    PutRegionStatus,
    PutTrouble,
    RaiseAlert,
    RegionStatus,
    SettleRequest,
    Unit,
    View,
    VmMove,
)
from core.cluster import ClusterSpec
from core.demand import Demand
from core.errors import Forbidden, MigMissing, ZenError
from core.mig import AttemptError, GroupError, MigSnapshot, OperationFailed
from core.names import Names
from core.ports import CapacityAdvice, Clock, Ids, Store
from core.region_blocks import Trouble, TroubleKind, block_on
from core.remaining import RunTimes
from core.supply import CapacityPolicy
from core.timers import Timers
from core.vm import Vm, VmState, move_vm
from core.waits import WaitKind, WaitNote, WaitNotes
from migs.manager import MigManager
from orchestrator.planning.packing import packed
from orchestrator.planning.plan import plan_cluster
from orchestrator.planning.plan_input import Picture, at_work, demand_by_cluster
from orchestrator.reconcile.calls import CloudCalls, action_of, is_passing, kind_of, request_of
from orchestrator.reconcile.group_alerts import Complaints, Told, complaints, for_humans
from orchestrator.reconcile.orphans import Orphans
from orchestrator.reconcile.region_tasks import Lanes
from orchestrator.reconcile.regions import WATCHED, Places
from orchestrator.supply.advice import Hints
from orchestrator.supply.failed_boots import heed, proofs
from orchestrator.supply.observations import (
    UNLISTED_AFTER_S,
    Folded,
    delivered,
    failed_requests,
    fold,
    learn,
)
from orchestrator.supply.refusals import refusals_met

log = structlog.get_logger("orchestrator")
V = VmState


@dataclass(frozen=True, slots=True)
class Wiring:
    """What every manager shares."""

    store: Store
    names: Names
    timers: Timers
    ids: Ids
    clock: Clock
    term: Callable[[], int]
    """The term we lead under; raises TermPassed when we do not lead."""
    mig_of: Callable[[str, str], MigManager]
    """The group of (cluster, region)."""
    on_cloud_call: Callable[[str, str], None]
    policy: CapacityPolicy = field(default_factory=CapacityPolicy)
    runs: Callable[[], RunTimes] = RunTimes
    """How much of each job is left to run."""
    advice: CapacityAdvice | None = None
    """None: the cloud has no opinion of its own."""
    hears: Callable[[], bool] = lambda: True
    """Whether workers can be heard: a VM that is silent while they cannot is not at fault."""


@dataclass(frozen=True, slots=True)
class FailedCreate:
    """A create call that the cloud accepted and then failed."""

    names: tuple[str, ...]
    errors: tuple[AttemptError, ...]
    reason: str

    def lines(self, now: datetime) -> Iterator[GroupError]:
        """As the group itself would tell of its members."""
        return (GroupError(now, self.names[0], "CREATING", error) for error in self.errors)


@dataclass(frozen=True, slots=True)
class Look:
    """An observation, with what we knew when it was asked for: it may be answered much later."""

    snapshot: MigSnapshot
    known: frozenset[str]
    """VMs that were written down by then; the absence of any other means nothing."""
    ran: frozenset[str]
    """VMs that were known to run by then. Of one that has begun to since, it is the older news."""
    unsure: frozenset[str]
    """VMs whose create call had no answer by then, or only just: their absence neither."""
    abandoned: bool = False
    """The region was withdrawn by then, with nothing of ours known there."""
    failed: tuple[FailedCreate, ...] = ()
    """Create calls that had failed by then after they were accepted."""

    def is_outdated(self, vm: Vm) -> bool:
        return vm.running_since is not None and vm.name not in self.ran


class ClusterManager:
    """Owns one cluster. `reconcile()` is never run twice at once (the orchestrator sees to it)."""

    def __init__(self, spec: ClusterSpec, wiring: Wiring, driven: Iterable[str] = ()) -> None:
        """`driven`: regions that a former leader may have left something in."""
        self.spec = spec
        self._wiring = wiring
        self._configured = (spec, wiring)
        self._calls = CloudCalls(
            lambda region: wiring.mig_of(spec.name, region), wiring.clock, wiring.on_cloud_call
        )
        self._orphans = Orphans(spec, wiring.names, self._timers)
        self._places = Places(wiring.names, driven)
        self._lanes = Lanes(spec.name)
        self._looks: list[Look] = []
        self._failed_creates: dict[str, tuple[FailedCreate, ...]] = {}
        """By region: those that the next look there makes final."""
        self._hints = Hints(wiring.advice)
        self._snapshots: dict[str, MigSnapshot] = {}
        self._observed_at: dict[str, float] = {}
        self._accepted_at: dict[str, float] = {}
        self._awaited: frozenset[str] = frozenset()
        """VMs that did not run yet when we looked last."""
        self._said: dict[str, RegionStatus] = {}
        self._complaints = Complaints()
        self._waits = WaitNotes()
        """What the jobs that wait for this cluster meet."""
        self._proofs: Mapping[str, datetime] = {}
        """Region → when the newest VM that has been READY there was asked for."""

    @property
    def _timers(self) -> Timers:
        """The spans of time that fit the workers of this cluster."""
        return self._wiring.timers.of_worker(self.spec.worker)

    def update(self, spec: ClusterSpec, wiring: Wiring) -> None:
        """As configured from now on. A round under way takes it over before it plans; one that has
        planned already ends its actions, but grows no further than the new limit."""
        self._configured = (spec, wiring)

    def _as_configured(self) -> None:
        before = self._places.withdrawn(self.spec)
        self.spec, self._wiring = self._configured
        self._orphans.update(self.spec, self._timers)
        for region in self._places.withdrawn(self.spec):
            if region not in before:
                self._observed_at.pop(region, None)  # what it holds waits for nobody

    async def reconcile(self) -> None:
        """One round: the next one repeats whatever did not come through."""
        self._as_configured()
        view = await self._view()
        await self._repeat_unsettled(view)
        fresh = await self._observe_due(view)
        self._as_configured()
        view = await self._view()
        picture = await self._fold_in(view, fresh)
        actions = plan_cluster(
            picture, self._wiring.names, self._timers, self._wiring.ids, view.now
        )
        await self._report(picture, actions, view.now)
        await self._act(actions, picture, view.now)

    @property
    def awaits_answers(self) -> bool:
        """A region has not answered within the round, or has since: the next round hears it."""
        return bool(self._looks) or bool(self._lanes.busy())

    async def _view(self) -> View:
        """What lives of this cluster."""
        return (await self._wiring.store.view(queue_limit=0)).only(self.spec.name)

    async def close(self) -> None:
        """End what is still under way in slow regions."""
        await self._lanes.close()

    # --- observing -----------------------------------------------------------------------

    async def _observe_due(self, view: View) -> list[Look]:
        """All regions at once; a slow one holds only itself, and is heard when it has answered."""
        self._complaints.remember(view.open_alerts)
        busy = self._lanes.busy()
        abandoned = self._places.abandoned(self.spec, view)
        for region in self._places.watched(self.spec, view):
            if region not in busy and self._is_due(region, view):
                look = self._look(region, view, abandoned=region in abandoned)
                self._lanes.start(region, look)
                self._ask_advice(region, busy)
        await self._lanes.settle()
        fresh, self._looks = self._looks, []
        self._snapshots.update({look.snapshot.region: look.snapshot for look in fresh})
        return fresh

    def _ask_advice(self, region: str, busy: frozenset[str]) -> None:
        """In a lane of its own: a cloud that is slow to advise can still be asked for VMs."""
        lane = f"advice on {region}"
        if lane not in busy and self._hints.wanted(self.spec, region):
            self._lanes.start(lane, self._hints.ask(self.spec, region))

    async def _look(self, region: str, view: View, *, abandoned: bool) -> None:
        known = frozenset(vm.name for vm in view.vms)
        ran = frozenset(vm.name for vm in view.vms if vm.running_since is not None)
        unsure = self._names_in(view, "create", "queue") | self._accepted_lately(view)
        failed = self._failed_creates.get(region, ())
        snapshot = await self._observe(region, view, abandoned=abandoned)
        if snapshot is not None:
            self._looks.append(Look(snapshot, known, ran, unsure, abandoned, failed))

    def _is_due(self, region: str, view: View) -> bool:
        last = self._observed_at.get(region)
        if last is None:
            return True
        timers = self._timers
        in_motion = any(vm.region == region for vm in view.vms)
        pace = timers.observe_s if in_motion else timers.observe_idle_s
        return self._wiring.clock.monotonic() - last >= pace

    async def _observe(self, region: str, view: View, *, abandoned: bool) -> MigSnapshot | None:
        # Requests for several VMs at once are asked after only while one is open.
        requests = any(vm.queued and vm.region == region for vm in view.vms)
        seen, now = await self._calls.observe(region, requests=requests), view.now
        if abandoned and isinstance(seen, MigMissing):
            mig = self._calls.mig(region).mig  # deleted once nobody needed it: nothing is in it
            return MigSnapshot(mig, self.spec.name, region, 0, True, (), now)
        if isinstance(seen, ZenError):
            self._observed_at[region] = self._wiring.clock.monotonic()
            await self._hold_region(region, seen, now)
            return None
        if seen is not None:
            self._observed_at[region] = self._wiring.clock.monotonic()
        return seen

    async def _fold_in(self, view: View, fresh: Sequence[Look]) -> Picture:
        """What was seen and heard, written down; then what to plan on."""
        found = self._news(view, fresh)
        told, alerts = self._alerts(fresh, found.troubles, view.now)
        changes = [*found.changes, *alerts, *self._forgotten(fresh, view)]
        self._awaited = frozenset(vm.uid for vm in found.vms if vm.running_since is None)
        if not changes or await self._write([(change,) for change in changes]):
            self._complaints.told(told)
            self._forget_failed(fresh)
        else:
            # Somebody was faster. What we folded is not what is stored, though its version may be
            # the same number: plan on the rows as they are, the next observation folds again.
            view = await self._view()
            found = Folded((), tuple(view.vms), tuple(view.troubles), tuple(view.experience))
        return self._picture(view, found)

    def _forget_failed(self, fresh: Sequence[Look]) -> None:
        """What these looks made final is stored."""
        for look in fresh:
            region = look.snapshot.region
            left = [f for f in self._failed_creates.get(region, ()) if f not in look.failed]
            self._failed_creates[region] = tuple(left)

    def _news(self, view: View, fresh: Sequence[Look]) -> Folded:
        """Each look is folded once, over what the one before it left."""
        vms = tuple(vm for vm in view.vms if vm.counted)
        self._proofs = proofs(self._proofs, vms)
        unsure = self._names_in(view, "create", "queue") | self._accepted_lately(view)
        policy = self._wiring.policy
        changes, experience = self._hints.heed(self.spec, view.experience, policy, view.now)
        came = [vm for vm in vms if vm.uid in self._awaited]
        spoke = delivered(came, self.spec, view.troubles, experience, policy, view.now)
        found = Folded((*changes, *spoke.changes), vms, spoke.troubles, spoke.experience)
        for look in fresh:
            found = self._folded(look, found, unsure, view)
        lost, troubles = heed(
            found.vms,
            view.jobs,
            self.spec,
            found.troubles,
            self._timers,
            view.now,
            hears=self._wiring.hears(),
            proofs=self._proofs,
        )
        return replace(found, changes=(*found.changes, *lost), troubles=tuple(troubles))

    def _folded(self, look: Look, before: Folded, unsure: frozenset[str], view: View) -> Folded:
        """Only over what was written down before the look was taken: no clocks are compared. So
        the absence of a newer VM means nothing, nor that of the machine of one whose worker has
        spoken since."""
        known = look.known
        lines = [line for failed in look.failed for line in failed.lines(view.now)]
        snapshot = replace(look.snapshot, errors=(*look.snapshot.errors, *lines))
        older = tuple(vm for vm in before.vms if vm.name in known and not look.is_outdated(vm))
        newer = tuple(vm for vm in before.vms if vm.name not in known or look.is_outdated(vm))
        folded = fold(
            snapshot,
            self.spec,
            older,
            before.troubles,
            unsure | look.unsure,
            self._timers,
            view.now,
            experience=before.experience,
            policy=self._wiring.policy,
            failed_creates={name: f.reason for f in look.failed for name in f.names},
        )
        self._note_requests(snapshot, older, folded.vms)
        orphans = self._orphans.adopt(snapshot, known, view, self._wiring.ids)
        refusals = refusals_met(older, folded.vms, self.spec, folded.troubles, view.now)
        changes = (*before.changes, *folded.changes, *orphans, *refusals)
        return replace(folded, changes=changes, vms=(*folded.vms, *newer))

    def _alerts(
        self, fresh: Sequence[Look], troubles: Sequence[Trouble], now: datetime
    ) -> tuple[dict[str, Told], list[Change]]:
        """By region what people are to know of it, and what of that is news."""
        told: dict[str, Told] = {}
        news: list[Change] = []
        for look in {look.snapshot.region: look for look in fresh}.values():  # the newest of each
            snapshot = look.snapshot
            here = [t for t in troubles if t.region == snapshot.region and t.concerns(self.spec)]
            open_ = for_humans(here, self._timers, now)
            told[snapshot.region] = complaints(snapshot, look.known, open_)
            news += self._complaints.news(snapshot, told[snapshot.region], now)
        return told, news

    def _picture(self, view: View, found: Folded) -> Picture:
        snapshots = self._snapshots.values()
        leaving = frozenset(
            member.name
            for snapshot in snapshots
            for member in snapshot.members
            if member.action == "DELETING"
        )
        return Picture(
            spec=self.spec,
            demand=self._demand(view),
            vms=tuple(vm for vm in found.vms if vm.counted),
            troubles=tuple(t for t in found.troubles if t.concerns(self.spec)),
            asked=leaving | self._names_in(view, "delete", "unqueue"),
            quiet=self._calls.quiet(self._places.watched(self.spec, view)) | self._lanes.busy(),
            refused={s.region: "; ".join(s.deadly) for s in snapshots if s.deadly},
            spurned=self._calls.spurned(region.region for region in self.spec.regions),
            experience=found.experience,
            arrivals=view.arrivals.get(self.spec.name),
            policy=self._wiring.policy,
            at_work=at_work(view.jobs, self.spec),
        )

    def _note_requests(self, snapshot: MigSnapshot, vms: Sequence[Vm], after: Sequence[Vm]) -> None:
        """Where a request for several VMs at once has failed, or one came."""
        region = snapshot.region
        for request in failed_requests(
            snapshot, [vm for vm in vms if vm.region == region]
        ).values():
            why = "; ".join(error.message or error.code for error in request.errors)
            self._calls.failed_together(region, f"{request.name} {request.state.lower()}: {why}")
        came = (b for a, b in zip(vms, after, strict=True) if a.running_since is None)
        if any(vm.together and vm.running_since and vm.region == region for vm in came):
            self._calls.came_together(region)

    def _forgotten(self, fresh: Sequence[Look], view: View) -> list[Change]:
        """Withdrawn regions where nothing of ours was known, and nothing was seen either."""
        still = self._places.abandoned(self.spec, view)
        looks = (look.snapshot for look in fresh if look.abandoned)
        clear = [s.region for s in looks if s.region in still and self._places.is_clear(s)]
        for region in clear:
            log.info("withdrawn region is empty", cluster=self.spec.name, region=region)
            self._said.pop(region, None)  # if it comes back, its status must be stored again
            self._places.forget(region)
            self._snapshots.pop(region, None)
        return [ForgetRegion(self.spec.name, region) for region in clear]

    def _demand(self, view: View) -> Demand:
        found = demand_by_cluster(view.jobs, self._wiring.runs())
        demand = found.get(self.spec.name) or Demand(self.spec.name)
        return packed(demand, self.spec, view.vms, view.jobs) if self.spec.share else demand

    def _names_in(self, view: View, *kinds: str) -> frozenset[str]:
        asked = (r for r in view.requests if r.kind in kinds and r.cluster == self.spec.name)
        return frozenset(name for request in asked for name in request.names)

    def _accepted_lately(self, view: View) -> frozenset[str]:
        """VMs that may not be listed yet. One whose zone or machine was seen has been: if it is
        missing now, it is gone. A refused one that was taken back must not hold the limit."""
        since = self._wiring.clock.monotonic() - UNLISTED_AFTER_S
        self._accepted_at = {n: at for n, at in self._accepted_at.items() if at > since}
        seen = {vm.name for vm in view.vms if vm.zone or vm.instance_id}
        return frozenset(self._accepted_at.keys() - seen)

    # --- acting --------------------------------------------------------------------------

    async def _act(self, actions: Sequence[Action], picture: Picture, now: datetime) -> None:
        """Everything is written down first; then the regions are called side by side, the calls
        of one region in order. What a busy region cannot be told now, a later round repeats."""
        by_region: dict[str, list[Action]] = {}
        for action in actions:
            place = "" if isinstance(action, Drain | Undrain) else action.region
            by_region.setdefault(place, []).append(action)
        written = await asyncio.gather(
            *(self._write_down(group, picture, now) for group in by_region.values())
        )
        busy = self._lanes.busy()
        for region, calls in zip(by_region, written, strict=True):
            if calls and region not in busy:
                self._lanes.start(region, self._call_in_order(calls, now))
        await self._lanes.settle()

    async def _write_down(
        self, actions: Sequence[Action], picture: Picture, now: datetime
    ) -> list[CloudCall]:
        """The calls that are to be made now."""
        calls: list[CloudCall] = []
        for action in actions:
            match action:
                case Create() | Queue():
                    if await self._create(action, now):
                        calls.append(action)
                case Delete() | Unqueue():
                    if await self._delete(action, picture, now):
                        calls.append(action)
                case Drain():
                    await self._drain(action, picture, now)
                case Undrain():
                    await self._undrain(action, picture, now)
                case Hold():
                    pass  # its reason is in the region's status
                case _:
                    assert_never(action)
        return calls

    async def _call_in_order(self, actions: Sequence[CloudCall], now: datetime) -> None:
        for action in actions:
            await self._call(action, now, first=True)

    async def _create(self, action: Create | Queue, now: datetime) -> bool:
        """Names and request id are stored, and counted against the limit, before the call: all of
        them or none. The limit is the one of this moment: it may have been lowered since the plan
        was made."""
        spec, _ = self._configured
        if all(region.region != action.region for region in spec.regions):
            return False  # withdrawn in the meantime
        causes = dict(zip(action.names, action.causes, strict=False))
        vms = [self._new_vm(name, action, causes.get(name, ""), now) for name in action.names]
        rows: list[Change] = [NewVm(vm, vm_max=spec.vm_max) for vm in vms]
        rows.append(NewRequest(request_of(action, spec.name, now)))
        asked = Counter(vm.caused_by for vm in vms if vm.caused_by)
        rows += [
            WaitNote(uid, WaitKind.VM_REQUEST, action.region, action.reason, now, count)
            for uid, count in asked.items()
        ]
        if not await self._write([tuple(rows)]):
            return False
        self._awaited |= {vm.uid for vm in vms}
        self._log(action)
        return True

    def _new_vm(self, name: str, action: Create | Queue, cause: str, now: datetime) -> Vm:
        spec = self.spec
        return Vm(
            uid=self._wiring.ids.uid(now),
            name=name,
            cluster=spec.name,
            region=action.region,
            state=V.REQUESTED,
            version=1,
            request_id=action.request_id,
            gpus=spec.gpus,
            spot=spec.spot,
            usd_per_hour=spec.usd_per_hour(action.region),
            requested_at=now,
            state_since=now,
            reason=action.reason,
            together=action.name if isinstance(action, Queue) else "",
            caused_by=cause or None,
            idle_max_s=spec.idle_timeout_s or self._wiring.timers.idle_timeout_s,
        )

    async def _delete(self, action: Delete | Unqueue, picture: Picture, now: datetime) -> bool:
        """A VM that holds a lease is never deleted here unless it is already lost: the move to
        DELETING is compare-and-set, and every new lease grows the version."""
        changes: list[Change] = [
            VmMove(vm, move_vm(vm, V.DELETING, now, action.reason))
            for vm in picture.vms
            if vm.name in action.names and vm.state is not V.DELETING
        ]
        changes.append(NewRequest(request_of(action, self.spec.name, now)))
        waiting = {wish.job for wish in picture.demand.wishes}
        given_up = [vm for vm in picture.vms if vm.name in action.names and vm.ready_at is None]
        changes += [
            WaitNote(uid, WaitKind.REQUEST_CANCELLED, action.region, action.reason, now)
            for uid in sorted({vm.caused_by for vm in given_up if vm.caused_by in waiting})
        ]
        if not await self._write([tuple(changes)]):
            return False
        self._log(action)
        return True

    async def _drain(self, action: Drain, picture: Picture, now: datetime) -> None:
        vm = next(vm for vm in picture.vms if vm.name == action.vm_name)
        await self._write([(VmMove(vm, move_vm(vm, V.DRAINING, now, action.reason)),)])

    async def _undrain(self, action: Undrain, picture: Picture, now: datetime) -> None:
        vm = next(vm for vm in picture.vms if vm.name == action.vm_name)
        ready = move_vm(vm, V.READY, now, action.reason)
        await self._write([(VmMove(vm, ready),)])

    async def _repeat_unsettled(self, view: View) -> None:
        """Calls whose answer we never saw, perhaps a former leader's: the same request id makes
        the repeat harmless. Regions that fail are left alone for a while."""
        by_region: dict[str, list[CloudRequest]] = {}
        for request in view.requests:
            if request.cluster == self.spec.name:
                by_region.setdefault(request.region, []).append(request)
        left_alone = self._calls.quiet(by_region) | self._lanes.busy()
        for region, group in by_region.items():
            if region not in left_alone:
                self._lanes.start(region, self._repeat(group, view.now))
        await self._lanes.settle()

    async def _repeat(self, requests: Iterable[CloudRequest], now: datetime) -> None:
        for request in requests:
            if not await self._call(action_of(request), now, first=False):
                return  # the region does not answer: the rest would not fare better

    async def _call(self, action: CloudCall, now: datetime, *, first: bool) -> bool:
        """Whether the call was answered, one way or the other."""
        self._wiring.term()  # not a leader any more: no call
        error = await self._calls.apply(action)
        self._observed_at.pop(action.region, None)  # look again at once
        if error is None:
            if isinstance(action, Create | Queue):
                moment = self._wiring.clock.monotonic()
                self._accepted_at.update(dict.fromkeys(action.names, moment))
            await self._write([(SettleRequest(action.request_id, "accepted", now),)])
            return True
        if is_passing(error):
            return False  # not settled: a later round repeats it with the same request id
        await self._refused(action, error, now, first=first)
        return True

    async def _refused(
        self, action: CloudCall, error: ZenError, now: datetime, *, first: bool
    ) -> None:
        """A first call that is refused had no effect. An older one may have had: what it made, if
        anything, is left to observation. One that was accepted and then failed is folded into the
        next look, as the errors of members are."""
        units: list[Unit] = [(SettleRequest(action.request_id, f"refused: {error}", now),)]
        if isinstance(error, OperationFailed) and isinstance(action, Create | Queue):
            await self._write(units)
            failed = FailedCreate(action.names, error.errors, str(error))
            before = self._failed_creates.get(action.region, ())
            self._failed_creates[action.region] = (*before, failed)
            return
        if isinstance(action, Create | Queue) and (first or isinstance(error, MigMissing)):
            view = await self._view()
            made = [vm for vm in view.vms if vm.name in action.names and vm.state is V.REQUESTED]
            units += [
                (VmMove(vm, move_vm(vm, V.GONE, now, f"create refused: {error}")),) for vm in made
            ]
            units += [
                (WaitNote(uid, WaitKind.REFUSAL, action.region, str(error), now),)
                for uid in sorted({vm.caused_by for vm in made if vm.caused_by})
            ]
        await self._write(units)
        if isinstance(action, Queue) and not first and not isinstance(error, MigMissing):
            return  # its name is in use: by itself, if the first call came through after all
        await self._hold_region(action.region, error, now)

    async def _hold_region(self, region: str, error: ZenError, now: datetime) -> None:
        kinds: dict[type[ZenError], TroubleKind] = {
            Forbidden: TroubleKind.PERMISSION,
            MigMissing: TroubleKind.MISSING,
        }
        kind = kinds.get(type(error), TroubleKind.OTHER)
        key = (region, "", self.spec.offering, self.spec.spot, str(kind))
        before = None  # one that is seen at each look is renewed by each
        if kind is TroubleKind.OTHER:
            before = next((t for t in (await self._view()).troubles if t.key == key), None)
        trouble = learn(before, key, kind, str(error), self._timers, now)
        mig = self._calls.mig(region).mig
        alert = RaiseAlert(f"cloud_{kind}", mig, "error", str(error), now)
        told = self._complaints.with_refusal(region, mig, alert.kind, alert.message)
        await self._write(
            [(PutTrouble(trouble),) if told is None else (PutTrouble(trouble), alert)]
        )
        if told is not None:
            self._complaints.told({region: told})

    # --- telling -------------------------------------------------------------------------

    async def _report(self, picture: Picture, actions: Sequence[Action], now: datetime) -> None:
        whys = {r.region: _why(r.region, picture, actions, now) for r in self.spec.regions}
        whys |= dict.fromkeys(self._places.withdrawn(self.spec), WATCHED)
        statuses = [self._status(region, why) for region, why in whys.items()]
        said = {status.region: status for status in statuses if self._is_news(status)}
        news: list[Change] = [PutRegionStatus(status) for status in said.values()]
        news += self._not_asked(actions, now)
        held = {*whys, *(vm.region for vm in picture.vms)}
        ended = self._complaints.others(held)  # withdrawn, and empty by now
        for region in ended:
            news += self._complaints.end(region, self._calls.mig(region).mig, now)
        if news:
            await self._write([tuple(news)])
        self._complaints.forget(ended)
        # Not before it is stored: the next leader knows by it where we may have VMs.
        self._said |= said
        self._places.drive(self.spec.regions)

    def _not_asked(self, actions: Sequence[Action], now: datetime) -> list[WaitNote]:
        """For the first jobs that found no region: why each region was not asked."""
        holds = [action for action in actions if isinstance(action, Hold)]
        found = {(uid, hold.region): hold.reason for hold in holds for uid in hold.jobs}
        self._waits.stands(found, WaitKind.NOT_ASKED, now)
        return self._waits.take(now)

    def _status(self, region: str, why: str) -> RegionStatus:
        seen = self._snapshots.get(region)
        size, at = (seen.target_size, seen.observed_at) if seen is not None else (0, None)
        return RegionStatus(self.spec.name, region, size, why, at)

    def _is_news(self, status: RegionStatus) -> bool:
        before = self._said.get(status.region)
        if before is None:
            return True
        return (before.why, before.target_size) != (status.why, status.target_size)

    def _log(self, action: CloudCall) -> None:
        names, what = list(action.names), kind_of(action)
        log.info(what, cluster=self.spec.name, region=action.region, vms=names, why=action.reason)

    async def _write(self, units: Sequence[Unit]) -> bool:
        outcome = await self._wiring.store.commit(units, self._wiring.term())
        for index, guard in outcome.refusals.items():
            log.info("write refused", cluster=self.spec.name, guard=guard, unit=index)
        return outcome.all_applied


def _why(region: str, picture: Picture, actions: Sequence[Action], now: datetime) -> str:
    for action in actions:
        if isinstance(action, CloudCall | Hold) and action.region in (region, ""):
            return action.reason
    block: Trouble | None = block_on(picture.troubles, picture.spec, region, now)
    if block is not None:
        return f"{block.words}: {block.message}"
    return ""
