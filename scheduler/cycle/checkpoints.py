"""When running jobs last saved their work, as far as this leader has heard. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from core.changes import JobProgress
from core.job import Job, SavedWork


@dataclass(frozen=True, slots=True)
class _Last:
    """The newest checkpoint of an attempt."""

    attempt: int
    step: float
    at: datetime
    total: float = 0.0
    """How many steps there are; 0: the job did not say."""


class Checkpoints:
    """Kept from cycle to cycle. A new leader knows of none until they are reported again: a job
    then counts as having saved nothing in this attempt, which protects it."""

    def __init__(self) -> None:
        self._saved: dict[str, _Last] = {}

    def hear(self, said: Iterable[JobProgress]) -> None:
        """The first word of a step is when it was saved: later heartbeats only repeat it."""
        for news in said:
            if news.checkpoint_step is None:
                continue
            total = float((news.progress and news.progress.total) or 0.0)
            known = self._saved.get(news.uid) or _Last(-1, -1.0, news.at)
            same = news.attempt == known.attempt
            if news.attempt > known.attempt or (same and news.checkpoint_step > known.step):
                total = total or (known.total if same else 0.0)
                step = float(news.checkpoint_step)
                self._saved[news.uid] = _Last(news.attempt, step, news.at, total)

    def forget(self, moves: Iterable[tuple[Job, Job]]) -> None:
        """A job without a VM needs no entry."""
        for _, after in moves:
            if after.lease is None:
                self._saved.pop(after.uid, None)

    def saved_at(self, job: Job) -> datetime | None:
        """In its present attempt; None: not that anybody knows."""
        known = self._saved.get(job.uid)
        return known.at if known is not None and known.attempt == job.attempt else None

    def saved(self, job: Job) -> SavedWork | None:
        """What the newest checkpoint of its present attempt holds; None: it has none."""
        known = self._saved.get(job.uid)
        if known is None or known.attempt != job.attempt or job.started_at is None:
            return None
        ran_s = max(0.0, (known.at - job.started_at).total_seconds())
        share = min(1.0, known.step / known.total) if known.total > 0 else 0.0
        return SavedWork(ran_s, max(0.0, share))
