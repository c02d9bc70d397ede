"""How many GPUs each elastic job gets of what is spare. Pure.

Each next GPU goes where it shortens the wait for results most: the gain in speed, beside how much
the job still has to do. What is left is not known; a job that has run for long is expected to run
for long, so its attained service stands for it. Greedy to the maximum instead would give everything
to the first that asks.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

SCALING = 0.88
"""Speed grows with GPUs to this power."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """One job that may have between `least` and `most` GPUs; it was written for `usual`."""

    uid: str
    least: int
    usual: int
    most: int
    left_s: float
    """Expected run that remains at its usual size."""
    each: int = 1
    """GPUs that come and go together: those of one member."""


def speed(gpus: int, usual: int) -> float:
    """Beside its usual size."""
    return float((gpus / usual) ** SCALING)


def grow(jobs: Sequence[Stretch], spare: int) -> dict[str, int]:
    """Sizes for jobs that all have their least already; `spare`: GPUs beyond those."""
    sizes = {job.uid: job.least for job in jobs}
    heap = [
        _offer(job, job.least, place) for place, job in enumerate(jobs) if _more(job, job.least)
    ]
    heapq.heapify(heap)
    while heap and spare > 0:
        _, place, step = heapq.heappop(heap)
        job = jobs[place]
        if step > spare:
            continue
        spare -= step
        sizes[job.uid] += step
        if _more(job, sizes[job.uid]):
            heapq.heappush(heap, _offer(job, sizes[job.uid], place))
    return sizes


def _more(job: Stretch, has: int) -> bool:
    return has < job.most


def _offer(job: Stretch, has: int, place: int) -> tuple[float, int, int]:
    """Steps of a quarter of the usual size: single GPUs would be many resizes for little."""
    quarter = job.usual // 4 // job.each * job.each
    step = min(max(job.each, quarter), job.most - has)
    return (-worth(job, has, step), place, step)


def worth(job: Stretch, has: int, step: int) -> float:
    """What `step` more GPUs are worth to a job that has some, for each of them."""
    gain = (speed(has + step, job.usual) - speed(has, job.usual)) / step
    return gain / max(1.0, job.left_s)
