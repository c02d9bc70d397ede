"""When waiting jobs will start, as the leader last said it; each replica reads it now and then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from core.errors import StoreDown
from core.forecast import Forecast, JobForecast, Record
from core.groups import dependency_words
from core.job import WAITING, Job
from core.ports import Clock
from core.queueing import class_of
from core.reads import JobRow
from scheduler.forecast.queue_simulation import AHEAD_MAX
from scheduler.placement.gang import JOINS_LATER

FRESH_S = 2.0
"""A forecast is made every ten seconds: who asks again at once gets the same."""
PENDING = JobForecast(None, "estimate pending")
"""The next forecast comes within seconds."""


class KnownForecasts:
    """The forecasts of all clusters, at most a moment old."""

    def __init__(self, read: Callable[[], Awaitable[Sequence[Forecast]]], clock: Clock) -> None:
        self._read, self._clock = read, clock
        self._known: Mapping[str, Forecast] = {}
        self._read_at = -FRESH_S

    async def now(self) -> Mapping[str, Forecast]:
        """By cluster; older ones while the database is away."""
        at = self._clock.monotonic()
        if at - self._read_at >= FRESH_S:
            self._read_at = at  # before the wait: others go on with what is known
            try:
                self._known = {forecast.cluster: forecast for forecast in await self._read()}
            except StoreDown:
                return self._known
        return self._known

    async def of(self, rows: Iterable[JobRow]) -> dict[str, tuple[Forecast | None, JobForecast]]:
        """What is said about each of the rows that waits, by uid."""
        waiting = [row for row in rows if row.job.status in WAITING]
        known = await self.now() if waiting else {}
        return {
            row.job.uid: (known.get(row.job.cluster), _said(known.get(row.job.cluster), row))
            for row in waiting
        }

    async def record(self) -> Record:
        """How true they were so far, over all clusters."""
        records = [forecast.record for forecast in (await self.now()).values()]
        return Record(
            sum(record.told for record in records),
            sum(record.p50_held for record in records),
            sum(record.p90_held for record in records),
        )


def _said(forecast: Forecast | None, row: JobRow) -> JobForecast:
    """In words, if there is no moment to tell: the same as why it waits."""
    job = row.job
    if job.parked:
        return _none(JOINS_LATER)
    if job.blocked is not None:
        return _none(dependency_words(job.spec.after))
    if forecast is None:
        return PENDING
    said = forecast.jobs.get(job.gang_uid)
    if said is None and job.queued_since < forecast.computed_at:
        said = _beyond(forecast, job, row)
    if said is None:
        if job.queued_since >= forecast.computed_at:
            return PENDING
        return _none(row.why or f"more than {AHEAD_MAX} jobs are ahead")
    if said.told is None:
        return JobForecast(
            None,
            f"no estimate: {said.based_on or row.why}",
            said.run_p50_s,
            said.run_p90_s,
            said.run_based_on,
        )
    return said


def _beyond(forecast: Forecast, job: Job, row: JobRow) -> JobForecast | None:
    """Of a job that is further back than the simulated ones. If none of its tenant's and class
    was, more time would not bring it."""
    if row.position is None:
        return None
    return forecast.beyond(job.spec.tenant_id, int(class_of(job.spec.priority)), row.position)


def _none(why: str) -> JobForecast:
    return JobForecast(None, f"no estimate: {why}")
