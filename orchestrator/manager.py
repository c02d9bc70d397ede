"""ClusterManager: one cluster over all its regions. Observe, fold, plan, write down, act."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

import structlog

from core.capacity import (
    Action,
    ClusterSpec,
    Create,
    Delete,
    Demand,
    Drain,
    Hold,
    MigSnapshot,
    Trouble,
    TroubleKind,
    Vm,
    VmState,
    move_vm,
)
from core.changes import (
    Change,
    ClearAlert,
    CloudRequest,
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
from core.errors import Forbidden, MigMissing, ZenError
from core.names import Names
from core.ports import Clock, Ids, Store
from core.timers import Timers
from migs.manager import MigManager
from orchestrator.calls import CloudCalls, is_passing
from orchestrator.fold import UNLISTED_AFTER_S, complaints, fold, learn
from orchestrator.orphans import Orphans
from orchestrator.plan import Picture, block_on, demand_by_cluster, plan_cluster

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


class ClusterManager:
    """Owns one cluster. `reconcile()` is never run twice at once (the orchestrator sees to it)."""

    def __init__(self, spec: ClusterSpec, wiring: Wiring) -> None:
        self.spec = spec
        self._wiring = wiring
        self._calls = CloudCalls(
            lambda region: wiring.mig_of(spec.name, region), wiring.clock, wiring.on_cloud_call
        )
        self._orphans = Orphans(spec, wiring.names, wiring.timers)
        self._snapshots: dict[str, MigSnapshot] = {}
        self._observed_at: dict[str, float] = {}
        self._accepted_at: dict[str, float] = {}
        self._said: dict[str, RegionStatus] = {}
        self._complaints: dict[str, dict[str, str]] = {}

    async def reconcile(self) -> None:
        """One round: the next one repeats whatever did not come through."""
        view = await self._wiring.store.view(queue_limit=0)
        await self._repeat_unsettled(view)
        known = frozenset(vm.name for vm in view.vms)
        fresh = await self._observe_due(view)
        view = await self._wiring.store.view(queue_limit=0)
        picture = await self._fold_in(view, fresh, known)
        actions = plan_cluster(
            picture, self._wiring.names, self._wiring.timers, self._wiring.ids, view.now
        )
        await self._report(picture, actions, view.now)
        await self._act(actions, picture, view.now)

    def _regions(self, view: View) -> list[str]:
        """Those of the configuration, and those that still hold something of ours."""
        found = [region.region for region in self.spec.regions]
        held = [vm.region for vm in view.vms if vm.cluster == self.spec.name]
        asked = [r.region for r in view.requests if r.cluster == self.spec.name]
        return list(dict.fromkeys([*found, *held, *asked]))

    # --- observing -----------------------------------------------------------------------

    async def _observe_due(self, view: View) -> list[MigSnapshot]:
        """All regions at once: a slow one holds only itself (and is bounded by its time-out)."""
        due = [region for region in self._regions(view) if self._is_due(region, view)]
        seen = await asyncio.gather(*(self._observe(region, view.now) for region in due))
        fresh = [snapshot for snapshot in seen if snapshot is not None]
        self._snapshots.update({snapshot.region: snapshot for snapshot in fresh})
        return fresh

    def _is_due(self, region: str, view: View) -> bool:
        last = self._observed_at.get(region)
        if last is None:
            return True
        timers = self._wiring.timers
        in_motion = any(vm.cluster == self.spec.name and vm.region == region for vm in view.vms)
        pace = timers.observe_s if in_motion else timers.observe_idle_s
        return self._wiring.clock.monotonic() - last >= pace

    async def _observe(self, region: str, now: datetime) -> MigSnapshot | None:
        seen = await self._calls.observe(region)
        if isinstance(seen, ZenError):
            self._observed_at[region] = self._wiring.clock.monotonic()
            await self._hold_region(region, seen, now)
            return None
        if seen is not None:
            self._observed_at[region] = self._wiring.clock.monotonic()
        return seen

    async def _fold_in(
        self, view: View, fresh: Sequence[MigSnapshot], known: frozenset[str]
    ) -> Picture:
        """Each snapshot is folded once, and only over VMs that were written down before it was
        taken: no clocks are compared, so the absence of a newer one means nothing."""
        vms = tuple(vm for vm in view.vms if vm.cluster == self.spec.name and vm.counted)
        troubles = view.troubles
        unsure = self._names_in(view, "create") | self._accepted_lately()
        changes: list[Change] = []
        for snapshot in fresh:
            older = tuple(vm for vm in vms if vm.name in known)
            newer = tuple(vm for vm in vms if vm.name not in known)
            folded = fold(
                snapshot, self.spec, older, troubles, unsure, self._wiring.timers, view.now
            )
            vms, troubles = (*folded.vms, *newer), folded.troubles
            changes += folded.changes
            place = (snapshot.region, self.spec.machine_type, self.spec.spot)
            blocks = [
                t
                for t in troubles
                if (t.region, t.machine_type, t.spot) == place and t.blocks(view.now)
            ]
            changes += self._alerts(snapshot, complaints(snapshot, known, blocks), view.now)
            changes += self._orphans.adopt(snapshot, known, self._wiring, view.now)
        if changes and not await self._write([(change,) for change in changes]):
            # Somebody was faster. What we folded is not what is stored, though its version may be
            # the same number: plan on the rows as they are, the next observation folds again.
            view = await self._wiring.store.view(queue_limit=0)
            vms = tuple(vm for vm in view.vms if vm.cluster == self.spec.name and vm.counted)
            troubles = view.troubles
        leaving = frozenset(
            member.name
            for snapshot in self._snapshots.values()
            for member in snapshot.members
            if member.action == "DELETING"
        )
        return Picture(
            spec=self.spec,
            demand=demand_by_cluster(view.jobs).get(self.spec.name) or Demand(self.spec.name),
            vms=tuple(vm for vm in vms if vm.counted),
            troubles=troubles,
            asked=leaving | self._names_in(view, "delete"),
            quiet=self._calls.quiet(self._regions(view)),
        )

    def _names_in(self, view: View, kind: str) -> frozenset[str]:
        asked = (r for r in view.requests if r.kind == kind and r.cluster == self.spec.name)
        return frozenset(name for request in asked for name in request.names)

    def _accepted_lately(self) -> frozenset[str]:
        since = self._wiring.clock.monotonic() - UNLISTED_AFTER_S
        self._accepted_at = {n: at for n, at in self._accepted_at.items() if at > since}
        return frozenset(self._accepted_at)

    # --- acting --------------------------------------------------------------------------

    async def _act(self, actions: Sequence[Action], picture: Picture, now: datetime) -> None:
        """Regions side by side, the actions of one region in order."""
        by_region: dict[str, list[Action]] = {}
        for action in actions:
            place = "" if isinstance(action, Drain) else action.region
            by_region.setdefault(place, []).append(action)
        await asyncio.gather(
            *(self._act_in_order(group, picture, now) for group in by_region.values())
        )

    async def _act_in_order(
        self, actions: Sequence[Action], picture: Picture, now: datetime
    ) -> None:
        for action in actions:
            match action:
                case Create():
                    await self._create(action, now)
                case Delete():
                    await self._delete(action, picture, now)
                case Drain():
                    await self._drain(action, picture, now)
                case Hold():
                    pass  # its reason is in the region's status
                case _:
                    assert_never(action)

    async def _create(self, action: Create, now: datetime) -> None:
        """Names and request id are stored, and counted against the limit, before the call."""
        spec = self.spec
        rows: list[Change] = [
            NewVm(self._new_vm(name, action, now), vm_max=spec.vm_max) for name in action.names
        ]
        rows.append(NewRequest(_request("create", spec.name, action, now)))
        if await self._write([tuple(rows)]):
            self._log("create", action)
            await self._call(action, now, first=True)

    def _new_vm(self, name: str, action: Create, now: datetime) -> Vm:
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
        )

    async def _delete(self, action: Delete, picture: Picture, now: datetime) -> None:
        """A VM that holds a lease is never deleted here unless it is already lost: the move to
        DELETING is compare-and-set, and every new lease grows the version."""
        changes: list[Change] = [
            VmMove(vm, move_vm(vm, V.DELETING, now, action.reason))
            for vm in picture.vms
            if vm.name in action.names and vm.state is not V.DELETING
        ]
        changes.append(NewRequest(_request("delete", self.spec.name, action, now)))
        if await self._write([tuple(changes)]):
            self._log("delete", action)
            await self._call(action, now, first=True)

    async def _drain(self, action: Drain, picture: Picture, now: datetime) -> None:
        vm = next(vm for vm in picture.vms if vm.name == action.vm_name)
        await self._write([(VmMove(vm, move_vm(vm, V.DRAINING, now, action.reason)),)])

    async def _repeat_unsettled(self, view: View) -> None:
        """Calls whose answer we never saw, perhaps a former leader's: the same request id makes
        the repeat harmless. Regions that fail are left alone for a while."""
        by_region: dict[str, list[CloudRequest]] = {}
        for request in view.requests:
            if request.cluster == self.spec.name:
                by_region.setdefault(request.region, []).append(request)
        for region in self._calls.quiet(by_region):
            del by_region[region]
        await asyncio.gather(*(self._repeat(group, view.now) for group in by_region.values()))

    async def _repeat(self, requests: Iterable[CloudRequest], now: datetime) -> None:
        for request in requests:
            kind = Create if request.kind == "create" else Delete
            action = kind(request.region, request.names, request.request_id, request.reason)
            if not await self._call(action, now, first=False):
                return  # the region does not answer: the rest would not fare better

    async def _call(self, action: Create | Delete, now: datetime, *, first: bool) -> bool:
        """Whether the call was answered, one way or the other."""
        self._wiring.term()  # not a leader any more: no call
        error = await self._calls.apply(action)
        self._observed_at.pop(action.region, None)  # look again at once
        if error is None:
            if isinstance(action, Create):
                moment = self._wiring.clock.monotonic()
                self._accepted_at.update(dict.fromkeys(action.names, moment))
            await self._write([(SettleRequest(action.request_id, "accepted", now),)])
            return True
        if is_passing(error):
            return False  # not settled: a later round repeats it with the same request id
        await self._refused(action, error, now, first=first)
        return True

    async def _refused(
        self, action: Create | Delete, error: ZenError, now: datetime, *, first: bool
    ) -> None:
        """A first call that is refused had no effect. An older one may have had: what it made, if
        anything, is left to observation."""
        units: list[Unit] = [(SettleRequest(action.request_id, f"refused: {error}", now),)]
        if isinstance(action, Create) and (first or isinstance(error, MigMissing)):
            view = await self._wiring.store.view(queue_limit=0)
            units += [
                (VmMove(vm, move_vm(vm, V.GONE, now, f"create refused: {error}")),)
                for vm in view.vms
                if vm.name in action.names and vm.state is V.REQUESTED
            ]
        await self._write(units)
        await self._hold_region(action.region, error, now)

    async def _hold_region(self, region: str, error: ZenError, now: datetime) -> None:
        kinds: dict[type[ZenError], TroubleKind] = {
            Forbidden: TroubleKind.PERMISSION,
            MigMissing: TroubleKind.MISSING,
        }
        kind = kinds.get(type(error), TroubleKind.OTHER)
        key = (region, "", self.spec.machine_type, self.spec.spot, str(kind))
        trouble = learn(None, key, kind, str(error), self._wiring.timers, now)
        mig = self._calls.mig(region).mig
        before = self._complaints.setdefault(region, {})
        changes: list[Change] = [PutTrouble(trouble)]
        if before.get(f"cloud_{kind}") != str(error):
            before[f"cloud_{kind}"] = str(error)
            changes.append(RaiseAlert(f"cloud_{kind}", mig, "error", str(error), now))
        await self._write([tuple(changes)])

    # --- telling -------------------------------------------------------------------------

    async def _report(self, picture: Picture, actions: Sequence[Action], now: datetime) -> None:
        news: list[Change] = []
        for region in (region.region for region in self.spec.regions):
            status = self._status(region, picture, actions, now)
            before = self._said.get(region)
            if before is None or (before.why, before.target_size) != (
                status.why,
                status.target_size,
            ):
                self._said[region] = status
                news.append(PutRegionStatus(status))
        if news:
            await self._write([tuple(news)])

    def _alerts(self, snapshot: MigSnapshot, after: dict[str, str], now: datetime) -> list[Change]:
        """Only news: a complaint that stands as it was is not written again, and one that this
        observation does not repeat is over."""
        before = self._complaints.get(snapshot.region, {})
        self._complaints[snapshot.region] = after
        raised: list[Change] = [
            RaiseAlert(kind, snapshot.mig, "warning", words, now)
            for kind, words in after.items()
            if before.get(kind) != words
        ]
        cleared = [ClearAlert(kind, snapshot.mig, now) for kind in before if kind not in after]
        return raised + cleared

    def _status(
        self, region: str, picture: Picture, actions: Sequence[Action], now: datetime
    ) -> RegionStatus:
        snapshot = self._snapshots.get(region)
        return RegionStatus(
            cluster=self.spec.name,
            region=region,
            target_size=snapshot.target_size if snapshot else 0,
            why=_why(region, picture, actions, now),
            observed_at=snapshot.observed_at if snapshot else None,
        )

    def _log(self, what: str, action: Create | Delete) -> None:
        names = list(action.names)
        log.info(what, cluster=self.spec.name, region=action.region, vms=names, why=action.reason)

    async def _write(self, units: Sequence[Unit]) -> bool:
        outcome = await self._wiring.store.commit(units, self._wiring.term())
        for index, guard in outcome.refusals.items():
            log.info("write refused", cluster=self.spec.name, guard=guard, unit=index)
        return outcome.all_applied


def _why(region: str, picture: Picture, actions: Sequence[Action], now: datetime) -> str:
    for action in actions:
        if isinstance(action, Create | Delete | Hold) and action.region in (region, ""):
            return action.reason
    block: Trouble | None = block_on(picture.troubles, picture.spec, region, now)
    if block is not None:
        return f"{block.kind} until {block.until:%H:%M:%S} UTC: {block.message}"
    return ""


def _request(kind: str, cluster: str, action: Create | Delete, now: datetime) -> CloudRequest:
    return CloudRequest(
        request_id=action.request_id,
        kind=kind,
        cluster=cluster,
        region=action.region,
        names=action.names,
        reason=action.reason,
        created_at=now,
    )
