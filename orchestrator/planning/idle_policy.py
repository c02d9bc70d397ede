"""Which VMs without work are worth their price. Pure.

A spare VM serves the next job at once; without it the job waits for a cold start. Spare VM number
k is of use when, within the time of a cold start, k jobs more come than VMs become free; while that
is likely enough for what the wait would cost, it is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from itertools import accumulate, takewhile
from operator import attrgetter
from typing import NamedTuple

from core.demand import VmRequest, VmRequestKind
from core.timers import Timers
from core.vm import Vm
from orchestrator.planning.plan_input import PlanInput
from orchestrator.planning.region_estimates import Outlook

# The rate at which jobs come in quiet times is that of about the last two hours.
RATE_MEMORY_S = 7200.0
# Arrivals this many spans ago have no part in a burst any more.
BURST_SPANS = 6
# Jobs that come within so many seconds of the first of them came together.
BATCH_S = 20.0
# Jobs that were never seen to end are taken to run for longer than this, all together.
RUNS_LEAST_S = 3600.0
# Of a cold start, what a VM that was asked for ahead saves: half of it if its job comes while it is
# made, all of it if later, so about three quarters. It is asked for if less than that would pay,
# and cancelled on its way only if more would not: what is expected changes with each second, and
# who follows it at once asks for VMs and takes them back a moment later.
ASK_SHARE, KEEP_SHARE = 0.55, 0.9
# A spare that no job came for is deleted after about so many cold starts.
GIVEN_UP_SPANS = 2
# Means above this are taken for this: so many at once make no difference to one VM more.
MEAN_MAX = 64.0
# One VM ahead of the jobs for each so many that wait.
STOCK_SHARE = 5
NEXT_TO_NOTHING = 1e-4
# A user who looks at a result may have the next job ready: for this long one VM waits in any case.
IDLE_AT_LEAST_S = 60.0
# How often the worth of spare VMs is looked at again, when nothing else happens.
LOOK_AGAIN_S = 15.0


class Stream:
    """How jobs have come lately, as of now. Jobs that were submitted together came once."""

    def __init__(self, inputs: PlanInput, now: datetime) -> None:
        arrivals = inputs.arrivals
        self._arrivals = arrivals if arrivals is not None and arrivals.times else None
        self._inputs = inputs
        self._now = now
        self._soon: dict[float, float] = {}
        self._lacks: dict[float, tuple[Sequence[float], Sequence[float]]] = {}

    @property
    def newest_s(self) -> float:
        """The age of the last one."""
        return self._age(self._arrivals.times[-1]) if self._arrivals else math.inf

    def batches(self, span_s: float) -> int:
        """How many came within so many seconds."""
        return sum(age < span_s for age in self._ages)

    def soon(self, span_s: float) -> float:
        """How many jobs to expect within `span_s`. Jobs come in bursts: what came within the last
        such span is the best guess for the next one; in quiet times it is the rate of the last
        hours. One batch of jobs says no more than that somebody is at work."""
        found = self._soon.get(span_s)
        if found is None:
            lately = (age for age in self._ages if age < BURST_SPANS * span_s)
            coming = sum(math.exp(-age / span_s) for age in lately)
            found = self._soon[span_s] = max(coming, self._per_s * span_s)
        return found

    def lacks(self, k: int, span_s: float) -> float:
        """P(k jobs more come within `span_s` than VMs become free)."""
        found = self._lacks.get(span_s)
        if found is None:
            working = len(self._inputs.at_work)
            ends = working * (1.0 - math.exp(-self._ends_per_s * span_s))
            found = self._lacks[span_s] = (_poisson(ends), _tails(_poisson(self.soon(span_s))))
        ends_of, comes = found
        return sum(end * come for end, come in zip(ends_of, comes[k:], strict=False))

    @cached_property
    def _ends_per_s(self) -> float:
        """How often a job ends that runs: of the jobs that came lately, each that neither waits nor
        runs has ended, and ran for about half of the time since it came."""
        if self._arrivals is None:
            return 0.0
        reach_s = self._age(self._arrivals.since)
        ages = [
            self._age(request.since)
            for request in self._inputs.at_work
            if request.since is not None
        ]
        here = sum(age <= reach_s for age in ages) + len(self._inputs.demand.requests)
        times = self._arrivals.times
        ended = max(0, len(times) - here)
        ran_s = ended * (self.newest_s + _mean_before(times)) / 2
        return ended / (sum(min(age, reach_s) for age in ages) + ran_s + RUNS_LEAST_S)

    @cached_property
    def next_request(self) -> VmRequest:
        """What the next job is likely to want: the same places as the newest one. Nobody waits
        for what it requests."""
        known = [w for w in (*self._inputs.demand.requests, *self._inputs.at_work) if w.since]
        if not known:
            return VmRequest(job=self._last_cause, kind=VmRequestKind.SPARE)
        newest = max(known, key=lambda request: request.since or self._now)
        cap = newest.max_usd_per_hour
        return VmRequest(
            regions=newest.regions,
            denied=newest.denied,
            max_usd_per_hour=cap,
            job=newest.job,
            kind=VmRequestKind.SPARE,
        )

    @property
    def _last_cause(self) -> str | None:
        """The job for which the newest VM was asked for: a spare one follows from it."""
        caused = [vm for vm in self._inputs.vms if vm.caused_by]
        newest = max(caused, key=attrgetter("requested_at", "name"), default=None)
        return newest.caused_by if newest is not None else None

    @cached_property
    def _ages(self) -> Sequence[float]:
        """Of the batches, the oldest first."""
        if self._arrivals is None:
            return ()
        newest_s = self.newest_s
        return [newest_s + before_s for before_s in _batches(self._arrivals.times)]

    @cached_property
    def _per_s(self) -> float:
        """The rate of the last hours."""
        if self._arrivals is None:
            return 0.0
        reach_s = max(1.0, self._age(self._arrivals.since))
        seen = sum(math.exp(-age / RATE_MEMORY_S) for age in self._ages)
        return seen / (RATE_MEMORY_S * (1.0 - math.exp(-reach_s / RATE_MEMORY_S)))

    def _age(self, at: datetime) -> float:
        return max(0.0, (self._now - at).total_seconds())


@lru_cache(maxsize=64)
def _batches(times: tuple[datetime, ...]) -> tuple[float, ...]:
    """How long before the last job each batch came, the oldest first. It is asked for with every
    look at a cluster, and changes only with a submission."""
    found: list[float] = []
    for at in times:
        before_s = (times[-1] - at).total_seconds()
        if not found or found[-1] - before_s > BATCH_S:
            found.append(before_s)
    return tuple(found)


@lru_cache(maxsize=64)
def _mean_before(times: tuple[datetime, ...]) -> float:
    """How long before the last job the others came, on average."""
    return sum((times[-1] - at).total_seconds() for at in times) / len(times)


def _poisson(mean: float) -> Sequence[float]:
    """P(0), P(1), … until next to nothing is left, which the last one gets."""
    mean = min(mean, MEAN_MAX)
    term = math.exp(-mean)
    found, left = [term], 1.0 - term
    while left > NEXT_TO_NOTHING:
        term *= mean / len(found)
        found.append(term)
        left -= term
    found[-1] += max(0.0, left)
    return found


def _tails(shares: Sequence[float]) -> Sequence[float]:
    """P(at least 0), P(at least 1), …"""
    return list(accumulate(reversed(shares)))[::-1]


def at_least(k: int, mean: float) -> float:
    """P(at least k arrivals) when `mean` are expected."""
    term = below = math.exp(-mean)
    for i in range(1, k):
        term *= mean / i
        below += term
    return max(0.0, 1.0 - below) if k > 0 else 1.0


def spare_worth(likely: float, usd_per_hour: float, outlook: Outlook, inputs: PlanInput) -> bool:
    """Whether a spare VM that is so likely to be of use within a cold start saves more than it
    costs: the wait, and the boot of another."""
    waiting = inputs.policy.waiting_usd_per_gpu_hour * inputs.spec.slots
    saved = waiting + usd_per_hour * outlook.boot_s / outlook.cold_start_s
    return likely * saved >= usd_per_hour


class Spares(NamedTuple):
    """VMs without work that the jobs to come are worth."""

    wanted: int = 0
    """So many are asked for."""
    kept: int = 0
    """So many are not cancelled once they are on their way."""


NO_SPARES = Spares()


def spares_wanted(
    stream: Stream,
    known: Mapping[str, Outlook],
    waiting: int,
    inputs: PlanInput,
    timers: Timers,
) -> Spares:
    """How many VMs to have ahead of jobs that have not come yet: none unless a stream of jobs is on
    (two came apart lately, one of them within a cold start); no more than it has brought, or than a
    part of the waiting ones. A spare that found its job is replaced in the same way."""
    # A v1 worker does not wait for work: it would delete its VM.
    if math.isinf(stream.newest_s) or not known or inputs.spec.worker == "v1":
        return NO_SPARES
    able = [known[r.region] for r in inputs.spec.regions]
    request = stream.next_request
    able = [outlook for outlook in able if request.allows(outlook.region, outlook.usd_per_hour)]
    if not able:
        return NO_SPARES
    best = min(able, key=attrgetter("usd_per_hour"))
    if stream.newest_s > best.cold_start_s:
        return NO_SPARES
    batches = stream.batches(BURST_SPANS * best.cold_start_s)
    if batches < 2:
        return NO_SPARES
    most = max(batches - 1, waiting // STOCK_SHARE)
    asked, kept = (_chance_asked(share, best, inputs, timers) for share in (ASK_SHARE, KEEP_SHARE))
    chances = (stream.lacks(k, best.cold_start_s) for k in range(1, most + 1))
    likely = list(takewhile(lambda chance: chance >= kept, chances))
    return Spares(sum(chance >= asked for chance in likely), len(likely))


def _chance_asked(share: float, best: Outlook, inputs: PlanInput, timers: Timers) -> float:
    """How likely a spare VM must be of use to be worth it, if that share of a cold start is saved
    then; if it is not of use, a boot and the idling until it is deleted are paid for nothing."""
    waiting = inputs.policy.waiting_usd_per_gpu_hour * inputs.spec.slots
    saved = waiting * best.cold_start_s * share
    idle_s = min(idle_limit_s(inputs, timers), GIVEN_UP_SPANS * best.cold_start_s)
    lost = best.usd_per_hour * (best.boot_s + idle_s)
    return lost / (saved + lost) if lost > 0.0 else 0.0


def idle_limit_s(inputs: PlanInput, timers: Timers) -> float:
    """The longest that a VM may idle."""
    return inputs.spec.idle_timeout_s or timers.idle_timeout_s


def idled_out(
    spare: Sequence[Vm],
    stream: Stream,
    known: Mapping[str, Outlook],
    inputs: PlanInput,
    timers: Timers,
    now: datetime,
) -> dict[str, str]:
    """Spare VMs that are to be given back, with the reason. `spare` are idle or booting ones; the
    cheapest are kept longest."""
    if not spare:
        return {}
    limit = timedelta(seconds=idle_limit_s(inputs, timers))
    cold_start_s = max(known[vm.region].cold_start_s for vm in spare)
    kept = 0
    found: dict[str, str] = {}
    for vm in sorted(spare, key=lambda vm: (not vm.idle, vm.usd_per_hour, vm.name)):
        if vm.idle_since is not None and now - vm.idle_since > limit:
            found[vm.name] = f"idle for {limit.total_seconds():g} s"
        elif _is_worth_it(vm, stream, kept + 1, known[vm.region], cold_start_s, inputs, now):
            kept += 1
        else:
            found[vm.name] = "no work is expected soon enough to keep it warm"
    return found


def _is_worth_it(
    vm: Vm,
    stream: Stream,
    k: int,
    outlook: Outlook,
    cold_start_s: float,
    inputs: PlanInput,
    now: datetime,
) -> bool:
    fixed = inputs.spec.idle_timeout_s is not None
    paid = _younger(vm.running_since, vm.billed_at_least_s, now)
    rests = k == 1 and vm.idle and _younger(vm.idle_since, IDLE_AT_LEAST_S, now)
    if fixed or paid or rests:
        return True
    useful = stream.next_request.allows(vm.region, vm.usd_per_hour)
    likely = stream.lacks(k, cold_start_s)
    return useful and spare_worth(likely, vm.usd_per_hour, outlook, inputs)


def _younger(since: datetime | None, span_s: float, now: datetime) -> bool:
    return since is None or (now - since).total_seconds() < span_s
