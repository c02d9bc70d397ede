"""Which jobs are preempted so that a waiting job can start: a simulation, and preemptions only if
it succeeds. Pure.

The same rule serves every kind of room: the caller says what "it fits" means, whether GPUs of one
pool or whole VMs of a region.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

LEAST_RUN_S = 600.0
"""Nobody is preempted sooner: two jobs must not take turns in starting."""
MUCH_MORE = 2.0
"""A tenant that has had so many times as much, even after the exchange, is granted half of the
least run: else small ones beside a whale whose jobs run for hours would wait it out, since what
they leave free it takes at once."""
RUN_ON_MAX_S = 1800.0
"""The protection of one that was preempted often grows no further."""
SAVES_WITHIN_S = 3600.0
"""One that has saved nothing yet is left alone for so long: else it would begin again and again."""
CLAIM_MAX = 10.0
"""However little a tenant has had, it waits for this part of what others lose."""
SPAN_S = 7 * 86400.0
"""Who is due later by less than about this counts as due at the same time: then the loss decides.
By the loss alone jobs are chosen that are next in order, and they preempt others."""
TOO_DEAR = "others would lose more work than it has waited for yet"
RESTART_S = 60.0
"""An preemption costs each GPU this much beside the work that is lost: images, data, warm-up."""


@dataclass(frozen=True, slots=True)
class Runs:
    """A running job (a gang: all of it), as far as a preemption is concerned."""

    uid: str
    gpus: int
    due_s: float
    """Its place in the queue if it waited now; the later, the sooner it is preempted."""
    ran_s: float
    """Since it was placed."""
    unsaved_s: float
    """Since its last checkpoint: lost with a preemption."""
    times_preempted: int = 0
    """How often it was preempted before."""
    tier: int = 1
    """Its priority class."""
    tenant: str = ""
    name: str = ""
    """As people know it."""

    @property
    def loses_gpu_s(self) -> float:
        return self.gpus * self.unsaved_s


@dataclass(frozen=True, slots=True)
class Wants:
    """A waiting job that does not fit."""

    uid: str
    gpus: int
    due_s: float
    waited_s: float = math.inf
    """Since it began to wait."""
    tier: int = 1
    tenant: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class PreemptionResult:
    """What came of asking. No victims: nobody is touched, and `why` says what stands in the way."""

    victims: tuple[Runs, ...]
    why: str
    wait_s: float = math.inf
    """Without victims: when it would be worth it, if nothing else changes."""

    @property
    def freed(self) -> int:
        return sum(job.gpus for job in self.victims)

    @property
    def lost_gpu_s(self) -> float:
        return sum(job.loses_gpu_s for job in self.victims)


Fits = Callable[[Sequence[Runs]], bool]
"""Would the waiting job start if these were gone? More of them never hinder."""
Fairer = Callable[[Wants, Sequence[Runs]], float]
"""Of equal class, other tenants': how many times as much as the waiting job's tenant have they had,
even after the exchange? 0: it has no claim."""


def nobody(_: Wants, __: Sequence[Runs]) -> float:
    """Tenants have no claims against each other."""
    return 0.0


def never(_: Sequence[Runs]) -> bool:
    """Nobody is ahead."""
    return False


def least_of_all_s(least_run_s: float) -> float:
    """No job is preempted sooner, for any other."""
    return least_run_s / 2


def run_on_s(times_preempted: int, least_run_s: float) -> float:
    """For how long a job that was preempted so often is safe from its own class: longer after each
    preemption, so that nobody is moved about for ever."""
    return min(least_run_s * 2.0 ** min(times_preempted, 16), max(RUN_ON_MAX_S, least_run_s))


def is_settled(ran_s: float, unsaved_s: float) -> bool:
    """Whether one of the same class may be preempted: it has saved something, or had the time."""
    return unsaved_s + RESTART_S < ran_s or ran_s >= SAVES_WITHIN_S


def may_claim(wants: Wants, job: Runs, fairer: Fairer, least_run_s: float) -> bool:
    """Whether the job may be preempted for this one: a lower class always, the own
    tenant's if it is due later, another tenant's if that one has had more of its share."""
    if job.tier != wants.tier:
        return job.tier < wants.tier and job.ran_s >= least_run_s
    if not is_settled(job.ran_s, job.unsaved_s):
        return False
    if job.tenant == wants.tenant:
        return job.due_s > wants.due_s and job.ran_s >= run_on_s(job.times_preempted, least_run_s)
    if job.ran_s < run_on_s(job.times_preempted, least_of_all_s(least_run_s)):
        return False  # before shares are weighed: that costs more
    claim = fairer(wants, (job,))
    return claim >= MUCH_MORE or (
        claim > 0 and job.ran_s >= run_on_s(job.times_preempted, least_run_s)
    )


def result(
    wants: Wants,
    running: Iterable[Runs],
    fits: Fits,
    *,
    others: Fits = never,
    fairer: Fairer = nobody,
    least_run_s: float = LEAST_RUN_S,
) -> PreemptionResult:
    """The victims, or none: of the lowest class, of the jobs that are due last, the fewest
    GPU-seconds lost. Greedy: the cheapest are taken until the job fits, then every job that proves
    unneeded is let go, the dearest first. An exact choice would be a knapsack for each waiting job
    of each cycle.

    Among equals a preemption must be worth it: it may cost no more than the job has waited already
    (GPUs × seconds). A job that has just saved its work is preempted at once; one that never saves
    is safe until somebody has waited for as long as it would lose; to a tenant that has had a part
    of what theirs has, others are preempted for that part of the wait. `others`: would somebody who
    goes first take what these leave?"""
    preemptible = [job for job in running if may_claim(wants, job, fairer, least_run_s)]
    too_dear = _least_wait_s(wants, preemptible)
    if too_dear > 0:
        return PreemptionResult((), TOO_DEAR, too_dear)
    preemptible.sort(key=_cheapest)
    taken = _enough(preemptible, fits)
    if not taken:
        freed = sum(job.gpus for job in preemptible)
        if not preemptible:
            return PreemptionResult((), "no job that runs may be preempted for it yet")
        return PreemptionResult(
            (), f"preempting all that may be ({freed} GPUs) would not make room for it"
        )
    for job in sorted(taken, key=lambda job: (-job.tier, -job.loses_gpu_s, job.due_s, job.uid)):
        fewer = [other for other in taken if other is not job]
        if fits(fewer):
            taken = fewer
    if others(taken):
        return PreemptionResult((), "other jobs that go first would take what is freed")
    return _worth_it(wants, taken, fairer)


def _enough(preemptible: Sequence[Runs], fits: Fits) -> list[Runs]:
    """The shortest beginning that is enough; none if all of them are not. Few mostly are."""
    low, high = 0, 1
    while high < len(preemptible) and not fits(preemptible[:high]):
        low, high = high, 2 * high
    high = min(high, len(preemptible))
    if not fits(preemptible[:high]):
        return []
    while low + 1 < high:
        middle = (low + high) // 2
        if fits(preemptible[:middle]):
            high = middle
        else:
            low = middle
    return list(preemptible[:high])


def _least_wait_s(wants: Wants, preemptible: Sequence[Runs]) -> float:
    """For how long it must wait at least until any of them may be preempted; cheaper than a
    simulation."""
    if not preemptible or any(job.tier < wants.tier for job in preemptible):
        return 0.0
    claims = {job.tenant: 1.0 if job.tenant == wants.tenant else CLAIM_MAX for job in preemptible}
    least = min(_costs(job) / claims[job.tenant] for job in preemptible)
    return least / wants.gpus - wants.waited_s


def _cheapest(job: Runs) -> tuple[object, ...]:
    return job.tier, -(job.due_s // SPAN_S), job.loses_gpu_s, -job.due_s, job.uid


def _costs(job: Runs) -> float:
    return job.loses_gpu_s + RESTART_S * job.gpus


def _worth_it(wants: Wants, taken: Sequence[Runs], fairer: Fairer) -> PreemptionResult:
    equals = [job for job in taken if job.tier == wants.tier]
    others = [job for job in equals if job.tenant != wants.tenant]
    claim = min(fairer(wants, others), CLAIM_MAX) if others else 1.0
    if claim <= 0:
        return PreemptionResult((), "its tenant would then have had more of its share than theirs")
    cost = sum(_costs(job) if job.tenant == wants.tenant else _costs(job) / claim for job in equals)
    wait_s = cost / wants.gpus - wants.waited_s
    if wait_s > 0:
        return PreemptionResult((), TOO_DEAR, wait_s)
    victims = tuple(sorted(taken, key=lambda job: job.uid))
    freed = sum(job.gpus for job in victims)
    return PreemptionResult(victims, f"preempts {len(victims)} of the jobs that run ({freed} GPUs)")
