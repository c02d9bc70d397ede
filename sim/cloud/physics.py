"""How the pretend cloud behaves. Pure: no clock, no I/O; every call takes ``now``, and the dice are
seeded, so the same world and the same calls give the same history.

What it imitates, because callers must live with it: an operation is done when the request is
accepted, not when VMs exist; a name is a member of its group before the VM exists; creation is
tried again for ever; a repeated request id changes nothing; names come back, ids do not.
"""

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import assert_never

from sim.cloud.faults import (
    CALLS,
    ActiveFault,
    ApiVerdict,
    Clear,
    Crash,
    Fault,
    FaultBoard,
    Lasting,
    Maintain,
    OperationError,
    Preempt,
)
from sim.cloud.flex_start import FlexStartRequest
from sim.cloud.lifecycle import Lifecycle, mig_path
from sim.cloud.model import (
    Action,
    ApiError,
    CreateFailure,
    Effect,
    InstanceStatus,
    Mig,
    Operation,
    PretendInstance,
    PretendVm,
    RequestState,
    ResizeRequest,
)
from sim.cloud.operations import OperationBook, invalid
from sim.cloud.parsing import InvalidInput, nearest
from sim.cloud.world import NAME_PATTERN, MigSpec, World, region_of

INSTANCES_PER_CALL_MAX = 1000
_SUFFIX_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


