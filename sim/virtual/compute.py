"""`core.ports.Compute` over the pretend cloud's physics, in virtual time. Errors come in the words
that the Google adapter would use for them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from core.actions import Create, Delete, Queue
from core.cluster import ClusterSpec
from core.errors import CloudBusy, CloudRefused, CloudUnsure, Forbidden, MigMissing, ZenError
from core.mig import (
    CapacityHint,
    GroupError,
    ManagedInstance,
    MigSnapshot,
    OperationFailed,
    Queued,
    QueueState,
    Refusal,
)
from migs.classify import ComputeError, refusal
from migs.removed_members import ErrorHistory
from migs.responses import is_creation, leaving, machine_state
from sim.cloud.faults import Fault
from sim.cloud.flex_start import FlexStartRequest
from sim.cloud.model import (
    ApiError,
    CreateFailure,
    EffectKind,
    Mig,
    Operation,
    PretendInstance,
    RequestState,
    ResizeRequest,
    VmInfo,
)
from sim.cloud.physics import CloudProject
from sim.cloud.world import World
from sim.virtual.loop import EPOCH, VirtualLoop
from sim.virtual.trace import Trace

LATE_MAX_S = 20.0
CALL_S = 20.0
ADVICE_S = 300.0
"""How long advice is kept, as the Google adapter does."""


class CloudInTime:
    """The physics, moved by the loop's own timers."""

    def __init__(self, loop: VirtualLoop, world: World) -> None:
        self.cloud = CloudProject(world, loop.time())
        self.machines: dict[EffectKind, Callable[[VmInfo], None]] = {}
        """What happens to machines; the VMs' side gives the answers."""
        self.forbidden: set[str] = set()
        """Regions whose calls are refused for lack of permission."""
        self._loop = loop
        self._set_for: float | None = None

    def settle(self) -> None:
        """Do what is due, and come again when the next thing is."""
        for effect in self.cloud.advance(self._loop.time()):
            self.machines[effect.kind](effect.vm)
        due = self.cloud.next_event_at()
        if due is None or (self._set_for is not None and self._set_for <= due):
            return
        self._set_for = due
        self._loop.later(max(0.0, due - self._loop.time()), self._woken, due)

    def _woken(self, due: float) -> None:
        if self._set_for == due:
            self._set_for = None
        self.settle()

    def fault(self, fault: Fault) -> tuple[str, ...]:
        """Set a fault; names what a momentary one hit."""
        hit = self.cloud.set_fault(fault, self._loop.time())
        self.settle()
        return hit if isinstance(hit, tuple) else ()


