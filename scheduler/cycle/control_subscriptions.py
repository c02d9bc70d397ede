"""Keeps the control subscriptions of VMs: made for a boot that has proven itself, before the VM can
be given work; taken away when that boot is over."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

import structlog

from core.changes import Snapshot
from core.errors import ZenError
from core.names import Names
from core.ports import Clock, ControlSubscriptions

log = structlog.get_logger("subscriptions")
LOOK_S = 5.0
LIST_S = 600.0
"""How often the bus is asked what is there: for what a leader that died has left behind."""
YOUNG_S = 900.0
"""One that was made so lately may belong to a boot that no snapshot shows yet."""
AT_ONCE = 50
MADE_MAX = 20_000


def ended(before: Collection[str], now: Collection[str]) -> list[str]:
    """Those whose boot was alive when we last looked and is not any more."""
    return sorted(set(before) - set(now))


def left_over(
    listed: Collection[str], suspects: Collection[str], wanted: Collection[str]
) -> tuple[list[str], frozenset[str]]:
    """(To be removed, suspects of the next look): who is not wanted in two looks."""
    stray = frozenset(listed) - frozenset(wanted)
    return sorted(stray & frozenset(suspects)), stray


@dataclass(slots=True)
class KnownSubscription:
    """When it was made or found to be there, and how long that is believed."""

    at: float
    believed_s: float = LOOK_S


class ControlSubscriptionCare:
    """The leader's. `seen` is shown the newest snapshot."""

    def __init__(self, port: ControlSubscriptions, names: Names, clock: Clock) -> None:
        self._port, self._names, self._clock = port, names, clock
        self._made: dict[str, KnownSubscription] = {}
        self._snapshot: Snapshot | None = None
        self._wanted: frozenset[str] = frozenset()
        self._doubted: dict[str, tuple[str, str]] = {}
        self._removing: dict[str, None] = {}
        self._suspects: frozenset[str] = frozenset()
        self._list_at = clock.monotonic()

    async def make(self, vm_name: str, boot_nonce: str) -> None:
        """There when it returns, as far as we know."""
        name, now = self._names.control_subscription(vm_name, boot_nonce), self._clock.monotonic()
        known = self._made.get(name)
        if known is not None and now - known.at < known.believed_s:
            return
        await self._port.make(vm_name, boot_nonce)
        self._removing.pop(name, None)
        self._made.pop(name, None)
        # A worker that idles and has never heard from us doubts for ever: ever more seldom.
        steady = known is not None and now - known.at < 2 * LIST_S
        longer_s = min(2 * known.believed_s, LIST_S) if known is not None and steady else LOOK_S
        self._made[name] = KnownSubscription(now, longer_s)
        if len(self._made) > MADE_MAX:
            del self._made[next(iter(self._made))]

    def doubt(self, vm_name: str, boot_nonce: str) -> None:
        """The worker has heard nothing: its subscription may have been lost."""
        name = self._names.control_subscription(vm_name, boot_nonce)
        known = self._made.get(name)
        if known is None or self._clock.monotonic() - known.at >= known.believed_s:
            self._doubted[name] = (vm_name, boot_nonce)

    def seen(self, snapshot: Snapshot) -> None:
        """What is alive now; it is looked at later."""
        self._snapshot = snapshot

    async def look(self) -> None:
        """Make again what was lost, remove what is over, and now and then what others have left."""
        self._compare()
        for vm_name, boot_nonce in list(self._doubted.values())[:AT_ONCE]:
            await self.make(vm_name, boot_nonce)
            self._doubted.pop(self._names.control_subscription(vm_name, boot_nonce), None)
        now = self._clock.monotonic()
        if self._snapshot is not None and now >= self._list_at:
            self._list_at = now + LIST_S
            await self._list(now)
        for name in list(self._removing)[:AT_ONCE]:
            await self._port.remove(name)
            self._removing.pop(name, None)
            self._made.pop(name, None)

    def _compare(self) -> None:
        if self._snapshot is None:
            return
        wanted = frozenset(
            self._names.control_subscription(vm.name, vm.boot_nonce)
            for vm in self._snapshot.vms
            if vm.boot_nonce and not vm.state.gone
        )
        self._removing |= dict.fromkeys(ended(self._wanted, wanted))
        self._wanted = wanted
        self._doubted = {name: who for name, who in self._doubted.items() if name in wanted}

    async def _list(self, now: float) -> None:
        young = [name for name, made in self._made.items() if now - made.at < YOUNG_S]
        listed = await self._port.all()
        found, self._suspects = left_over(listed, self._suspects, [*self._wanted, *young])
        if found:
            log.info("control subscriptions were left over", count=len(found))
        self._removing |= dict.fromkeys(found)

    async def run(self) -> None:
        """Until cancelled. A bus that is away is told elsewhere."""
        while True:
            try:
                await self.look()
            except ZenError as error:
                log.warning("control subscriptions stay as they are for now", why=str(error))
            await asyncio.sleep(LOOK_S)
