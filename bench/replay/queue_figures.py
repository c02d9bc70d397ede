"""What a replay of the queue gave, in numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.replay.pool import PoolJob

BIG_GPUS = 32
BOUND_S = 600.0
"""Slowdowns of jobs shorter than this are reckoned as if they were this long."""
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """Times in seconds. Wait: all time without work, at first and after each preemption."""

    jobs: int
    completion_mean: float
    completion_p50: float
    completion_p95: float
    wait_mean: float
    wait_p95: float
    wait_max: float
    wait_big: float
    """Mean of jobs with 32 GPUs or more; 0 without any."""
    slowdown: float
    """Mean bounded slowdown: completion over run time (of at least 10 minutes), at least 1."""
    unfairness: float
    """The mean slowdown of the tenant that fares worst, over that of all."""
    utilisation: float
    """Useful GPU-seconds over those of the pool, from the first submission to the last."""
    preemptions: int
    lost_gpu_h: float
    fairness: float = 0.0
    """Finish-time fairness: of the tenant that fares worst, its mean completion over what it would
    be on its own part of the pool."""
    late: int = 0
    """Jobs that waited for their first start longer than the bound they were told."""


def figures_of(
    jobs: Sequence[PoolJob], gpus: int, bounds: Mapping[int, float] | None = None
) -> QueueFigures:
    """`bounds`: which job → the wait that it was told at most; None: nobody was told any."""
    told = bounds or {}
    done = sorted(job.completion_s for job in jobs)
    waits = sorted(job.wait_s for job in jobs)
    slow = [_slowdown(job) for job in jobs]
    big = [job.wait_s for job in jobs if job.gpus >= BIG_GPUS]
    by_tenant: dict[str, list[float]] = {}
    for job, value in zip(jobs, slow, strict=True):
        by_tenant.setdefault(job.tenant, []).append(value)
    span = jobs[-1].submit_s - jobs[0].submit_s
    until = jobs[0].submit_s + span
    useful = sum(job.work_s * job.gpus for job in jobs if job.ended_at <= until)
    return QueueFigures(
        jobs=len(jobs),
        completion_mean=fmean(done),
        completion_p50=_at(done, 0.5),
        completion_p95=_at(done, 0.95),
        wait_mean=fmean(waits),
        wait_p95=_at(waits, 0.95),
        wait_max=waits[-1],
        wait_big=fmean(big) if big else 0.0,
        slowdown=fmean(slow),
        unfairness=max(fmean(values) for values in by_tenant.values()) / fmean(slow),
        utilisation=useful / (gpus * span) if span else 1.0,
        preemptions=sum(job.preemptions for job in jobs),
        lost_gpu_h=sum(job.lost_gpu_s for job in jobs) / HOUR_S,
        late=sum(job.first_at - job.submit_s > told.get(job.index, math.inf) + 1.0 for job in jobs),
    )


def _slowdown(job: PoolJob) -> float:
    return max(1.0, job.completion_s / max(job.work_s, BOUND_S))


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
