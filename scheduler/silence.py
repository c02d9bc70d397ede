"""Silence, measured on the bus's own clock.

The leader's canary travels the same road as the heartbeats. As long as it does not come back,
nobody ages: an outage of the bus, a backlog, or our own absence costs running jobs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from core.capacity import Vm, VmState
from core.timers import Timers

MISSED_CANARIES = 3
FLEET_SILENT_SHARE = 0.45
FLEET_SILENT_MIN = 10


class BusClock:
    """`bus_now` is the publish time of the newest canary that came back."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self.bus_now: datetime | None = None
        self._last_back: float | None = None
        self._flowing_since: float | None = None

    def canary_back(self, published: datetime, monotonic: float) -> None:
        """One of our canaries came back."""
        if self._flowing_since is None or not self._flows(monotonic):
            self._flowing_since = monotonic
        self._last_back = monotonic
        if self.bus_now is None or published > self.bus_now:
            self.bus_now = published

    def steady(self, monotonic: float) -> bool:
        """Canaries have flowed without a gap for the settling time: silence means something."""
        if self._flowing_since is None or not self._flows(monotonic):
            return False
        return monotonic - self._flowing_since >= self.timers.settling_s

    def _flows(self, monotonic: float) -> bool:
        gap = self.timers.canary_s * MISSED_CANARIES
        return self._last_back is not None and monotonic - self._last_back <= gap


@dataclass(frozen=True, slots=True)
class Silence:
    """Who is silent, and whether so many are that the bus is the likelier culprit."""

    lost: tuple[Vm, ...]
    frozen_why: str = ""


def find_silent(vms: Iterable[Vm], bus_now: datetime | None, timers: Timers) -> Silence:
    """VMs that have said READY once and then nothing for `lost_after_s`. One that is being
    deleted counts as long as a job hangs on it: its silence is what lets the job go."""
    if bus_now is None:
        return Silence(())
    speaking: Sequence[Vm] = [
        vm
        for vm in vms
        if vm.last_beat_at is not None
        and (
            vm.state in (VmState.READY, VmState.DRAINING)
            or (vm.state is VmState.DELETING and vm.leases and vm.boot_nonce)
        )
    ]
    last = bus_now - timedelta(seconds=timers.lost_after_s)
    lost = tuple(vm for vm in speaking if vm.last_beat_at and vm.last_beat_at < last)
    if len(lost) >= FLEET_SILENT_MIN and len(lost) >= FLEET_SILENT_SHARE * len(speaking):
        why = (
            f"{len(lost)} of {len(speaking)} VMs fell silent at once: "
            "suspecting the bus, nobody is declared lost"
        )
        return Silence((), why)
    return Silence(lost)