class VirtualCompute:
    """One replica's client of the cloud."""

    def __init__(
        self, world: CloudInTime, loop: VirtualLoop, dice: random.Random, trace: Trace
    ) -> None:
        self.late_odds = 0.0
        self.on_create: Callable[[str, Create | Queue], None] = lambda _mig, _action: None
        self.on_delete: Callable[[str, Delete], None] = lambda _mig, _action: None
        self._world, self._loop, self._dice, self._trace = world, loop, dice, trace
        self._history = ErrorHistory()
        self._advice: dict[tuple[str, str], tuple[float, tuple[CapacityHint, ...]]] = {}
        """Region and machine type → until when, what."""

    async def observe(self, mig: str, cluster: str, region: str) -> MigSnapshot:
        asked_at = EPOCH + timedelta(seconds=self._loop.time())
        group = await self._group(region, mig)
        members = tuple(_member(member) for member in group.members.values())
        faults, deadly = _group_faults(group)
        shown = MigSnapshot(
            mig=mig,
            cluster=cluster,
            region=region,
            target_size=group.target_size,
            stable=group.is_stable,
            members=members,
            observed_at=asked_at,
            faults=faults,
            deadly=deadly,
            errors=self._news_of_the_gone(group, members),
        )
        # The answer travels too: what it shows is already old when it is read.
        await asyncio.sleep(self._dice.uniform(0.02, 0.2))
        return shown

    async def _group(self, region: str, mig: str) -> Mig:
        await self._pass_gate(region, write=False)
        try:
            return self._world.cloud.mig(region, mig, self._loop.time())
        except ApiError as error:
            raise _translate(error) from error
        finally:
            self._world.settle()

    async def create(self, mig: str, action: Create) -> None:
        def effect() -> None:
            done = self._world.cloud.create_instances(
                action.region, mig, action.names, action.request_id, self._loop.time()
            )
            self._finish(done)
            self.on_create(mig, action)

        await self._write(action.region, effect)

    async def delete(self, mig: str, action: Delete) -> None:
        await self._pass_gate(action.region, write=False)

        def effect() -> None:
            now = self._loop.time()
            listed = self._world.cloud.mig(action.region, mig, now).members
            staying = [listed[n] for n in action.names if n in listed and not listed[n].leaving]
            if staying:
                urls = [f"zones/{m.zone}/instances/{m.name}" for m in staying]
                self.on_delete(mig, action)
                done = self._world.cloud.delete_instances(
                    action.region, mig, urls, True, action.request_id, now
                )
                self._finish(done)

        await self._write(action.region, effect)

    def _news_of_the_gone(
        self, group: Mig, members: tuple[ManagedInstance, ...]
    ) -> tuple[GroupError, ...]:
        key, now = (
            (group.spec.region, group.spec.name),
            EPOCH + timedelta(seconds=self._loop.time()),
        )
        if not self._history.is_due(key, members, now):
            return ()
        self._history.asked(key, now)
        errors = (
            GroupError(
                EPOCH + timedelta(seconds=record.at),
                record.name,
                _logged(record.failure),
            )
            for record in group.errors
            if is_creation(record.action.value)
        )
        return self._history.news(key, members, errors, now)

    # --- several at once ------------------------------------------------------------------

    async def queue(self, mig: str, action: Queue) -> None:
        asked = FlexStartRequest(action.name, action.names, 0, action.run_s)

        def effect() -> None:
            done = self._world.cloud.request_instances(
                action.region, mig, asked, action.request_id, self._loop.time()
            )
            self._finish(done)
            self._trace.count_fault("asked_together")
            self.on_create(mig, action)

        await self._write(action.region, effect)

    async def queued(self, mig: str, region: str) -> tuple[Queued, ...]:
        group = await self._group(region, mig)
        return tuple(_queued(request) for request in group.requests.values())

    async def unqueue(self, mig: str, region: str, name: str, request_id: str) -> None:
        def effect() -> None:
            now = self._loop.time()
            found = self._world.cloud.mig(region, mig, now).requests.get(name)
            if found is not None and found.state is RequestState.ACCEPTED:
                self._world.cloud.cancel_request(region, mig, name, request_id, now)

        await self._write(region, effect)

    async def advise(self, spec: ClusterSpec, region: str) -> tuple[CapacityHint, ...]:
        if not spec.spot:
            return ()
        key, now = (region, spec.offering), self._loop.time()
        until, hints = self._advice.get(key, (0.0, ()))
        if now >= until:
            hints = (self._hint(spec, region, now),)
            self._advice[key] = (now + ADVICE_S, hints)
        return hints

    def _hint(self, spec: ClusterSpec, region: str, now: float) -> CapacityHint:
        zones = spec.region(region).zones or self._world.cloud.world.zones_of(region)
        room = self._world.cloud.chances(zones, spec.machine_type, spec.spot, 1, now)
        self._world.settle()
        zone = max(sorted(room), key=lambda name: room[name], default="")
        there = bool(room.get(zone))
        place = spec.supply_key(region, zone if there else "")
        return CapacityHint(place, likely=there, at=EPOCH + timedelta(seconds=now))

    # --- how calls fail --------------------------------------------------------------------

    async def _pass_gate(self, region: str, *, write: bool) -> bool:
        """Waits as long as the call takes; True if the effect comes but the answer does not."""
        await asyncio.sleep(self._dice.uniform(0.02, 0.3))
        if region in self._world.forbidden:
            raise Forbidden("403 forbidden: required 'compute.instanceGroupManagers.get'")
        verdict = self._world.cloud.api_verdict(region, self._loop.time())
        if verdict.latency_s:
            self._trace.count_fault("api_slow")
            await asyncio.sleep(verdict.latency_s)
        match verdict.kind:
            case None:
                return False
            case "rateLimitExceeded" | "429":
                self._trace.count_fault("api_rate_limit")
                raise CloudBusy("403 rateLimitExceeded: quota of calls per minute")
            case "timeout-after-success":
                self._trace.count_fault("api_timeout_after_success")
                if not write:
                    await asyncio.sleep(CALL_S)
                    raise CloudBusy("no answer")
                return True
            case _:
                self._trace.count_fault("api_5xx")
                raise (CloudUnsure if write else CloudBusy)(f"{verdict.kind} backendError")

    async def _write(self, region: str, effect: Callable[[], None]) -> None:
        lost = await self._pass_gate(region, write=True)
        if lost and self._dice.random() < self.late_odds:
            self._trace.count_fault("api_late_effect")
            self._loop.later(self._dice.uniform(1.0, LATE_MAX_S), self._late, effect)
        else:
            try:
                effect()
            except ApiError as error:
                raise _translate(error) from error
            except ZenError:
                if not lost:
                    raise
            finally:
                self._world.settle()
        if lost:
            await asyncio.sleep(CALL_S)
            raise CloudUnsure("no answer, it may have taken effect")

    def _finish(self, operation: Operation) -> None:
        """As the Google adapter reads it; one that is not over yet is asked after again."""
        if operation.done_at > self._loop.time():
            raise CloudUnsure(f"{operation.name} is not over yet")
        if operation.error is not None:
            self._trace.count_fault("operation_failed")
            error = _refusal(operation.error)
            raise OperationFailed(f"accepted, then failed: {error.message}", (error,))

    def _late(self, effect: Callable[[], None]) -> None:
        """The request arrives after its caller stopped waiting; nobody hears of a refusal."""
        try:
            effect()
        except (ApiError, ZenError) as error:
            self._trace.note("cloud", f"late call refused: {error}")
        self._world.settle()


