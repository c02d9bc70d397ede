"""Policies to compare with, each a small model of what people use instead of this service."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from sim.replay.engine import ReplayCloud
from sim.replay.physics import News, ReplayJob, ReplayVm
from sim.replay.supply import region_of

LOOP_S = 30.0
"""How often the autoscaler of every region sets its target. With this the rival's waits, relative
to the others', are the ones that a study of the same traces found; at once it would be faster."""
RETRY_S = 60.0
"""After every place has refused: how long a launch waits before it begins anew."""


class ScaleEveryRegion:
    """Each region's target grows by the number of waiting jobs, up to a limit that counts in each
    region alone. A VM that finds no job is deleted, and so is one that has run its job,
    unless `reuse` lets it look for the next one. Targets are set every `loop_s`; 0: at once."""

    hears_supply = False
    heeds_notices = False

    def __init__(self, vm_max: int, *, reuse: bool = False, loop_s: float = LOOP_S) -> None:
        self._vm_max = vm_max
        self._loop_s = loop_s
        self._reuse = reuse
        self._waiting: deque[ReplayJob] = deque()
        self._coming: dict[int, dict[str, ReplayVm]] = {}
        self._here: dict[int, int] = {}
        self._next = 0.0

    def step(self, cloud: ReplayCloud, news: Sequence[News]) -> float | None:
        for item in news:
            self._hear(cloud, item)
        if self._loop_s == 0 or cloud.now >= self._next:
            for zone in range(len(cloud.zones)):
                self._aim(cloud, zone)
            self._next = (cloud.now // self._loop_s + 1) * self._loop_s if self._loop_s else 0.0
        busy = self._waiting or any(self._coming.values())
        return self._next if busy and self._loop_s else None

    def _hear(self, cloud: ReplayCloud, item: News) -> None:
        machine, job = item.machine, item.job
        if item.kind == "arrived" and job is not None:
            if not self._waiting and self._loop_s:
                self._next = math.ceil(cloud.now / self._loop_s) * self._loop_s
            self._waiting.append(job)
        elif item.kind == "ready" and machine is not None:
            self._coming[item.zone].pop(machine.name, None)
            self._work(cloud, machine)
        elif item.kind == "done" and machine is not None:
            self._work(cloud, machine, look=self._reuse)
        elif item.kind == "taken" and machine is not None:
            self._coming[item.zone].pop(machine.name, None)
            self._here[item.zone] -= 1
            if job is not None:
                self._waiting.appendleft(job)

    def _work(self, cloud: ReplayCloud, machine: ReplayVm, *, look: bool = True) -> None:
        if machine.gone_at is not None:
            return
        if look and self._waiting:
            cloud.start(self._waiting.popleft(), machine)
        else:
            cloud.delete(machine)
            self._here[machine.zone] -= 1

    def _aim(self, cloud: ReplayCloud, zone: int) -> None:
        """In flight: as many as jobs wait. Lowered before RUNNING costs nothing."""
        coming = self._coming.setdefault(zone, {})
        here = self._here.get(zone, 0)
        aim = min(len(self._waiting), self._vm_max - (here - len(coming)))
        while len(coming) < aim:
            machine = cloud.create(zone)
            coming[machine.name] = machine
            here += 1
        for name in list(reversed(coming)):
            if len(coming) <= aim:
                break
            if coming[name].running_at is None:
                cloud.delete(coming.pop(name))
                here -= 1
        self._here[zone] = here


class Failover:
    """One VM per job: the cheapest place first, then the next one after each refusal. What a
    launch has learned is forgotten with it."""

    hears_supply = False
    heeds_notices = False

    def __init__(self, cloud: ReplayCloud, vm_max: int, zones: Sequence[int] | None = None) -> None:
        places = range(len(cloud.zones)) if zones is None else zones
        self._order = sorted(places, key=lambda z: (cloud.zones[z].usd_per_hour, z))
        self._vm_max = vm_max
        self._queue: deque[ReplayJob] = deque()
        self._launches: dict[str, tuple[ReplayJob, int]] = {}
        self._again: list[tuple[float, ReplayJob]] = []
        self._vms = 0

    def step(self, cloud: ReplayCloud, news: Sequence[News]) -> float | None:
        now = cloud.now
        for item in news:
            self._hear(cloud, now, item)
        due = [job for at, job in self._again if at <= now]
        self._again = [(at, job) for at, job in self._again if at > now]
        self._queue.extend(due)
        while self._queue and self._vms < self._vm_max:
            self._launch(cloud, self._queue.popleft(), 0)
        return min((at for at, _ in self._again), default=None)

    def _launch(self, cloud: ReplayCloud, job: ReplayJob, rank: int) -> None:
        machine = cloud.create(self._order[rank])
        self._launches[machine.name] = (job, rank)
        self._vms += 1

    def _drop(self, cloud: ReplayCloud, machine: ReplayVm) -> None:
        cloud.delete(machine)
        self._vms -= 1

    def _hear(self, cloud: ReplayCloud, now: float, item: News) -> None:
        machine, job = item.machine, item.job
        if item.kind == "arrived" and job is not None:
            self._queue.append(job)
        elif machine is None:
            return
        elif item.kind == "refused" and machine.name in self._launches:
            launched, rank = self._launches.pop(machine.name)
            self._drop(cloud, machine)
            if rank + 1 < len(self._order):
                self._launch(cloud, launched, rank + 1)
            else:
                self._again.append((now + RETRY_S, launched))
        elif item.kind == "ready" and machine.gone_at is None:
            launched, _ = self._launches.pop(machine.name)
            cloud.start(launched, machine)
        elif item.kind == "done":
            self._drop(cloud, machine)
        elif item.kind == "taken":
            self._vms -= 1
            pair = self._launches.pop(machine.name, None)
            back = job or (pair[0] if pair else None)
            if back is not None:
                self._queue.append(back)


def single_region(cloud: ReplayCloud, vm_max: int) -> Failover:
    """Failover among the zones of one region: the one that gives most over time."""
    gives: dict[str, float] = {}
    for zone in cloud.zones:
        region = region_of(zone.name)
        gives[region] = gives.get(region, 0.0) + zone.mean
    best = max(sorted(gives), key=lambda region: gives[region])
    inside = [i for i, zone in enumerate(cloud.zones) if region_of(zone.name) == best]
    return Failover(cloud, vm_max, inside)


class CountOracle:
    """Knows how many each zone can give now; the cheapest one, and a cold VM for each job."""

    hears_supply = True

    def __init__(self, cloud: ReplayCloud, vm_max: int, *, heeds_notices: bool = False) -> None:
        self.heeds_notices = heeds_notices
        self._order = sorted(
            range(len(cloud.zones)), key=lambda z: (cloud.zones[z].usd_per_hour, z)
        )
        self._vm_max = vm_max
        self._waiting: deque[ReplayJob] = deque()
        self._meant: dict[str, ReplayJob] = {}
        self._vms = 0

    def step(self, cloud: ReplayCloud, news: Sequence[News]) -> float | None:
        for item in news:
            self._hear(cloud, item)
        for zone in self._order:
            while self._waiting and self._vms < self._vm_max and cloud.free(zone) > 0:
                machine = cloud.create(zone)
                self._meant[machine.name] = self._waiting.popleft()
                self._vms += 1
        return None

    def _hear(self, cloud: ReplayCloud, item: News) -> None:
        machine, job = item.machine, item.job
        if item.kind == "arrived" and job is not None:
            self._waiting.append(job)
        elif item.kind == "ready" and machine is not None and machine.gone_at is None:
            cloud.start(self._meant.pop(machine.name), machine)
        elif item.kind == "done" and machine is not None:
            cloud.delete(machine)
            self._vms -= 1
        elif item.kind == "taken" and machine is not None:
            self._vms -= 1
            back = job or self._meant.pop(machine.name, None)
            if back is not None:
                self._waiting.append(back)
