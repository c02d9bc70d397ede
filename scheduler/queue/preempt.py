"""Who yields so that a waiting job can start: a trial, and evictions only if it succeeds. Pure.

The same rule serves every kind of room: whoever asks says what "it fits" means, whether GPUs of one
pool or whole VMs of a region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

LEAST_RUN_S = 600.0
"""Nobody is evicted sooner: two jobs must not take turns in starting."""


@dataclass(frozen=True, slots=True)
class Runs:
    """A running job, as far as an eviction is concerned."""

    uid: str
    gpus: int
    due_s: float
    """Its place in the queue if it waited now; the later, the more readily it yields."""
    ran_s: float
    """Since it was placed."""
    unsaved_s: float
    """Since its last checkpoint: lost with an eviction."""
    may_yield: bool = True
    """Its tenant and its owner allow it."""

    @property
    def loses_gpu_s(self) -> float:
        return self.gpus * self.unsaved_s


@dataclass(frozen=True, slots=True)
class Wants:
    """A waiting job that does not fit."""

    uid: str
    gpus: int
    due_s: float
    may_preempt: bool = True


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of asking. No victims: nobody is touched, and `why` says what stands in the way."""

    victims: tuple[Runs, ...]
    why: str

    @property
    def freed(self) -> int:
        return sum(job.gpus for job in self.victims)

    @property
    def lost_gpu_s(self) -> float:
        return sum(job.loses_gpu_s for job in self.victims)


Fits = Callable[[Sequence[Runs]], bool]
"""Would the waiting job start if these were gone?"""


def trial(
    wants: Wants, running: Iterable[Runs], fits: Fits, *, least_run_s: float = LEAST_RUN_S
) -> Trial:
    """The victims that lose the fewest GPU-seconds, or none. Greedy: the cheapest are taken until
    the job fits, then whoever proves unneeded is let go, the dearest first. An exact choice would
    be a knapsack for each waiting job of each turn."""
    if not wants.may_preempt:
        return Trial((), "its tenant may not preempt")
    yielding = [
        job
        for job in running
        if job.may_yield and job.due_s > wants.due_s and job.ran_s >= least_run_s
    ]
    if not yielding or not fits(yielding):
        freed = sum(job.gpus for job in yielding)
        return Trial((), f"evicting all that may yield ({freed} GPUs) would not make it fit")
    yielding.sort(key=lambda job: (job.loses_gpu_s, -job.due_s, job.uid))
    taken: list[Runs] = []
    for job in yielding:
        taken.append(job)
        if fits(taken):
            break
    for job in sorted(taken, key=lambda job: (-job.loses_gpu_s, job.due_s, job.uid)):
        fewer = [other for other in taken if other is not job]
        if fits(fewer):
            taken = fewer
    victims = tuple(sorted(taken, key=lambda job: job.uid))
    return Trial(victims, f"{len(victims)} jobs yield {sum(job.gpus for job in victims)} GPUs")


def receipts(wants: Wants, found: Trial) -> dict[str, str]:
    """The words for both timelines, by the job that gets them."""
    if not found.victims:
        return {}
    words = {
        job.uid: f"yields {job.gpus} GPUs to {wants.uid}, which was due first; "
        f"{job.unsaved_s:.0f} s since its last checkpoint are lost"
        for job in found.victims
    }
    names = ", ".join(map(itemgetter(0), sorted(words.items())))
    words[wants.uid] = (
        f"starts on GPUs of {names}; {found.lost_gpu_s:.0f} GPU-seconds of their work are lost"
    )
    return words
