"""Which VMs without work are worth their price. Pure.

A spare VM serves the next job at once; without it the job waits for a cold start. Spare VM number
k is of use when k jobs come within the time of a cold start; while that is likely enough for what
the wait would cost, it is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from core.capacity import Vm
from core.knowledge import Arrivals
from core.timers import Timers
from orchestrator.outlook import Outlook
from orchestrator.picture import Picture

# The rate at which jobs come in quiet times is that of about the last two hours.
RATE_MEMORY_S = 7200.0
# Arrivals this many spans ago have no part in a burst any more.
BURST_SPANS = 6
# Jobs that come within so many seconds of the first of them came together.
BATCH_S = 20.0
# One VM ahead of the jobs for each so many that wait.
STOCK_SHARE = 5
# Google bills a VM for at least this long: before that, giving it back saves nothing.
BILLED_AT_LEAST_S = 60.0
# Whoever looks at a result may have the next job ready: for this long a VM waits in any case.
IDLE_AT_LEAST_S = 60.0
# How often the worth of spare VMs is looked at again, when nothing else happens.
LOOK_AGAIN_S = 15.0


def arrivals_soon(arrivals: Arrivals | None, span_s: float, now: datetime) -> float:
    """How many jobs to expect within `span_s`. Jobs come in bursts: what came within the last such
    span is the best guess for the next one; in quiet times it is the rate of the last hours."""
    if arrivals is None:
        return 0.0
    ages = [max(0.0, (now - at).total_seconds()) for at in arrivals.times]
    lately = [age for age in ages if age < BURST_SPANS * span_s]
    # One batch of jobs says no more than that somebody is at work.
    coming = sum(math.exp(-age / span_s) for age in _events(lately))
    reach_s = max(1.0, (now - arrivals.since).total_seconds())
    seen = sum(math.exp(-age / RATE_MEMORY_S) for age in _events(ages))
    per_s = seen / (RATE_MEMORY_S * (1.0 - math.exp(-reach_s / RATE_MEMORY_S)))
    return max(coming, per_s * span_s)


def _events(ages: Sequence[float]) -> list[float]:
    """Jobs that were submitted together came once. The oldest is first."""
    found: list[float] = []
    for age in ages:
        if not found or found[-1] - age > BATCH_S:
            found.append(age)
    return found


def at_least(k: int, mean: float) -> float:
    """P(at least k arrivals) when `mean` are expected."""
    term = below = math.exp(-mean)
    for i in range(1, k):
        term *= mean / i
        below += term
    return max(0.0, 1.0 - below) if k > 0 else 1.0


def spare_worth(
    k: int, usd_per_hour: float, outlook: Outlook, soon: float, picture: Picture
) -> bool:
    """Whether spare VM number k saves more than it costs, when so many jobs are expected within a
    cold start: the wait, and the boot of another."""
    waiting = picture.policy.waiting_usd_per_gpu_hour * picture.spec.gpus
    saved = waiting + usd_per_hour * outlook.boot_s / outlook.cold_start_s
    return at_least(k, soon) * saved >= usd_per_hour


def spares_wanted(
    known: Mapping[str, Outlook],
    waiting: int,
    picture: Picture,
    timers: Timers,
    now: datetime,
) -> int:
    """How many VMs to have ahead of jobs that have not come yet: none unless a stream of jobs is on
    (two came apart lately, one of them within a cold start); no more than it has brought, or than a
    part of those that wait. A spare that found its job is replaced in the same way."""
    arrivals = picture.arrivals
    if arrivals is None or not arrivals.times or not known:
        return 0
    spot = picture.spec.spot
    cheapest = min(
        picture.spec.regions, key=lambda r: r.spot_usd_per_hour if spot else r.usd_per_hour
    )
    best = known[cheapest.region]
    ages = [(now - at).total_seconds() for at in arrivals.times]
    if ages[-1] > best.cold_start_s:
        return 0
    lately = [age for age in ages if age < BURST_SPANS * best.cold_start_s]
    events = len(_events(lately))
    if events < 2:
        return 0
    soon = arrivals_soon(arrivals, best.cold_start_s, now)
    idle_s = idle_limit_s(picture, timers)
    most = max(events - 1, waiting // STOCK_SHARE)
    count = 0
    while count < most and _is_worth_asking(count + 1, best, soon, idle_s, picture):
        count += 1
    return count


def _is_worth_asking(k: int, best: Outlook, soon: float, idle_s: float, picture: Picture) -> bool:
    """Whether spare VM number k is worth asking for. Jobs that come while it is made save half of
    a cold start on average; if none come, a boot and the longest idling are paid for nothing."""
    likely = at_least(k, soon)
    waiting = picture.policy.waiting_usd_per_gpu_hour * picture.spec.gpus
    saved = likely * waiting * best.cold_start_s / 2
    return saved >= (1.0 - likely) * best.usd_per_hour * (best.boot_s + idle_s)


def idle_limit_s(picture: Picture, timers: Timers) -> float:
    """The longest that a VM may idle."""
    return picture.spec.idle_timeout_s or timers.idle_timeout_s


def tired(
    spare: Sequence[Vm],
    known: Mapping[str, Outlook],
    picture: Picture,
    timers: Timers,
    now: datetime,
) -> dict[str, str]:
    """Spare VMs that are to be given back, with the reason. `spare` are idle or booting ones; the
    cheapest are kept longest."""
    if not spare:
        return {}
    limit = timedelta(seconds=idle_limit_s(picture, timers))
    cold_start_s = max(known[vm.region].cold_start_s for vm in spare)
    soon = arrivals_soon(picture.arrivals, cold_start_s, now)
    kept = 0
    found: dict[str, str] = {}
    for vm in sorted(spare, key=lambda vm: (not vm.idle, vm.usd_per_hour, vm.name)):
        if vm.idle_since is not None and now - vm.idle_since > limit:
            found[vm.name] = f"idle for {limit.total_seconds():g} s"
        elif _is_worth_it(vm, kept + 1, known[vm.region], soon, picture, now):
            kept += 1
        else:
            found[vm.name] = "no work is expected soon enough to keep it warm"
    return found


def _is_worth_it(
    vm: Vm, k: int, outlook: Outlook, soon: float, picture: Picture, now: datetime
) -> bool:
    fixed = picture.spec.idle_timeout_s is not None
    paid = _younger(vm.running_since, BILLED_AT_LEAST_S, now)
    rests = vm.idle and _younger(vm.idle_since, IDLE_AT_LEAST_S, now)
    return fixed or paid or rests or spare_worth(k, vm.usd_per_hour, outlook, soon, picture)


def _younger(since: datetime | None, span_s: float, now: datetime) -> bool:
    return since is None or (now - since).total_seconds() < span_s
