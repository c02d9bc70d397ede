"""What a replay cost and gave: every billed second has one purpose, and they add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.replay.physics import ReplayJob, ReplayPhysics, ReplayVm

HOUR_S = 3600.0
_ROUNDING_S = 1e-3


@dataclass(frozen=True, slots=True)
class ReplayFigures:
    """One replay in numbers."""

    jobs: int
    wait_mean_s: float
    """From the submission to the first start."""
    wait_p50_s: float
    wait_p95_s: float
    useful_h: float
    lost_h: float
    """Worked, but lost with the VM before a checkpoint."""
    idle_h: float
    """Boot, waiting for work and the shortest bill, of VMs that did run a job."""
    never_ran_h: float
    """All that was billed for VMs that never ran a job."""
    billed_h: float
    requested_h: float
    """From the create call to the end, of all VMs, granted or not."""
    usd_useful: float
    usd_wasted: float
    inflation: float
    """Time from the submission to the end, over the time that the jobs need; sums over all jobs."""
    starts: int
    """One for each job, and one more for each time its VM was reclaimed."""
    requests: int
    refused: int
    taken: int
    calls: int
    """Creates and deletes; those of one zone at one moment are one call."""
    creates: int
    """Of these calls, the ones that request VMs."""
    polls: int
    """Looks at a zone that holds something of ours, at the observing pace."""
    vms_most: int
    span_h: float


class Account:
    """The books of one replay."""

    def __init__(self, prices: tuple[float, ...], physics: ReplayPhysics) -> None:
        self._prices = prices
        self._least_s = physics.bill_least_s
        self._pace_s = physics.observe_s
        self.alive: dict[str, ReplayVm] = {}
        self.refused = 0
        self.taken = 0
        self._requests = 0
        self._most = 0
        self._calls = {"create": 0, "delete": 0}
        self._last_call: dict[tuple[str, int], float] = {}
        self._in_zone = [0] * len(prices)
        self._busy_since = [0.0] * len(prices)
        self._watched_s = 0.0
        self._useful_s = self._lost_s = self._idle_s = self._never_s = self._billed_s = 0.0
        self._requested_s = self._usd_useful = self._usd = 0.0

    def asked(self, machine: ReplayVm, now: float) -> None:
        self.alive[machine.name] = machine
        self._requests += 1
        self._most = max(self._most, len(self.alive))
        if not self._in_zone[machine.zone]:
            self._busy_since[machine.zone] = now
        self._in_zone[machine.zone] += 1
        self._call("create", machine.zone, now)

    def deleted(self, machine: ReplayVm, now: float) -> None:
        self._call("delete", machine.zone, now)

    def _call(self, kind: str, zone: int, now: float) -> None:
        if self._last_call.get((kind, zone)) != now:
            self._last_call[kind, zone] = now
            self._calls[kind] += 1

    def ended(self, machine: ReplayVm, now: float) -> None:
        """The bill of a VM, split by purpose."""
        del self.alive[machine.name]
        self._in_zone[machine.zone] -= 1
        if not self._in_zone[machine.zone]:
            self._watched_s += now - self._busy_since[machine.zone]
        self._requested_s += now - machine.asked_at
        if machine.running_at is None:
            return
        billed = max(self._least_s, now - machine.running_at)
        self._billed_s += billed
        if machine.ran:
            self._useful_s += machine.useful_s
            self._lost_s += machine.lost_s
            self._idle_s += billed - machine.useful_s - machine.lost_s
            assert billed - machine.useful_s - machine.lost_s > -_ROUNDING_S, machine.name
        else:
            self._never_s += billed
        price = self._prices[machine.zone] / HOUR_S
        self._usd += billed * price
        self._usd_useful += machine.useful_s * price

    def figures(self, jobs: Sequence[ReplayJob], now: float) -> ReplayFigures:
        """The sums, after the two guarantees of every replay were checked."""
        assert all(job.done_at is not None for job in jobs), "all jobs finished"
        parts = self._useful_s + self._lost_s + self._idle_s + self._never_s
        assert abs(self._billed_s - parts) < _ROUNDING_S * max(1, self._requests), "billed = parts"
        needed = sum(job.duration_s for job in jobs)
        assert abs(self._useful_s - needed) < _ROUNDING_S * max(1, len(jobs)), "useful = needed"
        waits = sorted((job.first_start or 0.0) - job.submit_s for job in jobs)
        took = sum((job.done_at or 0.0) - job.submit_s for job in jobs)
        return ReplayFigures(
            jobs=len(jobs),
            wait_mean_s=sum(waits) / len(waits),
            wait_p50_s=share_of(waits, 0.50),
            wait_p95_s=share_of(waits, 0.95),
            useful_h=self._useful_s / HOUR_S,
            lost_h=self._lost_s / HOUR_S,
            idle_h=self._idle_s / HOUR_S,
            never_ran_h=self._never_s / HOUR_S,
            billed_h=self._billed_s / HOUR_S,
            requested_h=self._requested_s / HOUR_S,
            usd_useful=self._usd_useful,
            usd_wasted=self._usd - self._usd_useful,
            inflation=took / needed if needed else 1.0,
            starts=sum(job.starts for job in jobs),
            requests=self._requests,
            refused=self.refused,
            taken=self.taken,
            calls=sum(self._calls.values()),
            creates=self._calls["create"],
            polls=round(self._watched_s / self._pace_s),
            vms_most=self._most,
            span_h=max(now, 1.0) / HOUR_S,
        )


def share_of(ordered: Sequence[float], share: float) -> float:
    """The value below which that share of an ordered list lies, between its neighbours."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
