"""Recorded jobs: when each was submitted and how long it ran."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from core.errors import BadInput, Fault
from sim.replay.tables import BadTrace, read_table

_GROUP_COLUMNS = ("cluster", "vc", "tenant")
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job as it was recorded."""

    submit_s: float
    duration_s: float
    gpus: int = 1
    group: str = ""
    """Its cluster, virtual cluster or tenant."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in the order of their submission; the first comes at second 0 after `window()`."""

    source: str
    jobs: tuple[TraceJob, ...]
    notes: tuple[str, ...] = ()
    """What was left out, and why."""

    @property
    def gpu_hours(self) -> float:
        return sum(job.duration_s for job in self.jobs) / 3600

    def of_group(self, group: str) -> Workload:
        """One cluster's, virtual cluster's or tenant's jobs."""
        kept = tuple(job for job in self.jobs if job.group == group)
        if not kept:
            groups = Counter(job.group for job in self.jobs)
            known = ", ".join(f"{name} ({n} jobs)" for name, n in groups.most_common(8))
            raise BadInput([Fault("group", repr(group), f"one of {self.source}: {known}")])
        return replace(self, jobs=kept)

    def one_vm_each(self, gpus: int = 1) -> Workload:
        """Jobs that fit on a VM with that many GPUs; larger ones are left out and counted."""
        kept = tuple(job for job in self.jobs if job.gpus <= gpus)
        left_out = len(self.jobs) - len(kept)
        if not kept:
            raise BadInput([Fault("jobs", "all larger", f"some with at most {gpus} GPUs")])
        words = f"{left_out} of {len(self.jobs)} jobs need more than {gpus} GPU and are left out"
        return replace(self, jobs=kept, notes=(*self.notes, words) if left_out else self.notes)

    def every(self, nth: int) -> Workload:
        """Each nth job: the same pattern at a part of the load."""
        words = f"every {nth}. job" if nth > 1 else ""
        return replace(
            self, jobs=self.jobs[::nth], notes=(*self.notes, words) if words else self.notes
        )

    def latest(self, days: float) -> Workload:
        """What was submitted in the last so many days before the newest job."""
        since = self.jobs[-1].submit_s - days * DAY_S
        kept = [job for job in self.jobs if job.submit_s >= since]
        start = kept[0].submit_s
        moved = tuple(replace(job, submit_s=job.submit_s - start) for job in kept)
        return replace(self, jobs=moved, notes=(*self.notes, f"the last {days:g} days"))

    def window(self, days: float, *, busiest: bool = False) -> Workload:
        """What was submitted within so many days, from the first job or where most were."""
        length = days * DAY_S
        times = [job.submit_s for job in self.jobs]
        first = 0
        if busiest:
            ends = (bisect_left(times, start + length) for start in times)
            first = max(enumerate(ends), key=lambda e: (e[1] - e[0], -e[0]))[0]
        start = times[first]
        kept = self.jobs[first : bisect_left(times, start + length)]
        moved = tuple(replace(job, submit_s=job.submit_s - start) for job in kept)
        words = f"{'the busiest' if busiest else 'the first'} {days:g} days"
        return replace(self, jobs=moved, notes=(*self.notes, words))


def load_jobs(path: Path) -> Workload:
    """submit_s, duration_s and num_gpu, and whom the job belongs to if the file says it."""
    table = read_table(path)
    if not table.has("submit_s", "duration_s"):
        raise BadTrace(
            f"{path}, line 1: expected the columns submit_s and duration_s "
            f"(and num_gpu, {', '.join(_GROUP_COLUMNS)}); got {', '.join(table.columns)}"
        )
    group = next((name for name in _GROUP_COLUMNS if name in table.columns), None)
    counted = "num_gpu" in table.columns
    jobs = [
        TraceJob(
            submit_s=row.number("submit_s", least=0),
            duration_s=row.number("duration_s", least=0),
            gpus=row.whole("num_gpu", least=1) if counted else 1,
            group=row.cell(group) if group else "",
        )
        for row in table.rows
    ]
    jobs.sort(key=lambda job: (job.submit_s, job.duration_s))
    return Workload(path.name, tuple(jobs))
