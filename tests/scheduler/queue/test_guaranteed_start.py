"""Nobody waits for its first start longer than it was told at submission, whatever comes later and
however wrong the predictions are: with the real planner."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.job import E, Job, Membership, Rules, S
from core.job_fields import JobSpec
from core.job_steps import advance, new_job
from core.queueing import QueuePolicy, QueueRule, due_at
from core.tenants import Tenant
from core.timers import Timers
from core.vm import drop_lease
from scheduler.queue import guaranteed_start
from scheduler.queue.fair_share import Shares
from scheduler.queue.guaranteed_start import bound_s, spans
from scheduler.queue.order import ranked
from scheduler.submission.tenant_access import told_bound_s
from tests.builders import NOW, at, cluster
from tests.scheduler.preemption.world import World

HOUR = 3600.0
LONGEST_S = 2 * HOUR
RULES = Rules(Timers(max_runtime_s=LONGEST_S), queue=QueuePolicy(patience=0.5, least_run_s=600.0))
VMS = 4


@dataclass(frozen=True)
class Come:
    """A job that comes `after_s` after the one before it."""

    after_s: float
    vms: int
    runs_s: float
    brief: bool
    """It is predicted to run for a minute."""


class Site(World):
    """Four VMs, each for one job. What is placed runs at once, and ends when it says."""

    def __init__(self, preempts: bool) -> None:
        super().__init__(cluster(vm_max=VMS), default=Tenant("default", preemptible=preempts))
        self.rules = RULES
        for number in range(VMS):
            self.vm(f"vm-{number}")
        self.ends: list[tuple[float, str, int]] = []
        """(when, whose first member, of which attempt)"""
        self.runs_s: dict[str, float] = {}
        self.bounds: dict[str, float] = {}
        self.waited: dict[str, float] = {}

    def come(self, name: str, one: Come) -> None:
        waiting = sum(job.status is S.QUEUED for job in self.jobs.values())
        for rank in range(one.vms):
            member = Membership(f"{name}-0", rank, one.vms) if one.vms > 1 else None
            spec = JobSpec(
                f"{name}.{rank}", command=("x",), replicas=one.vms, max_runtime_s=LONGEST_S
            )
            job = new_job(
                f"{name}-{rank}",
                spec,
                "1xl4",
                self.now,
                due=due_at(self.now, spec, 0.0, RULES.queue),
                gang=member,
            )
            self.jobs[job.uid] = job
            if one.brief:
                self.short.add(job.uid)
        first = self.jobs[f"{name}-0"]
        aging_s = (first.due - first.submitted_at).total_seconds()
        told_s = told_bound_s(aging_s, self.spec, LONGEST_S, waiting)
        assert told_s is not None
        self.bounds[first.uid] = told_s
        self.runs_s[first.uid] = one.runs_s

    def settle(self) -> None:
        """Turns until nothing moves."""
        for _ in range(20):
            before = {uid: job.version for uid, job in self.jobs.items()}
            self.cycle(*self.preempted())
            for job in [j for j in self.jobs.values() if j.status is S.ASSIGNED]:
                self._start(job)
            if before == {uid: job.version for uid, job in self.jobs.items()}:
                return

    def _start(self, job: Job) -> None:
        for event in (E.CLAIMED, E.STARTED):
            job = advance(job, event, self.now, RULES)
        self.jobs[job.uid] = job
        if job.gang is None or job.gang.rank == 0:
            left_s = self.runs_s[job.uid] - job.attained_gpu_s
            moment = (self.now - NOW).total_seconds() + max(1.0, left_s)
            heapq.heappush(self.ends, (moment, job.uid, job.attempt))
            self.waited.setdefault(job.uid, (self.now - job.submitted_at).total_seconds())

    def advance_to(self, until_s: float) -> None:
        while self.ends and self.ends[0][0] <= until_s:
            moment, uid, attempt = heapq.heappop(self.ends)
            job = self.jobs.get(uid)  # one that was preempted has an end of an older attempt, too
            if job is not None and job.status is S.RUNNING and job.attempt == attempt:
                self.now = max(self.now, at(moment))
                self._end(job)
                self.settle()
        self.now = max(self.now, at(until_s))

    def _end(self, job: Job) -> None:
        name = job.uid.rpartition("-")[0]
        for uid in [u for u in self.jobs if u.rpartition("-")[0] == name]:
            lease = self.jobs.pop(uid).lease
            assert lease is not None
            vm = self.vms[lease.vm_uid]
            self.vms[vm.uid] = drop_lease(vm, lease.lease_id, self.now)


COMES = st.builds(
    Come,
    after_s=st.floats(0, 2 * HOUR),
    vms=st.sampled_from([1, 1, 1, 2, 4]),
    runs_s=st.sampled_from([60.0, HOUR, LONGEST_S - 1]),
    brief=st.booleans(),
)


@settings(max_examples=15)
@given(st.lists(COMES, min_size=5, max_size=25), st.booleans())
def test_nobody_starts_after_the_bound_it_was_told(comes: list[Come], preempts: bool) -> None:
    """Random jobs and gangs of more than the cluster can take, predictions that are wrong half of
    the time, ends whenever they like: each first start is in time."""
    site, moment = Site(preempts), 0.0
    for number, one in enumerate(comes):
        moment += one.after_s / 4
        site.advance_to(moment)
        site.come(f"job{number:03}", one)
        site.settle()
    site.advance_to(moment + 100 * LONGEST_S)
    assert len(site.waited) == len(comes)
    late = {uid: waited for uid, waited in site.waited.items() if waited > site.bounds[uid]}
    assert not late


def through_a_stream(hours: float) -> Site:
    """Every ten minutes one comes that is said to take one, and takes the longest run; among the
    first of them a gang for the whole cluster."""
    site = Site(preempts=False)
    stream = Come(600.0, 1, LONGEST_S - 1, brief=True)
    for number in range(int(hours * 6)):
        site.advance_to(number * 600.0)
        site.come(f"small{number:04}", stream)
        if number == 5:
            site.come("gang", replace(stream, vms=VMS, brief=False))
        site.settle()
        if "gang-0" in site.waited:
            break
    return site


def test_a_gang_for_the_whole_cluster_is_not_starved_by_a_stream_of_small_jobs() -> None:
    """It starts within what it was told, though each of the others seems to be gone in time."""
    site = through_a_stream(12)
    assert site.waited["gang-0"] <= site.bounds["gang-0"]


def test_without_protection_it_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """That they pass is what predictions allow: nothing else stops them."""
    monkeypatch.setattr(guaranteed_start, "grace_s", lambda _: 1e9)
    assert "gang-0" not in through_a_stream(12).waited


def test_the_bound_in_numbers() -> None:
    """None before it: its aging limit, the longest run until it is protected, and one more. As many
    as there are places: two more; each further filling of them another two."""
    week = 7 * 86400.0
    assert bound_s(18_000.0, week, 0, 8) == 18_000.0 + 2 * week
    assert [spans(ahead, 8) for ahead in (0, 1, 8, 9, 17, 18)] == [1, 2, 2, 4, 4, 6]
    assert spans(5, 8, shared=True) == 6


def test_the_protected_go_in_the_order_in_which_they_came() -> None:
    """A bigger one that came first goes before a small one that was due before it; one that has
    run already is not protected."""
    big = replace(new_job("big", JobSpec("big"), "1xl4", NOW), due_at=at(9 * HOUR))
    small = replace(new_job("small", JobSpec("small"), "1xl4", at(HOUR)), due_at=at(2 * HOUR))
    again = replace(
        new_job("again", JobSpec("again"), "1xl4", NOW - timedelta(hours=1)),
        due_at=at(0),
        attained_gpu_s=600.0,
    )
    shares = Shares({}, {"default": 1.0}, HOUR, 0.1)
    by = guaranteed_start.protected_at(at(12 * HOUR), LONGEST_S)
    order = [job.uid for job in ranked([small, again, big], QueueRule.FAIR, shares, by)]
    assert order == ["big", "small", "again"]
