"""How much of a job is left to run, and when it must start at the latest. Pure.

The only place that answers this: the reroute to standard VMs, latest starts, price limits,
reservations and ETAs ask here. What is left is what the job stated, or what jobs of its kind ran
for, less what its checkpoints hold; a job that reports its progress shows it better than both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from core.cluster import ClusterSpec
from core.job import Job, SavedWork
from core.supply import CapacityPolicy
from core.timers import Timers

ASSUMED_SHARE = 0.67
"""A job with a deadline of which nothing is known is taken to need this much of the time between
its submission and its deadline. Too little would miss deadlines, all of it would leave no spot."""
OVERRUN_SHARE = 0.1
"""One that has saved more than was assumed is taken to need this much of it again."""
LEAST_S = 60.0
RESERVE_SHARE, RESERVE_MAX_S = 0.25, 7200.0
"""Of the slack that a job has if it never waits, this much is kept: once no more is left, the job
takes any price that it allows."""
MARGIN_SHARE = 0.125
"""Of the reserve: so much before the last moment it leaves for standard VMs."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left of a job's work."""

    run_s: float
    saved_s: float
    """What its checkpoints hold."""
    basis: str
    """Where the number comes from, in words."""


def nothing_predicted(_: Job) -> float | None:
    """Where nobody keeps a record of past runs."""
    return None


def nothing_saved(_: Job) -> SavedWork | None:
    """Where nobody hears of checkpoints."""
    return None


@dataclass(frozen=True, slots=True)
class RunTimes:
    """What is known of run times besides the job itself."""

    longest_s: float = Timers().max_runtime_s
    """The limit of jobs that state none."""
    typical_s: float = 3600.0
    predicted: Callable[[Job], float | None] = nothing_predicted
    """What jobs like it run for, nine of ten times no longer; None: none like it has ended."""
    saved: Callable[[Job], SavedWork | None] = nothing_saved
    """What the present attempt has saved."""

    def left(self, job: Job) -> Remaining:
        """Of a gang: of its first member. The smallest of what is known: to state a run time never
        makes a job look longer than its own progress, or the runs of its like, say."""
        saved = self.saved(job) or SavedWork(0.0)
        saved_s = job.saved_s + saved.ran_s
        known = self._known(job, saved_s, max(job.saved_share, saved.share))
        if known:
            run_s, basis = min(known)
            return Remaining(max(LEAST_S, run_s), saved_s, basis)
        whole_s, basis = self._assumed(job)
        left_s = max(LEAST_S, whole_s - saved_s, OVERRUN_SHARE * saved_s)
        return Remaining(left_s, saved_s, basis)

    def _known(self, job: Job, saved_s: float, share: float) -> list[tuple[float, str]]:
        found: list[tuple[float, str]] = []
        if job.spec.max_runtime_s < self.longest_s:
            found.append((job.spec.max_runtime_s - saved_s, "as it stated"))
        predicted_s = self.predicted(job)
        if predicted_s is not None:
            found.append((predicted_s - saved_s, "as jobs like it ran"))
        if 0.0 < share <= 1.0 and saved_s > 0.0:
            found.append((saved_s * (1.0 - share) / share, "by its own progress"))
        return found

    def _assumed(self, job: Job) -> tuple[float, str]:
        deadline = job.spec.deadline
        if deadline is None:
            return min(self.typical_s, job.spec.max_runtime_s), "as is usual"
        span_s = (deadline - job.submitted_at).total_seconds()
        assumed_s = min(ASSUMED_SHARE * span_s, job.spec.max_runtime_s)
        return assumed_s, "nothing is known: two thirds of the time that it has"


def rest_s(whole_s: float, job: Job) -> float:
    """Of a whole run, what the attempt that comes next has to do."""
    return max(LEAST_S, whole_s - job.saved_s) if job.saved_s > 0 else whole_s


def reserve_s(job: Job, left: Remaining) -> float:
    """Time that is not spent on waiting for a better price."""
    if job.spec.deadline is None:
        return 0.0
    whole_s = left.run_s + left.saved_s
    slack_s = (job.spec.deadline - job.submitted_at).total_seconds() - whole_s
    return min(RESERVE_MAX_S, RESERVE_SHARE * max(0.0, slack_s))


def latest_start(job: Job, left: Remaining, before_s: float = 0.0) -> datetime | None:
    """When it must start to be done in time, `before_s` earlier; None: it has no deadline."""
    if job.spec.deadline is None:
        return None
    return job.spec.deadline - timedelta(seconds=left.run_s + before_s)


@dataclass(frozen=True, slots=True)
class DeadlineSlack:
    """Run times and the price band, as configured and known right now."""

    runs: RunTimes = field(default_factory=RunTimes)
    price_band: float = CapacityPolicy().price_band

    def has_slack(self, job: Job, now: datetime) -> bool:
        """Whether it has a deadline, and time to wait for a better price. Of a gang: of its first
        member."""
        if job.spec.deadline is None:
            return False
        left = self.runs.left(job)
        start_by = latest_start(job, left, reserve_s(job, left))
        return start_by is not None and now < start_by

    def allows(self, job: Job, here: ClusterSpec | None, other: ClusterSpec, now: datetime) -> bool:
        """Whether it may go to the other cluster: not to one that is dearer by more than the price
        band, as long as it has time to wait in its own."""
        if here is None:
            return True
        most = here.cheapest_usd_per_hour * (1.0 + self.price_band)
        return other.cheapest_usd_per_hour <= most or not self.has_slack(job, now)