def _translate(error: ApiError) -> ZenError:
    text = str(error)
    if error.status in (401, 403):
        return Forbidden(text)
    if error.status == 404:
        return MigMissing(text)
    return CloudRefused(text)


def _member(member: PretendInstance) -> ManagedInstance:
    vm = member.vm
    return ManagedInstance(
        name=member.name,
        zone=member.zone,
        machine=machine_state(vm.status.value if vm is not None else ""),
        instance_id=str(vm.info.id) if vm is not None else "",
        leaving=leaving(member.action.value),
        refusals=(_refusal(member.failure),) if member.failure is not None else (),
        terminates_at=EPOCH + timedelta(seconds=member.ends_at) if member.ends_at else None,
    )


def _in_other_words(failure: CreateFailure) -> CreateFailure:
    """Google does not say the same thing in the same words everywhere: in some zones its codes are
    of another family, or say nothing."""
    if not failure.zone.endswith("-b"):
        return failure
    match failure.code:
        case "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS":
            return replace(failure, code="CONDITION_NOT_MET", reason="")
        case "UNSUPPORTED_OPERATION":
            words = f"The resource 'zones/{failure.zone}/machineTypes/some' was not found"
            return replace(failure, code="RESOURCE_NOT_FOUND", message=words)
        case "PERMISSIONS_ERROR":
            return replace(failure, code="INTERNAL_ERROR", message="Internal error: try again")
        case _:
            return failure


def _logged(said: CreateFailure) -> Refusal:
    """As the group's history tells it: without details."""
    return refusal(ComputeError(said.code, said.message, zone=said.zone))


def _refusal(said: CreateFailure) -> Refusal:
    failure = _in_other_words(said)
    zones = dict(failure.metadatas).get("zonesAvailable", "")
    error = ComputeError(
        code=failure.code,
        message=failure.message,
        reason=failure.reason,
        zones_available=tuple(zone for zone in zones.split(",") if zone),
        zone=failure.zone,
    )
    return refusal(error)


def _queued(request: ResizeRequest) -> Queued:
    return Queued(
        name=request.name,
        state=QueueState(request.state.value),
        vms=len(request.members),
        run_s=request.run_s,
        refusals=(_refusal(request.failure),) if request.failure is not None else (),
    )


def _group_faults(group: Mig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(all complaints, the ones that kill running work)."""
    name, action = group.spec.name, group.spec.default_action_on_failure
    faults, deadly = [], []
    if action != "DO_NOTHING":
        faults.append(f"{name}: defaultActionOnFailure is {action}, expected DO_NOTHING")
    if group.spec.target_shape == "EVEN":
        deadly.append(f"{name}: targetShape is EVEN, expected ANY or ANY_SINGLE_ZONE")
    return (*faults, *deadly), tuple(deadly)
