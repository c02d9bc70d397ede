"""The replay: a heap of events, the recorded supply, and one policy that decides.

It steps on events only. The policy is called once for each moment at which it hears news or has
asked to be called; nothing it sees depends on anything but the inputs and the seed.
"""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol

from sim.replay.figures import Account, ReplayFigures
from sim.replay.physics import News, ReplayJob, ReplayPhysics, ReplayVm
from sim.replay.supply import Supply
from sim.replay.workload import Workload

# Nothing recorded lasts this long after the last submission: a policy that starves a job is caught.
WAIT_MAX_S = 120 * 86_400.0


class VmPolicy(Protocol):
    """Where to ask for VMs, what runs on them, and when to give them back."""

    hears_supply: bool
    """Whether changes of the supply are news: only for those who are allowed to know."""
    heeds_notices: bool
    """Whether a job is told to save when its VM is about to be taken."""

    def step(self, cloud: ReplayCloud, news: Sequence[News]) -> float | None:
        """Decide; returns when to be called again if nothing happens before."""
        ...


class ReplayStuck(AssertionError):
    """The policy left jobs behind: nothing will ever happen again, or not in time."""


class ReplayCloud:
    """The replayed cloud as a policy sees it: create, delete, start; and the replay's own part."""

    def __init__(
        self, supply: Supply, physics: ReplayPhysics, *, seed: int, offset_s: float = 0.0
    ) -> None:
        self.zones = supply.zones
        self.physics = physics
        self.now = 0.0
        self.account = Account(tuple(zone.usd_per_hour for zone in supply.zones), physics)
        self._period_s = supply.period_s
        self._offset_s = offset_s % supply.period_s
        self._dice = random.Random(seed)
        self._heap: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._pushed = 0
        self._news: list[News] = []
        self._held: list[list[ReplayVm]] = [[] for _ in supply.zones]
        """Machines that a zone has given, in the order in which it gave them."""
        self._counts = [zone.count_at(self._offset_s) for zone in supply.zones]
        self._named = 0
        self.left = 0
        """Jobs that are not done."""
        self.hears_supply = False
        self.heeds_notices = False

    # --- what a policy may do ------------------------------------------------------------

    def create(self, zone: int) -> ReplayVm:
        """Ask a zone for one VM. It is there, refused again and again, or deleted."""
        self._named += 1
        machine = ReplayVm(f"vm{self._named:06d}", zone, self.now)
        self.account.asked(machine, self.now)
        self._try(machine)
        return machine

    def delete(self, machine: ReplayVm) -> None:
        """Give it back: free of charge before it is RUNNING. It must not be working."""
        assert machine.job is None, f"{machine.name} works: it cannot be deleted"
        if machine.gone_at is None:
            self.account.deleted(machine, self.now)
            self._end(machine)

    def start(self, job: ReplayJob, machine: ReplayVm) -> None:
        """Let the job run on a READY machine."""
        assert machine.idle, f"{machine.name} cannot take a job"
        machine.job, machine.ran = job, True
        job.started_at = self.now
        job.starts += 1
        if job.first_start is None:
            job.first_start = self.now
        self._push(self.now + job.left_s, self._finish, machine, job, machine.attempt)

    def free(self, zone: int) -> int:
        """How many more the zone would give now: for those who are allowed to know."""
        return self._counts[zone] - len(self._held[zone])

    # --- the replay ----------------------------------------------------------------------

    def play(self, work: Workload, policy: VmPolicy) -> ReplayFigures:
        """Until every job is done and every VM that the policy gives back is gone."""
        jobs = [ReplayJob(i, job.submit_s, job.duration_s) for i, job in enumerate(work.jobs)]
        self.left = len(jobs)
        self.hears_supply = policy.hears_supply
        self.heeds_notices = policy.heeds_notices
        for job in jobs:
            self._push(job.submit_s, self._arrive, job)
        for zone in range(len(self.zones)):
            self._next_change(zone)
        limit = jobs[-1].submit_s + WAIT_MAX_S
        look: float | None = None
        while self.left:
            at = self._heap[0][0] if self._heap else math.inf
            at = min(at, look if look is not None else math.inf)
            if at > limit:
                raise ReplayStuck(
                    f"{self.left} of {len(jobs)} jobs were left behind at {self.now:.0f} s"
                )
            self.now = at
            while self._heap and self._heap[0][0] <= at:
                _, _, happen, arguments = heapq.heappop(self._heap)
                happen(*arguments)
            due = look is not None and look <= at
            if self._news or due:
                news, self._news = self._news, []
                look = policy.step(self, news)
                assert look is None or look > at, "a policy may not ask to be called at once"
        return self._settle(jobs)

    def _settle(self, jobs: list[ReplayJob]) -> ReplayFigures:
        """The last job is done: what is left is given back at once, at this moment's bill."""
        for machine in list(self.account.alive.values()):
            self.account.deleted(machine, self.now)
            self._end(machine)
        return self.account.figures(jobs, self.now)

    def _push(self, at: float, happen: Callable[..., None], *arguments: object) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (at, self._pushed, happen, arguments))

    def _tell_later(self, news: News) -> None:
        """The cloud is polled: the next poll sees it."""
        pace = self.physics.observe_s
        self._push(math.ceil(self.now / pace) * pace, self._news.append, news)

    def _arrive(self, job: ReplayJob) -> None:
        self._news.append(News("arrived", job=job))

    # --- a VM's life ---------------------------------------------------------------------

    def _try(self, machine: ReplayVm) -> None:
        machine.attempt += 1
        held = self._held[machine.zone]
        normal = self._dice.gauss(0.0, 1.0)
        if len(held) < self._counts[machine.zone]:
            machine.granted = True
            held.append(machine)
            at = self.now + self.physics.granted.at(normal)
            self._push(at, self._run, machine, machine.attempt)
        else:
            at = self.now + self.physics.refused.at(normal)
            self._push(at, self._refuse, machine, machine.attempt)

    def _refuse(self, machine: ReplayVm, attempt: int) -> None:
        if attempt != machine.attempt:
            return
        machine.refusals += 1
        self.account.refused += 1
        self._tell_later(News("refused", machine.zone, machine))
        self._try(machine)

    def _run(self, machine: ReplayVm, attempt: int) -> None:
        if attempt != machine.attempt:
            return
        machine.running_at = self.now
        self._tell_later(News("running", machine.zone, machine))
        self._push(self.now + self.physics.boot_s, self._ready, machine, attempt)
        if self.physics.preemption == "lifetimes":
            life_s = self._dice.choice(self.physics.lifetimes_s)
            if math.isfinite(life_s):
                told_s = max(0.0, life_s - self.physics.notice_s)
                self._push(self.now + told_s, self._warn, machine, attempt)

    def _ready(self, machine: ReplayVm, attempt: int) -> None:
        if attempt == machine.attempt:
            machine.ready_at = self.now
            self._news.append(News("ready", machine.zone, machine))

    def _finish(self, machine: ReplayVm, job: ReplayJob, attempt: int) -> None:
        if attempt != machine.attempt:
            return
        machine.useful_s += self.now - job.started_at
        machine.job = None
        job.left_s = 0.0
        job.done_at = self.now
        self.left -= 1
        self._news.append(News("done", machine.zone, machine, job))

    def _warn(self, machine: ReplayVm, attempt: int) -> None:
        """The notice: the zone has no room for it any more, and takes it back in half a minute. A
        job that is told saves, and is then free to go on elsewhere; a worker that waits for work
        leaves at once. Others, and VMs that boot, stay until the end."""
        if attempt != machine.attempt or machine.gone_at is not None:
            return
        if machine.granted:
            machine.granted = False
            self._held[machine.zone].remove(machine)
        stays_s = self.physics.notice_s
        if self.heeds_notices and machine.ready_at is not None:
            machine.attempt += 1  # the job does not come to its end any more
            machine.told_at = self.now
            stays_s = 0.0 if machine.job is None else min(stays_s, self.physics.save_s)
        self._push(self.now + stays_s, self._take, machine, machine.attempt)

    def _take(self, machine: ReplayVm, attempt: int) -> None:
        """The cloud has reclaimed it. Its job goes on from what it saved."""
        if attempt != machine.attempt or machine.gone_at is not None:
            return
        job = machine.job
        if job is not None:
            saved = self._saved_s(machine, job)
            machine.useful_s += saved
            machine.lost_s += self.now - job.started_at - saved
            job.left_s -= saved
            machine.job = None
        self.account.taken += 1
        self._end(machine)
        self._news.append(News("taken", machine.zone, machine, job))

    def _saved_s(self, machine: ReplayVm, job: ReplayJob) -> float:
        """All until the job was told, or until its last checkpoint."""
        if machine.told_at is not None:
            return machine.told_at - job.started_at
        pace = self.physics.checkpoint_s
        return math.floor((self.now - job.started_at) / pace) * pace

    def _end(self, machine: ReplayVm) -> None:
        machine.attempt += 1
        machine.gone_at = self.now
        if machine.granted:
            self._held[machine.zone].remove(machine)
        self.account.ended(machine, self.now)
        self._tell_later(News("gone", machine.zone, machine))

    # --- the supply ----------------------------------------------------------------------

    def _next_change(self, zone: int) -> None:
        """The moment at which the count of a zone changes next; the series repeats for ever."""
        times = self.zones[zone].times
        position = (self.now + self._offset_s) % self._period_s
        place = bisect_right(times, position + 1e-6)
        later = times[place] if place < len(times) else self._period_s
        at = self.now + later - position
        self._push(at, self._change, zone)

    def _change(self, zone: int) -> None:
        position = (self.now + self._offset_s) % self._period_s
        self._counts[zone] = self.zones[zone].count_at(position + 1e-6)
        if self.physics.preemption == "counts":
            self._take_back(zone)
        if self.hears_supply:
            self._news.append(News("supply", zone))
        self._next_change(zone)

    def _take_back(self, zone: int) -> None:
        running = [m for m in self._held[zone] if m.running_at is not None]
        surplus = len(self._held[zone]) - self._counts[zone]
        for machine in self._dice.sample(running, max(0, min(surplus, len(running)))):
            self._warn(machine, machine.attempt)
