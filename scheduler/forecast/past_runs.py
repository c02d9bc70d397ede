"""How long jobs have run: a book of past runs that each replica reads from the store at its own
pace. At submission it says how long a job is expected to run, in a cycle who may pass whom."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from core.job import Job
from core.job_fields import JobSpec
from core.ports import Clock, Store
from scheduler.forecast.run_times import Book, Guess, expected_s, kind_of, kind_of_run

EVERY_S = 15.0
DAYS = 30.0
"""Older runs are not read: people change their programs."""
READ_MAX = 5_000
"""Ends that are looked at in one reading."""
OVERLAP = timedelta(seconds=30)
"""An end is written a moment after its time: what was read lately is read once more."""


class Runtimes:
    """Empty at first; each reading adds what has ended since the one before."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._book = Book()
        self._newest: datetime | None = None
        self._lately: dict[str, datetime] = {}

    def guess(self, job: Job) -> Guess:
        """How long such a job runs. Costs a look-up: it may be asked in a cycle."""
        return self._book.guess(kind_of(job.spec, job.cluster))

    def expected_s(self, spec: JobSpec, cluster: str) -> float | None:
        """The middle of what its like ran for; None: nothing is known."""
        return expected_s(self._book.guess(kind_of(spec, cluster)), spec)

    async def keep(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(EVERY_S)

    async def refresh(self) -> None:
        oldest = self._clock.now() - timedelta(days=DAYS)
        since = oldest if self._newest is None else self._newest - OVERLAP
        found = await self._store.runs(since, READ_MAX)
        for run in reversed(found):  # the oldest first: the book forgets in this order
            if run.uid not in self._lately:
                self._book.add(kind_of_run(run), run.ran_s)
                self._lately[run.uid] = run.ended_at
        if found:
            newest = found[0].ended_at
            self._newest = newest if self._newest is None else max(newest, self._newest)
            edge = self._newest - 2 * OVERLAP
            self._lately = {uid: at for uid, at in self._lately.items() if at > edge}
