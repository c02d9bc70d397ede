"""When running jobs last saved their work, as far as this leader has heard. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from core.changes import JobProgress
from core.job import Job


class Checkpoints:
    """Kept from turn to turn. A new leader knows of none until they are reported again: a job then
    counts as having saved nothing in this attempt, which protects it."""

    def __init__(self) -> None:
        self._saved: dict[str, tuple[int, float, datetime]] = {}
        """Job → attempt, the step that is saved, since when."""

    def hear(self, said: Iterable[JobProgress]) -> None:
        """The first word of a step is when it was saved: later beats only repeat it."""
        for news in said:
            if news.checkpoint_step is None:
                continue
            attempt, step, _ = self._saved.get(news.uid, (-1, -1.0, news.at))
            if news.attempt > attempt or (news.attempt == attempt and news.checkpoint_step > step):
                self._saved[news.uid] = (news.attempt, news.checkpoint_step, news.at)

    def forget(self, moves: Iterable[tuple[Job, Job]]) -> None:
        """Whoever has no VM any more needs no entry."""
        for _, after in moves:
            if after.lease is None:
                self._saved.pop(after.uid, None)

    def saved_at(self, job: Job) -> datetime | None:
        """In its present attempt; None: not that anybody knows."""
        attempt, _, at = self._saved.get(job.uid, (-1, 0.0, job.submitted_at))
        return at if attempt == job.attempt else None