class CloudProject:
    """All groups and VMs of one project. ``advance`` moves time and hands out the effects."""

    def __init__(self, world: World, now: float) -> None:
        self.world = world
        self.faults = FaultBoard()
        self._life = Lifecycle(world, self.faults, now)
        # Dice of their own, so that API errors do not change what happens to VMs.
        self._api_dice = random.Random(f"{world.seed}/api")
        self._operations = OperationBook()
        self._migs: dict[tuple[str, str], Mig] = {}
        for fault in world.faults:
            self.faults.add(fault, now)
        for spec in world.migs:
            self._add(spec, now)

    # --- time -------------------------------------------------------------------------------------

    def next_event_at(self) -> float | None:
        """When ``advance`` has something to do; None: nothing is under way."""
        return self._life.next_event_at()

    def advance(self, now: float) -> list[Effect]:
        """Does all that is due by ``now``, in order, and returns what happened to machines."""
        self._life.catch_up(now)
        return self._life.take_effects()

    # --- growing ----------------------------------------------------------------------------------

    def add_groups(self, specs: Iterable[MigSpec], now: float) -> list[str]:
        """Makes the ones that do not exist; returns their names. The others stay as they are."""
        self._life.catch_up(now)
        fresh = [spec for spec in specs if (spec.region, spec.name) not in self._migs]
        self.world = replace(self.world, migs=(*self.world.migs, *fresh))
        self._life.learn(self.world)
        for spec in fresh:
            self._add(spec, now)
        return [spec.name for spec in fresh]

    def _add(self, spec: MigSpec, now: float) -> None:
        mig = Mig(spec=spec, id=self._life.new_id(), created_at=now)
        self._migs[spec.region, spec.name] = mig
        self._life.grow(mig, self._fresh_names(mig, spec.target_size))

    # --- looking ----------------------------------------------------------------------------------

    def mig(self, region: str, name: str, now: float) -> Mig:
        self._life.catch_up(now)
        found = self._migs.get((region, name))
        if found is None:
            raise self._not_found(f"regions/{region}/instanceGroupManagers/{name}")
        return found

    def migs(self, region: str | None, now: float) -> list[Mig]:
        self._life.catch_up(now)
        if region is not None and region not in {spec.region for spec in self.world.migs}:
            raise self._not_found(f"regions/{region}")
        return [m for (r, _), m in sorted(self._migs.items()) if region in (None, r)]

    def vms(self, now: float) -> list[PretendVm]:
        self._life.catch_up(now)
        return list(self._life.vms.values())

    def vm(self, zone: str, name: str, now: float) -> PretendVm:
        self._life.catch_up(now)
        for vm in self._life.vms.values():
            if vm.info.name == name and vm.info.zone == zone:
                return vm
        raise self._not_found(f"zones/{zone}/instances/{name}")

    def operation(self, scope: str, name: str) -> Operation:
        found = self._operations.find(scope, name)
        if found is None:
            raise self._not_found(f"{scope}/operations/{name}")
        return found

    def _not_found(self, path: str) -> ApiError:
        full = f"projects/{self.world.project}/{path}"
        return ApiError(404, "notFound", f"The resource '{full}' was not found")

    # --- calls on groups --------------------------------------------------------------------------

    def create_instances(
        self, region: str, name: str, names: Sequence[str], request_id: str | None, now: float
    ) -> Operation:
        """Adds members by name; the VMs come later, or never."""
        mig = self.mig(region, name, now)

        def checked() -> Callable[[], None]:
            self._check_new_names(mig, names)
            return lambda: self._life.grow(mig, names)

        return self._change(mig, "createInstances", request_id, checked)

    def delete_instances(
        self,
        region: str,
        name: str,
        instances: Sequence[str],
        skip_invalid: bool,
        request_id: str | None,
        now: float,
    ) -> Operation:
        """Removes exactly these members, whether their VMs exist yet or not."""
        mig = self.mig(region, name, now)

        def checked() -> Callable[[], None]:
            members = self._named_members(mig, instances, skip_invalid)
            return lambda: self._life.remove(members, Action.DELETING)

        return self._change(mig, "deleteInstances", request_id, checked)

    def abandon_instances(
        self, region: str, name: str, instances: Sequence[str], request_id: str | None, now: float
    ) -> Operation:
        """Removes members from the group; their VMs live on, and cost."""
        mig = self.mig(region, name, now)

        def checked() -> Callable[[], None]:
            members = self._named_members(mig, instances, skip_invalid=False)
            return lambda: self._life.remove(members, Action.ABANDONING)

        return self._change(mig, "abandonInstances", request_id, checked)

    def resize(
        self, region: str, name: str, size: int, request_id: str | None, now: float
    ) -> Operation:
        """Sets the target. Growing invents names, shrinking chooses its victims itself."""
        mig = self.mig(region, name, now)
        most = self.world.physics.group_vms_max

        def checked() -> Callable[[], None]:
            if not 0 <= size <= most:
                raise invalid("size", size, f"a number from 0 to {most}")
            return lambda: self._resize(mig, size - mig.target_size)

        return self._change(mig, "resize", request_id, checked)

    def _resize(self, mig: Mig, more: int) -> None:
        if more > 0:
            self._life.grow(mig, self._fresh_names(mig, more))
        self._life.remove(self._victims(mig, -more), Action.DELETING)

    def request_instances(
        self,
        region: str,
        name: str,
        asked: FlexStartRequest,
        request_id: str | None,
        now: float,
    ) -> Operation:
        """Several VMs at once or none: the members are there at once, their VMs wait for each
        other."""
        mig = self.mig(region, name, now)

        def checked() -> Callable[[], None]:
            asked.check(mig)
            names = asked.names or tuple(self._fresh_names(mig, asked.count))
            self._check_new_names(mig, names)
            return lambda: self._life.grow_together(mig, self._resize_request(mig, asked, names))

        return self._change(mig, "resizeRequests.insert", request_id, checked)

    def _resize_request(
        self, mig: Mig, asked: FlexStartRequest, names: Sequence[str]
    ) -> ResizeRequest:
        zone = mig.spec.zones[0]
        return ResizeRequest(
            name=asked.name,
            id=self._life.new_id(),
            created_at=self._life.now,
            run_s=asked.run_s,
            members=tuple(PretendInstance(name=n, mig=mig, zone=zone) for n in names),
            by_count=not asked.names,
        )

    def request(self, region: str, name: str, request: str, now: float) -> ResizeRequest:
        found = self.mig(region, name, now).requests.get(request)
        if found is None:
            path = f"regions/{region}/instanceGroupManagers/{name}/resizeRequests/{request}"
            raise self._not_found(path)
        return found

    def cancel_request(
        self, region: str, name: str, request: str, request_id: str | None, now: float
    ) -> Operation:
        """Only a request that still waits can be cancelled."""
        found = self.request(region, name, request, now)

        def checked() -> Callable[[], None]:
            if found.state is not RequestState.ACCEPTED:
                raise invalid("resizeRequest", request, f"one that waits, it is {found.state}")
            return lambda: self._life.give_up(found, RequestState.CANCELLED)

        mig = self.mig(region, name, now)
        return self._change(mig, "resizeRequests.cancel", request_id, checked)

    def chances(
        self, zones: Sequence[str], machine_type: str, spot: bool, size: int, now: float
    ) -> dict[str, int]:
        """Zone → how many of `size` such VMs it could take now."""
        self._life.catch_up(now)
        return self._life.chances(zones, machine_type, spot, size)

    def _victims(self, mig: Mig, count: int) -> list[PretendInstance]:
        candidates = [m for m in mig.members.values() if not m.leaving]
        self._life.dice.shuffle(candidates)
        # Members without a running VM go first; which of the running ones go is anybody's guess.
        candidates.sort(key=lambda m: m.vm is not None and m.vm.status is InstanceStatus.RUNNING)
        return candidates[: max(0, count)]

    def _check_new_names(self, mig: Mig, names: Sequence[str]) -> None:
        if not 1 <= len(names) <= INSTANCES_PER_CALL_MAX:
            raise invalid("instances", len(names), f"1 to {INSTANCES_PER_CALL_MAX} names")
        most = self.world.physics.group_vms_max
        if mig.target_size + len(names) > most:
            raise invalid("instances", len(names), f"a group of at most {most} VMs")
        for i, name in enumerate(names):
            if not re.fullmatch(NAME_PATTERN, name):
                raise invalid(f"instances[{i}].name", name, f"a match of {NAME_PATTERN}")
        if len(set(names)) < len(names):
            raise invalid("instances", ", ".join(names), "names that differ")
        taken = self._names_in(mig.spec.region).intersection(names)
        if taken:
            path = f"projects/{self.world.project}/regions/{mig.spec.region}"
            raise ApiError(
                409, "alreadyExists", f"The instances {sorted(taken)} already exist in '{path}'"
            )

    def _names_in(self, region: str) -> set[str]:
        members = {n for (r, _), m in self._migs.items() if r == region for n in m.members}
        return members | {v.info.name for v in self._life.vms.values() if v.info.region == region}

    def _fresh_names(self, mig: Mig, count: int) -> list[str]:
        taken = self._names_in(mig.spec.region) if count else set()
        names: list[str] = []
        while len(names) < count:
            suffix = "".join(self._life.dice.choices(_SUFFIX_ALPHABET, k=4))
            name = f"{mig.spec.base_instance_name}-{suffix}"
            if name not in taken:
                taken.add(name)
                names.append(name)
        return names

    def _named_members(
        self, mig: Mig, instances: Sequence[str], skip_invalid: bool
    ) -> list[PretendInstance]:
        if not 1 <= len(instances) <= INSTANCES_PER_CALL_MAX:
            raise invalid("instances", len(instances), f"1 to {INSTANCES_PER_CALL_MAX} URLs")
        found: dict[str, PretendInstance] = {}
        for i, url in enumerate(instances):
            zone, name = _zone_and_name(i, url, mig)
            member = mig.members.get(name)
            # A VM that does not exist yet may still change its zone; one that exists may not.
            if member is None or member.leaving or (member.vm and member.vm.info.zone != zone):
                if skip_invalid:
                    continue
                raise invalid(f"instances[{i}]", url, f"a member of {mig.spec.name}, not leaving")
            found[name] = member
        return list(found.values())

    def _change(
        self,
        mig: Mig,
        verb: str,
        request_id: str | None,
        checked: Callable[[], Callable[[], None]],
    ) -> Operation:
        """One call on a group. `checked` raises ApiError, or returns what the call does; a repeat
        does nothing, and a fault may let the operation fail after the call was accepted."""
        scope = f"regions/{mig.spec.region}"
        if (done := self._operations.repeated(scope, request_id)) is not None:
            return done
        act = checked()
        where = {"region": mig.spec.region, "call": verb}
        fault = self.faults.newest(OperationError, self._life.now, **where)
        if fault is not None and verb in CALLS:
            error = CreateFailure(fault.code, fault.message, mig.spec.zones[0])
            return self._record(scope, verb, mig_path(mig), request_id, fault.takes_s, error)
        act()
        return self._record(scope, verb, mig_path(mig), request_id)

    def _record(
        self,
        scope: str,
        verb: str,
        target: str,
        request_id: str | None,
        takes_s: float = 0.0,
        error: CreateFailure | None = None,
    ) -> Operation:
        number = self._life.new_id()
        grouped = "instanceGroupManagers" in target
        operation = Operation(
            id=number,
            name=f"operation-{int(self._life.now * 1000)}-{number:x}",
            type=f"compute.instanceGroupManagers.{verb}" if grouped else verb,
            target=target,
            scope=scope,
            at=self._life.now,
            done_at=self._life.now + takes_s,
            client_operation_id=request_id,
            error=error,
        )
        return self._operations.add(operation)

    # --- calls on instances -----------------------------------------------------------------------

    def delete_instance(
        self, zone: str, name: str, request_id: str | None, now: float
    ) -> Operation:
        """Deletes a VM behind its group's back. A group that repairs makes it anew."""
        scope = f"zones/{zone}"
        if (done := self._operations.repeated(scope, request_id)) is not None:
            return done
        vm = self.vm(zone, name, now)
        takes_s = self.world.physics.delete_s
        self._life.delete(vm, takes_s)
        return self._record(scope, "delete", f"{scope}/instances/{name}", request_id, takes_s)

    def stop_instance(self, zone: str, name: str, request_id: str | None, now: float) -> Operation:
        scope = f"zones/{zone}"
        if (done := self._operations.repeated(scope, request_id)) is not None:
            return done
        vm = self.vm(zone, name, now)
        takes_s = 0.0
        # One that is stopping already goes on as it was told: a deletion must not become a stop.
        if vm.status not in (InstanceStatus.STOPPING, InstanceStatus.TERMINATED):
            takes_s = self.world.physics.delete_s
            self._life.stop(vm, takes_s)
        return self._record(scope, "stop", f"{scope}/instances/{name}", request_id, takes_s)

    def guest_exited(self, vm_id: int, now: float) -> None:
        """The VM shut itself down from inside. Late news of a VM that is gone changes nothing."""
        self._life.catch_up(now)
        vm = self._life.vms.get(vm_id)
        if vm is not None and vm.powered:
            self._life.end(vm, self._life.now)

    # --- faults -----------------------------------------------------------------------------------

    def set_fault(self, fault: Fault, now: float) -> ActiveFault | tuple[str, ...]:
        """Puts a lasting fault in force, or does a momentary one and names what it hit."""
        self._life.catch_up(now)
        match fault:
            case Preempt():
                return self._preempt(fault)
            case Crash():
                return self._crash(fault.vm)
            case Maintain():
                return self._maintain(fault.vm)
            case Clear():
                return self.faults.clear(fault.id, self._life.now)
            case Lasting():
                return self.faults.add(fault, self._life.now)
            case _:
                assert_never(fault)

    def vm_names(self) -> frozenset[str]:
        return frozenset(vm.info.name for vm in self._life.vms.values())

    def api_verdict(self, region: str, now: float) -> ApiVerdict:
        return self.faults.api_verdict(region, self._api_dice, now)

    def _running(self) -> list[PretendVm]:
        return [v for v in self._life.vms.values() if v.status is InstanceStatus.RUNNING]

    def _preempt(self, fault: Preempt) -> tuple[str, ...]:
        on = [v for v in self._running() if not v.preempted]
        if fault.vm is None:
            hit = [v for v in on if v.info.zone == fault.zone and v.info.spot]
        else:
            hit = _named(fault.vm, on, "a VM that is RUNNING")
            _named(fault.vm, [v for v in on if v.info.spot], "a spot VM")
        for vm in hit:
            self._life.preempt(vm, self.world.physics.spot_notice_s)
        return tuple(vm.info.name for vm in hit)

    def _maintain(self, name: str) -> tuple[str, ...]:
        physics = self.world.physics
        for vm in _named(name, self._running(), "a VM that is RUNNING"):
            self._life.maintain(vm, physics.maintenance_notice_s, physics.delete_s)
        return (name,)

    def _crash(self, name: str) -> tuple[str, ...]:
        on = [v for v in self._life.vms.values() if v.powered]
        for vm in _named(name, on, "a VM with power"):
            self._life.end(vm, self._life.now)
        return (name,)


def _zone_and_name(index: int, url: str, mig: Mig) -> tuple[str, str]:
    match = re.search(r"(?:^|/)zones/([^/]+)/instances/([^/]+)$", url)
    if match is None:
        raise invalid(f"instances[{index}]", url, "a URL zones/ZONE/instances/NAME")
    zone, name = match[1], match[2]
    if region_of(zone) != mig.spec.region:
        raise invalid(f"instances[{index}]", url, f"a zone of {mig.spec.region}")
    return zone, name


def _named(name: str, vms: Sequence[PretendVm], expected: str) -> list[PretendVm]:
    """Those of that name; InvalidInput if there is none."""
    hit = [vm for vm in vms if vm.info.name == name]
    if not hit:
        near = nearest(name, (vm.info.name for vm in vms))
        raise InvalidInput("fault", [f"vm: expected {expected} ({near}), got {name!r}"])
    return hit
