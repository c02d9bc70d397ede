"""What is reserved for the first gang of a cluster that finds no room, and who may pass it. Pure.

Where each job needs a VM the reservation counts VMs; where VMs are shared it is one VM, the first
that is expected to have enough GPUs free. A job behind it may pass if it is predicted to have ended
by then, or if it leaves enough. One that is protected (scheduler/queue/guaranteed_start.py) is
passed only by jobs that must have ended when others must have, or that use other VMs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from core.cluster import ClusterSpec
from core.job import Job, S
from core.queueing import QueueRule
from core.remaining import rest_s
from core.vm import Vm
from scheduler.forecast.run_times import Guess
from scheduler.placement.simulation import LEAVING, place_without
from scheduler.placement.slots import Room, Slots
from scheduler.plan_builder import PlanBuilder
from scheduler.queue.backfill import Backfill, Reservation, reserve
from scheduler.queue.guaranteed_start import protected_at

Guesses = Callable[[Job], Guess]
SURE = 0.9
"""One that passes must be gone in time nine times of ten."""
LIKELY = 0.5
TOLD_S = 600.0
"""The moment is told in steps of this: a text that changes each cycle would be written each
cycle."""


class ReservedRoom:
    """Made when the first one who could pass asks."""

    def __init__(
        self,
        plan: PlanBuilder,
        spec: ClusterSpec,
        gang: Sequence[Job],
        guess: Guesses,
        ahead: Iterable[str] = (),
        *,
        made: bool = False,
    ) -> None:
        """`ahead`: who has a place before it; `made`: others are being preempted for it."""
        self.gang = gang
        self._plan, self._spec, self._guess = plan, spec, guess
        longest_s = plan.rules.timers.max_runtime_s
        fair = spec.queue is QueueRule.FAIR
        self._protected = fair and protected_at(plan.now, longest_s)(gang[0])
        self._sure = made or self._protected
        """It has waited for too long, or others lose work for it: predictions do not count."""
        self._reserved: Backfill | None = None
        self.vm = ""
        """The VM that is kept for it, where VMs are shared."""
        self._free_to: set[str] = set(ahead)
        """Jobs that may use it: earlier ones, and ones that will have ended in time."""

    def lets(self, gang: Sequence[Job], room: Room, chosen: Iterable[str]) -> bool:
        """Whether a gang that has room may take it. `chosen`: who has a place, and no VM yet."""
        if self._reserved is None:
            self._reserved = Backfill(self._reserve(room, chosen))
        ends_s = max(self._ends_in_s(job) for job in gang)
        if not self._reserved.lets(self._units(gang), ends_s):
            return False
        if ends_s <= self._reserved.held.at_s:
            self._free_to.update(job.uid for job in gang)
        return True

    @property
    def at(self) -> datetime | None:
        """When it is expected to start, as it is told; None: that was not asked, or is not
        known."""
        if self._reserved is None or self._reserved.held.at_s == float("inf"):
            return None
        moment = (self._plan.now + timedelta(seconds=self._reserved.held.at_s)).timestamp()
        return datetime.fromtimestamp(-(-moment // TOLD_S) * TOLD_S, self._plan.now.tzinfo)

    def keeps(self, vm_uid: str, job: Job) -> bool:
        """Whether the VM is not for this job."""
        return vm_uid == self.vm and job.uid not in self._free_to

    def _units(self, gang: Sequence[Job]) -> int:
        return sum(job.spec.slots for job in gang) if self._spec.share else len(gang)

    def _reserve(self, room: Room, chosen: Iterable[str]) -> Reservation:
        if self._spec.share and len(self.gang) == 1:
            return self._reserve_vm(room)
        units, plan = self._units(self.gang), self._plan
        free = room.gpus if self._spec.share else room.gpus // self._spec.slots
        ending = [(self._left_s(j), self._units((j,))) for j in plan.leased_in(self._spec.name)]
        given = (plan.jobs[uid] for uid in chosen)
        ending += [(self._runs_s(job), self._units((job,))) for job in given]
        held = reserve(units, free, ending)
        # What is spare now the next one of the protected may need.
        return replace(held, spare=0) if self._protected and held.at_s < math.inf else held

    def _reserve_vm(self, room: Room) -> Reservation:
        """The VM that will have enough first."""
        need, best = self.gang[0].spec.slots, Reservation(0, float("inf"), room.gpus)
        for vm in self._plan.vms_of(self._spec.name):
            if not Slots.serves(vm, self._spec):
                continue
            jobs, free = self._plan.jobs_on(vm.uid), self._free(vm)
            apart = self._spec.keeps_tenants_apart and any(map(self._is_foreign, jobs))
            if free >= need and not apart:
                continue  # the jobs that go first will take it
            ending = [(self._left_s(j), len(j.lease.slots)) for j in jobs if j.lease is not None]
            # Where another tenant's jobs are, all of them have to go.
            all_of_it = free + sum(slots for _, slots in ending)
            found = reserve(all_of_it if apart else need, free, ending)
            if found.at_s < best.at_s:
                best, self.vm = Reservation(need, found.at_s, max(0, room.gpus - free)), vm.uid
        return best

    def _is_foreign(self, job: Job) -> bool:
        return job.spec.tenant_id != self.gang[0].spec.tenant_id

    def _free(self, vm: Vm) -> int:
        place = place_without(self._plan, self._spec, vm, ())
        return len(place.free) if place is not None else 0

    def _left_s(self, job: Job) -> float:
        """Until it is expected to have gone."""
        now = self._plan.now
        most = (job.deadline_at - now).total_seconds() if job.deadline_at else float("inf")
        if job.status in LEAVING:
            return max(0.0, most)
        if job.status is not S.RUNNING or job.started_at is None:
            return self._runs_s(job)
        if self._sure:
            return max(0.0, most)
        ran_s = job.saved_s + (now - job.started_at).total_seconds()
        return max(0.0, min(most, self._guess(job).left(ran_s, LIKELY)))

    def _runs_s(self, job: Job) -> float:
        return job.spec.max_runtime_s if self._sure else rest_s(self._guess(job).at(LIKELY), job)

    def _ends_in_s(self, job: Job) -> float:
        return job.spec.max_runtime_s if self._sure else ends_in_s(self._guess, job)


def ends_in_s(guess: Guesses, job: Job) -> float:
    """It is gone after this long nine times of ten; without any history, when it must be."""
    known = guess(job)
    longest_s = job.spec.max_runtime_s
    return min(rest_s(known.at(SURE), job), longest_s) if known.known else longest_s
