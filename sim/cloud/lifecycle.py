"""The life of members and VMs: created, refused, granted, booted, stopped, gone. Pure: a step
happens at the time its timer says, whenever ``catch_up`` comes to it."""

import heapq
import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from sim.cloud.capacity import Market
from sim.cloud.faults import FaultBoard, NoDriver
from sim.cloud.model import (
    GROWING,
    Action,
    CreateFailure,
    Effect,
    EffectKind,
    ErrorRecord,
    InstanceStatus,
    Mig,
    PretendInstance,
    PretendVm,
    RequestState,
    ResizeRequest,
    Timed,
    VmInfo,
)
from sim.cloud.world import World

# What no waiting heals: a request for several VMs fails on it instead of trying again.
HOPELESS = frozenset({"PERMISSIONS_ERROR", "UNSUPPORTED_OPERATION"})


class _Timer(NamedTuple):
    at: float
    seq: int
    owner: Timed
    plan: int
    step: Callable[[float], None]

    @property
    def void(self) -> bool:
        return self.owner.plan != self.plan


class Lifecycle:
    """Timers, VMs and effects. The calls of ``physics`` set things going here."""

    def __init__(self, world: World, faults: FaultBoard, now: float) -> None:
        self.now = now
        self.dice = random.Random(f"{world.seed}/physics")
        self.vms: dict[int, PretendVm] = {}
        self._world = world
        self._faults = faults
        self._market = Market(world, faults)
        # Ids begin at the start time, so that a cloud started again does not repeat them.
        self._next_id = (max(0, int(now * 1000)) << 20) + 1
        self._timers: list[_Timer] = []
        self._seq = 0
        self._effects: list[Effect] = []

    def learn(self, world: World) -> None:
        """The world has more groups now; all else is as it was."""
        self._world = world
        self._market.learn(world)

    # --- time -------------------------------------------------------------------------------------

    def next_event_at(self) -> float | None:
        """When ``advance`` has something to do; None: nothing is under way."""
        if self._effects:
            return self._effects[0].at
        while self._timers and self._timers[0].void:
            heapq.heappop(self._timers)
        return self._timers[0].at if self._timers else None

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def catch_up(self, now: float) -> None:
        """Does all that is due by ``now``, in order. Time never runs backwards."""
        while self._timers and self._timers[0].at <= now:
            timer = heapq.heappop(self._timers)
            if not timer.void:
                self.now = max(self.now, timer.at)
                timer.step(timer.at)
        self.now = max(self.now, now)

    def _later(self, at: float, owner: Timed, step: Callable[[float], None]) -> None:
        self._seq += 1
        heapq.heappush(self._timers, _Timer(at, self._seq, owner, owner.plan, step))

    def _draw(self, span: tuple[float, float]) -> float:
        return self.dice.uniform(*span)

    def new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    # --- the life of a member ---------------------------------------------------------------------

    def grow(self, mig: Mig, names: Sequence[str]) -> None:
        mig.target_size += len(names)
        for name in names:
            member = PretendInstance(name=name, mig=mig, zone=mig.spec.zones[0])
            mig.members[name] = member
            member.action = Action.CREATING
            self._attempt(member, self.now)

    def _attempt(self, member: PretendInstance, at: float) -> None:
        spec = member.mig.spec
        # Only shapes that spread ask where the others are; ANY need not pay for counting.
        siblings = {} if spec.target_shape == "ANY" else member.mig.zones_in_use()
        answer = self._market.place(spec, siblings, self.dice, at)
        if isinstance(answer, CreateFailure):
            member.zone = answer.zone
            visible_at = at + self._world.physics.stockout_answer_s
            self._later(visible_at, member, lambda t: self._refused(member, answer, t))
            return
        member.zone = answer
        member.hold = self._market.take(spec, answer)
        granted_at = at + self._draw(self._world.physics.create_s)
        self._later(granted_at, member, lambda t: self._granted(member, t))

    def _refused(self, member: PretendInstance, failure: CreateFailure, at: float) -> None:
        member.failure = failure
        member.mig.errors.append(ErrorRecord(at, failure, member.action, member.name))
        again_at = at + self._world.physics.retry_s
        self._later(again_at, member, lambda t: self._attempt(member, t))

    def _granted(self, member: PretendInstance, at: float) -> None:
        spec = member.mig.spec
        info = VmInfo(
            id=self.new_id(),
            name=member.name,
            zone=member.zone,
            region=spec.region,
            mig=spec.name,
            machine_type=spec.machine_type,
            gpus=spec.gpus,
            spot=spec.spot,
            metadata=(*spec.metadata, ("created-by", self._created_by(member.mig))),
            labels=spec.labels,
            driver=self._faults.newest(NoDriver, at, region=spec.region) is None,
            created_at=at,
        )
        vm = PretendVm(info=info, created_at=at, member=member, hold=member.hold)
        self.vms[info.id] = vm
        member.vm, member.hold, member.failure = vm, None, None
        boot_s = self._faults.boot_time(spec.region, self._draw(self._world.physics.boot_s), at)
        self._later(at + boot_s / 2, vm, lambda _: self._staged(vm))
        self._later(at + boot_s, vm, lambda t: self._booted(vm, t))

    # --- several at once ------------------------------------------------------------------------

    def grow_together(self, mig: Mig, request: ResizeRequest) -> None:
        """Members that wait until there is room for all of them."""
        mig.target_size += len(request.members)
        mig.requests[request.name] = request
        for member in request.members:
            mig.members[member.name] = member
            member.action = Action.CREATING
        self._attempt_all(request, self.now)

    def give_up(self, request: ResizeRequest, state: RequestState) -> None:
        """The request ends without VMs; its members leave the group."""
        request.state = state
        request.plan += 1
        self.remove((m for m in request.members if not m.leaving), Action.DELETING)

    def _attempt_all(self, request: ResizeRequest, at: float) -> None:
        waiting = [member for member in request.members if not member.leaving]
        failure = self._hold_all(waiting, at)
        request.failure = failure
        if failure is None:
            granted_at = at + self._draw(self._world.physics.create_s)
            self._later(granted_at, request, lambda t: self._granted_all(request, waiting, t))
        elif failure.code in HOPELESS:
            self.give_up(request, RequestState.FAILED)
        else:
            again_at = at + self._world.physics.retry_s
            self._later(again_at, request, lambda t: self._attempt_all(request, t))

    def _hold_all(self, members: Sequence[PretendInstance], at: float) -> CreateFailure | None:
        for member in members:
            spec = member.mig.spec
            answer = self._market.place(spec, member.mig.zones_in_use(), self.dice, at)
            if isinstance(answer, CreateFailure):
                for held in members:
                    self._market.give_back(held)
                return answer
            member.zone = answer
            member.hold = self._market.take(spec, answer)
        return None

    def _granted_all(
        self, request: ResizeRequest, members: Sequence[PretendInstance], at: float
    ) -> None:
        request.state = RequestState.SUCCEEDED
        for member in members:
            if member.leaving:
                continue
            self._granted(member, at)
            self._end_at(member, at + request.run_s)

    def chances(
        self, zones: Sequence[str], machine_type: str, spot: bool, size: int
    ) -> dict[str, int]:
        return {z: self._market.room(z, machine_type, spot, size, self.now) for z in zones}

    def _end_at(self, member: PretendInstance, at: float) -> None:
        """The requested run is over then. Whatever removes the member before makes this void."""
        member.ends_at = at
        self._later(at, member, lambda _: self._remove(member, Action.DELETING))

    def _created_by(self, mig: Mig) -> str:
        return f"projects/{self._world.project_number}/{mig_path(mig)}"

    def _staged(self, vm: PretendVm) -> None:
        vm.status = InstanceStatus.STAGING

    def _booted(self, vm: PretendVm, at: float) -> None:
        vm.status = InstanceStatus.RUNNING
        vm.powered = True
        self._effects.append(Effect(EffectKind.POWER_ON, vm.info, at))
        if vm.member is not None and vm.member.action in GROWING:
            vm.member.action = Action.NONE

    def remove(self, members: Iterable[PretendInstance], action: Action) -> None:
        for member in members:
            self._remove(member, action)

    def _remove(self, member: PretendInstance, action: Action) -> None:
        member.mig.target_size -= 1
        member.action = action
        member.plan += 1
        self._market.give_back(member)
        gone_at = self.now + self._world.physics.delete_s
        if action is Action.DELETING and member.vm is not None:
            member.vm.plan += 1
            if member.vm.status is not InstanceStatus.TERMINATED:
                member.vm.status = InstanceStatus.STOPPING
            self._soft_off(member.vm, self.now)
        self._later(gone_at, member, lambda t: self._removed(member, t))

    def _removed(self, member: PretendInstance, at: float) -> None:
        del member.mig.members[member.name]
        if member.vm is None:
            return
        member.vm.member = None
        if member.action is Action.DELETING:
            self._drop(member.vm, at)

    # --- the end of a VM --------------------------------------------------------------------------

    def _stop_later(
        self, vm: PretendVm, takes_s: float, then: Callable[[PretendVm, float], None]
    ) -> None:
        vm.plan += 1
        if vm.status is not InstanceStatus.TERMINATED:
            vm.status = InstanceStatus.STOPPING
        self._soft_off(vm, self.now)
        self._later(self.now + takes_s, vm, lambda t: then(vm, t))

    def stop(self, vm: PretendVm, takes_s: float) -> None:
        """The VM is TERMINATED after this time."""
        self._stop_later(vm, takes_s, self.end)

    def delete(self, vm: PretendVm, takes_s: float) -> None:
        """The VM is gone after this time. Asking again does not put it off."""
        if not vm.deleting:
            vm.deleting = True
            self._stop_later(vm, takes_s, self._vm_deleted)

    def preempt(self, vm: PretendVm, shutdown_s: float) -> None:
        """The metadata says so. The soft off follows at once, unless the instance template asks for
        a notice before it (preemptionNoticeDuration); the VM runs on meanwhile."""
        vm.preempted = True
        self._effects.append(Effect(EffectKind.SPOT_NOTICE, vm.info, self.now))
        notice_s = vm.member.mig.spec.preemption_notice_s if vm.member is not None else 0.0
        if notice_s:
            vm.plan += 1
            self._later(self.now + notice_s, vm, lambda _: self.stop(vm, shutdown_s))
        else:
            self.stop(vm, shutdown_s)

    def maintain(self, vm: PretendVm, notice_s: float, shutdown_s: float) -> None:
        """The VM runs on until the maintenance begins."""
        self._effects.append(Effect(EffectKind.MAINTENANCE_NOTICE, vm.info, self.now))
        vm.plan += 1
        self._later(self.now + notice_s, vm, lambda _: self.stop(vm, shutdown_s))

    def _soft_off(self, vm: PretendVm, at: float) -> None:
        """Once: a guest that is told again hears nothing new."""
        if vm.powered and not vm.told_off:
            vm.told_off = True
            self._effects.append(Effect(EffectKind.SOFT_OFF, vm.info, at))

    def end(self, vm: PretendVm, at: float) -> None:
        """The power goes: crash, shutdown from inside, or the end of a stop."""
        self._cut_power(vm, at)
        vm.status = InstanceStatus.TERMINATED
        # A stopped GPU VM holds no capacity; the next one may meet a stockout.
        self._market.give_back(vm)
        if vm.deleting:
            return  # a deletion that is under way goes on, and tells the group when it is done
        vm.plan += 1
        self._lost(vm, at)

    def _vm_deleted(self, vm: PretendVm, at: float) -> None:
        self._drop(vm, at)
        if vm.member is not None:
            vm.member.vm = None
        self._lost(vm, at)

    def _drop(self, vm: PretendVm, at: float) -> None:
        self._cut_power(vm, at)
        vm.plan += 1
        self._market.give_back(vm)
        del self.vms[vm.info.id]

    def _cut_power(self, vm: PretendVm, at: float) -> None:
        if vm.powered:
            vm.powered = False
            self._effects.append(Effect(EffectKind.POWER_OFF, vm.info, at))

    def _lost(self, vm: PretendVm, at: float) -> None:
        """What the group does about a member whose VM stopped without the group's asking."""
        member = vm.member
        if member is None or member.leaving:
            return
        if member.mig.spec.default_action_on_failure == "DO_NOTHING":
            member.action = Action.NONE
            return
        if member.vm is not None:
            self._drop(member.vm, at)
            member.vm = None
        vm.member = None
        member.action = Action.RECREATING
        member.plan += 1
        self._attempt(member, at)


def mig_path(mig: Mig) -> str:
    return f"regions/{mig.spec.region}/instanceGroupManagers/{mig.spec.name}"
