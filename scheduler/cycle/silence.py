"""Silence, measured on the bus's own clock.

The leader's canary travels the same road as the heartbeats. As long as it does not come back,
nobody ages: an outage of the bus, a backlog, or our own absence costs running jobs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from core.active import ActiveIndex
from core.timers import Timers
from core.vm import Vm

MISSED_CANARIES = 2
"""A gap this long is an outage, and silence must settle anew: what swallowed one canary has also
swallowed the words of workers that had just begun to try again."""
FLEET_SILENT_SHARE = 0.45
FLEET_SILENT_MIN = 10


class BusClock:
    """`bus_now` is the publish time of the newest canary that came back."""

    def __init__(self) -> None:
        self.bus_now: datetime | None = None
        self._last_back: float | None = None
        self._flowing_since: float | None = None

    def canary_back(self, published: datetime, monotonic: float, timers: Timers) -> None:
        """One of our canaries came back."""
        if self._flowing_since is None or not self._flows(monotonic, timers):
            self._flowing_since = monotonic
        self._last_back = monotonic
        if self.bus_now is None or published > self.bus_now:
            self.bus_now = published

    def steady(self, monotonic: float, timers: Timers) -> bool:
        """Canaries have flowed without a gap for the settling time: silence means something."""
        if self._flowing_since is None or not self._flows(monotonic, timers):
            return False
        return monotonic - self._flowing_since >= timers.settling_s

    def _flows(self, monotonic: float, timers: Timers) -> bool:
        gap = timers.canary_s * MISSED_CANARIES
        return self._last_back is not None and monotonic - self._last_back <= gap


@dataclass(frozen=True, slots=True)
class Silence:
    """Who is silent, and whether so many are that the bus is the likelier culprit."""

    lost: tuple[Vm, ...]
    frozen_why: str | None = None
    """Why nobody is declared lost; None: each VM is judged by its own silence."""


def find_silent(
    active: ActiveIndex,
    heartbeats: Mapping[str, datetime],
    bus_now: datetime | None,
    timers: Timers,
) -> Silence:
    """VMs that have said READY once and then nothing for the `lost_after_s` of their kind of
    worker. One that is being deleted counts as long as a job hangs on it: its silence is what lets
    the job go. `heartbeats`: of this cycle, by VM."""
    if bus_now is None:
        return Silence(())
    ours, theirs = (
        bus_now - timedelta(seconds=timers.of_worker(kind).lost_after_s) for kind in ("v2", "v1")
    )
    lost = tuple(
        vm
        for vm in active.quiet(ours)
        if _speaks(vm) and _last_heard(vm, heartbeats) < (theirs if vm.speaks_v1 else ours)
    )
    if len(lost) >= FLEET_SILENT_MIN:
        speaking = sum(map(_speaks, active.vms.values()))
        if len(lost) >= FLEET_SILENT_SHARE * speaking:
            why = (
                f"{len(lost)} of {speaking} VMs fell silent at once: "
                "suspecting the bus, nobody is declared lost"
            )
            return Silence((), why)
    return Silence(lost)


def _last_heard(vm: Vm, heartbeats: Mapping[str, datetime]) -> datetime:
    assert vm.last_beat_at is not None, f"{vm.name} has never spoken"
    return heartbeats.get(vm.uid, vm.last_beat_at)


def _speaks(vm: Vm) -> bool:
    if vm.last_beat_at is None or vm.kept_until is not None:
        return False
    if vm.state.deleting:
        return bool(vm.leases and vm.boot_nonce)
    return vm.state.up
