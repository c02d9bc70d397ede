"""`core.ports.Compute` over the pretend cloud's physics, in virtual time. Errors come in the words
that the Google adapter would use for them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import assert_never

from core.capacity import AttemptError, Create, Delete, Member, MigSnapshot
from core.errors import CloudBusy, CloudRefused, CloudUnsure, Forbidden, MigMissing, ZenError
from sim.faults import Fault
from sim.model import ApiError, Effect, Mig, PowerOff, PowerOn, PreemptNotice, Trouble, VmInfo
from sim.model import Member as GroupMember
from sim.physics import Cloud
from sim.virtual.loop import EPOCH, VirtualLoop
from sim.virtual.trace import Trace
from sim.world import World

LATE_MAX_S = 20.0
CALL_S = 20.0


class Machines:
    """What happens to machines; the VMs' side gives the three answers."""

    def __init__(self) -> None:
        self.power_on: Callable[[VmInfo], None] = lambda _: None
        self.power_off: Callable[[VmInfo], None] = lambda _: None
        self.notice: Callable[[VmInfo], None] = lambda _: None


class CloudInTime:
    """The physics, moved by the loop's own timers."""

    def __init__(self, loop: VirtualLoop, world: World) -> None:
        self.cloud = Cloud(world, loop.time())
        self.machines = Machines()
        self.forbidden: set[str] = set()
        """Regions whose calls are refused for lack of permission."""
        self._loop = loop
        self._set_for: float | None = None

    def settle(self) -> None:
        """Do what is due, and come again when the next thing is."""
        for effect in self.cloud.advance(self._loop.time()):
            self._apply(effect)
        due = self.cloud.next_event_at()
        if due is None or (self._set_for is not None and self._set_for <= due):
            return
        self._set_for = due
        self._loop.later(max(0.0, due - self._loop.time()), self._woken, due)

    def _woken(self, due: float) -> None:
        if self._set_for == due:
            self._set_for = None
        self.settle()

    def _apply(self, effect: Effect) -> None:
        match effect:
            case PowerOn(vm):
                self.machines.power_on(vm)
            case PowerOff(vm):
                self.machines.power_off(vm)
            case PreemptNotice(vm):
                self.machines.notice(vm)
            case _:
                assert_never(effect)

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
        self.on_create: Callable[[str, Create], None] = lambda _mig, _action: None
        self.on_delete: Callable[[str, Delete], None] = lambda _mig, _action: None
        self._world, self._loop, self._dice, self._trace = world, loop, dice, trace

    async def observe(self, mig: str, cluster: str, region: str) -> MigSnapshot:
        asked_at = EPOCH + timedelta(seconds=self._loop.time())
        await self._pass_gate(region, write=False)
        try:
            group = self._world.cloud.mig(region, mig, self._loop.time())
        except ApiError as error:
            raise _translate(error) from error
        finally:
            self._world.settle()
        shown = MigSnapshot(
            mig=mig,
            cluster=cluster,
            region=region,
            target_size=group.target_size,
            stable=group.is_stable,
            members=tuple(_member(member) for member in group.members.values()),
            observed_at=asked_at,
            faults=_group_faults(group),
        )
        # The answer travels too: what it shows is already old when it is read.
        await asyncio.sleep(self._dice.uniform(0.02, 0.2))
        return shown

    async def create(self, mig: str, action: Create) -> None:
        def effect() -> None:
            self._world.cloud.create_instances(
                action.region, mig, action.names, action.request_id, self._loop.time()
            )
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
                self._world.cloud.delete_instances(
                    action.region, mig, urls, True, action.request_id, now
                )

        await self._write(action.region, effect)

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
            finally:
                self._world.settle()
        if lost:
            await asyncio.sleep(CALL_S)
            raise CloudUnsure("no answer, it may have taken effect")

    def _late(self, effect: Callable[[], None]) -> None:
        """The request arrives after its caller gave up; nobody hears of a refusal."""
        try:
            effect()
        except ApiError as error:
            self._trace.note("cloud", f"late call refused: {error}")
        self._world.settle()


def _translate(error: ApiError) -> ZenError:
    text = str(error)
    if error.status in (401, 403):
        return Forbidden(text)
    if error.status == 404:
        return MigMissing(text)
    return CloudRefused(text)


def _member(member: GroupMember) -> Member:
    vm = member.vm
    return Member(
        name=member.name,
        zone=member.zone,
        action=member.action.value,
        status=vm.status.value if vm is not None else "",
        instance_id=str(vm.info.id) if vm is not None else "",
        errors=(_error(member.trouble),) if member.trouble is not None else (),
    )


def _error(trouble: Trouble) -> AttemptError:
    zones = dict(trouble.metadatas).get("zonesAvailable", "")
    return AttemptError(
        code=trouble.code,
        message=trouble.message,
        reason=trouble.reason,
        zones_available=tuple(zone for zone in zones.split(",") if zone),
    )


def _group_faults(group: Mig) -> tuple[str, ...]:
    action = group.spec.default_action_on_failure
    if action == "DO_NOTHING":
        return ()
    return (f"{group.spec.name}: defaultActionOnFailure is {action}, expected DO_NOTHING",)
