"""What a job with a deadline pays while it has time to wait. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from core.cluster import ClusterSpec
from core.job import Job
from core.remaining import RunTimes, latest_start, reserve_s
from core.supply import CapacityPolicy


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
