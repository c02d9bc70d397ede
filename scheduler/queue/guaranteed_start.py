"""By when a waiting job starts at the latest. Pure.

Two rules make it a bound. Until a job is due, jobs of its tenant and class that come later may go
first; after that only those pass it that are predicted not to delay it. Predictions fail: a job
that still waits `grace_s` after it was due, and has never run, is *protected*. The protected go
first, in the order in which they came, and nobody passes one who would not surely be gone in time.

So from that moment on only those go before it that waited when it came, at most `ahead` places.
Let no run last longer than `longest_s`, and look at spans of that length. Whatever ran at the
beginning of one has ended at its end; the first of the protected starts within it. If at its end
the next one still finds no room, the jobs that started within it and that one need more than all
places together, and the next one starts in the span that follows: any two spans in a row start
more than `places`. That gives the number of spans until all that are ahead have started.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from core.job import Job


def grace_s(longest_s: float) -> float:
    """For so long after it was due a job is passed by jobs that are predicted to have ended in
    time. Whatever ran when it was due has ended by then: if it still waits, predictions have failed
    it. Sooner, a queue of long runs would be emptied for each of many in turn, and idle
    meanwhile."""
    return longest_s


def spans(ahead: int, places: int, *, shared: bool = False) -> int:
    """After so many longest runs a protected job has started. `shared`: jobs need GPUs of one VM,
    and jobs that fit elsewhere go on meanwhile: one is sure to start in each span."""
    if shared:
        return ahead + 1
    return 2 * (ahead // (places + 1)) + 2 if ahead else 1


def bound_s(
    aging_limit_s: float, longest_s: float, ahead: int, places: int, *, shared: bool = False
) -> float:
    """So long a job waits for its first start at most, if no run lasts longer than `longest_s`.
    `ahead`: places for those of its tenant and class that wait when it comes; `places`: of the
    cluster, or of the pool."""
    return aging_limit_s + grace_s(longest_s) + longest_s * spans(ahead, places, shared=shared)


def protected_at(now: datetime, longest_s: float) -> Callable[[Job], bool]:
    """Whether a job goes first, and is passed by nobody. One that has run had its start."""
    since = now - timedelta(seconds=grace_s(longest_s))
    return lambda job: job.due <= since and job.attained_gpu_s <= 0


def nobody(_: Job) -> bool:
    """Where nobody is protected."""
    return False
