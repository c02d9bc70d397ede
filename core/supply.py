"""What regions have delivered and refused, how fast and for how long: values and arithmetic.

One record per place. Each number fades by halves, so that last week's weather does not decide
today's search, and a region that nobody asks is slowly given another chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from core.clouds import CloudTerms
from core.cluster import ClusterSpec, SupplyKey
from core.errors import Fault

HOUR_S = 3600.0
HALF_LIFE_S = 86400.0
# A sighting of this age counts half as much as one of now, beside the long-run mean.
SIGHTING_S = 3600.0
# What is believed of a place that was never asked: most zones can give a VM most of the time.
PRIOR_HITS, PRIOR_MISSES = 1.5, 0.5
PRIOR_PROBABILITY = PRIOR_HITS / (PRIOR_HITS + PRIOR_MISSES)
# Preemptions per hour of a spot VM until we know better, and how many VM-hours that is worth.
PRIOR_PREEMPTIONS_PER_HOUR, PRIOR_VM_HOURS = 0.1, 10.0
# VMs that a place is asked for at once until it has shown how many it gives, and the bounds.
ROOM, ROOM_MIN, ROOM_MAX = 4.0, 1.0, 32.0
# Until boots have been seen: an image with drivers.
BOOT_S = 90.0
# Fewer deliveries than this say little about what is usual.
DELIVERIES_MIN = 2.0
# Ninety-nine of a hundred deliveries are no longer than this many deviations above the mean.
DEVIATIONS = 2.3263


# Places that were short lately take VMs back more often, and the sooner the more: about this much
# per hour, and this much over the hours since. Seen alike in two clouds, two years apart; the first
# minutes are left out of it.
SHORT_PER_HOUR, SHORT_SHARE, SHORT_LEAST_H = 0.09, 0.48, 0.08
# Shortages of a place that are remembered at most, each of them milder than the one before.
SHORTAGES_MAX = 16

# A place that takes fewer VMs back at once than this share of the VMs that it has given is not
# short: in a large fleet some go all the time.
RECLAIMED_SHARE = 0.1

# Submissions that are looked at for the rate at which jobs come.
ARRIVALS_HORIZON_S, ARRIVALS_MAX = 2 * 3600.0, 256


class SupplyOutcome(StrEnum):
    """What was last seen of a place, mostly what came of a request."""

    HIT = "hit"
    MISS = "miss"
    HINT = "hint"
    """The cloud named the zone as one that has capacity; nobody has tried it since."""
    RECLAIMED = "taken"
    """It took spot VMs back, so it had none to give."""


@dataclass(frozen=True, slots=True)
class DurationEstimate:
    """Spans of time that were seen, as mean and variance of their logarithms: a few slow ones
    do not move what is usual as they would move a plain mean."""

    weight: float = 0.0
    log_mean: float = 0.0
    log_var: float = 0.0

    def add(self, span_s: float) -> DurationEstimate:
        """With one more span."""
        value = math.log(max(span_s, 1.0))
        weight = self.weight + 1.0
        mean = self.log_mean + (value - self.log_mean) / weight
        spread = self.weight * self.log_var + (value - self.log_mean) * (value - mean)
        return DurationEstimate(weight, mean, spread / weight)

    @property
    def usual_s(self) -> float:
        """The middle one."""
        return math.exp(self.log_mean)

    @property
    def late_s(self) -> float:
        """Ninety-nine of a hundred came sooner."""
        return math.exp(self.log_mean + DEVIATIONS * math.sqrt(max(0.0, self.log_var)))


@dataclass(frozen=True, slots=True)
class Shortage:
    """A place took VMs back, or refused one more, and then had room for so many of ours."""

    kept: int
    at: datetime


@dataclass(frozen=True, slots=True)
class SupplyHistory:
    """What we have seen of one place. Counts are as of `updated_at` and fade from there."""

    region: str
    zone: str
    machine_type: str
    spot: bool
    updated_at: datetime
    hits: float = 0.0
    misses: float = 0.0
    last: SupplyOutcome | None = None
    last_at: datetime | None = None
    delivery: DurationEstimate = DurationEstimate()
    """Request → RUNNING."""
    boot: DurationEstimate = DurationEstimate()
    """RUNNING → READY."""
    room: float = ROOM
    """How many may be asked for at once: grows with each that comes, halves with a refusal."""
    preempted: float = 0.0
    vm_hours: float = 0.0
    """Of VMs that have gone; the active ones are counted from their own rows."""
    shortages: tuple[Shortage, ...] = ()
    """Spot: the last one of each depth, the deepest first; what a later and deeper one says better
    is left out, so they are also in the order of time."""

    @property
    def place(self) -> SupplyKey:
        return SupplyKey(self.region, self.zone, self.machine_type, self.spot)

    @classmethod
    def none_of(cls, place: SupplyKey, at: datetime) -> SupplyHistory:
        """Nothing was seen of the place yet."""
        return cls(place.region, place.zone, place.offering, place.spot, updated_at=at)


def regional(seen: Iterable[SupplyHistory], spec: ClusterSpec) -> dict[str, SupplyHistory]:
    """Region → what was seen of the whole region, with VMs of the cluster's kind."""
    offering, spot = spec.offering, spec.spot
    return {
        e.region: e for e in seen if not e.zone and e.machine_type == offering and e.spot == spot
    }


def usual_delivery_s(known: SupplyHistory | None, terms: CloudTerms) -> float:
    """From the request to RUNNING, as usual there; as usual in that cloud until that is known."""
    if known is None or known.delivery.weight < DELIVERIES_MIN:
        return terms.delivery_s
    return known.delivery.usual_s


def usual_boot_s(
    seen: Iterable[SupplyHistory], running: Callable[[], DurationEstimate] = DurationEstimate
) -> float:
    """From RUNNING to READY. It depends on the image, not on the region: all that is known, or,
    until the first VMs have gone, what the running ones have shown."""
    pairs = [(e.boot.weight, e.boot.log_mean) for e in seen]
    if sum(weight for weight, _ in pairs) < DELIVERIES_MIN:
        shown = running()
        pairs.append((shown.weight, shown.log_mean))
    weight = sum(weight for weight, _ in pairs)
    if weight <= 0:
        return BOOT_S
    return math.exp(sum(weight * mean for weight, mean in pairs) / weight)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When jobs came to one cluster; complete from `since` on."""

    since: datetime
    times: tuple[datetime, ...] = ()


def arrivals_by_cluster(
    newest: Sequence[tuple[str, datetime]], now: datetime
) -> Mapping[str, Arrivals]:
    """From (cluster, submitted at) of the newest ARRIVALS_MAX submissions, the newest first. When
    there were more than that, the list is complete only from its oldest one on."""
    since = now - timedelta(seconds=ARRIVALS_HORIZON_S)
    if len(newest) >= ARRIVALS_MAX:
        since = newest[-1][1]
    times: dict[str, list[datetime]] = {}
    for cluster, at in reversed(newest):
        times.setdefault(cluster, []).append(at)
    return {cluster: Arrivals(since, tuple(found)) for cluster, found in times.items()}


@dataclass(frozen=True, slots=True)
class CapacityPolicy:
    """How eagerly the planner searches, and what waiting is worth."""

    slack: int = 8
    """VMs in flight beyond the demand: the price of not waiting for a slow region."""
    price_band: float = 0.3
    """Regions at most this much dearer than the best are asked at once."""
    search_band: float = 2.0
    """Regions at most this much dearer are asked when no cheaper one can be; still dearer ones
    when the wait has cost as much as they would."""
    belief_bar: float = 0.5
    """A region is asked beside the best one only if it is this likely to deliver."""
    waiting_usd_per_gpu_hour: float = 18.0
    """What an hour of waiting for one GPU costs the people who wait."""
    typical_run_s: float = 3600.0
    """How long a job runs that says nothing of it: a dear region is dear for that long."""
    preemption_loss_s: float = 300.0
    """Work that a spot preemption costs, besides the new start."""
    memory_half_life_s: float = HALF_LIFE_S
    """Hits, misses, deliveries and preemptions count half after this long."""

    def faults(self) -> list[Fault]:
        """Values that would break a guarantee."""
        rules = (
            ("slack", self.slack >= 1, "a whole number from 1"),
            ("price_band", self.price_band >= 0, "a number from 0"),
            (
                "search_band",
                self.search_band >= self.price_band,
                f"a number from price_band ({self.price_band}) on",
            ),
            ("belief_bar", 0 <= self.belief_bar <= 1, "a number from 0 to 1"),
            ("waiting_usd_per_gpu_hour", self.waiting_usd_per_gpu_hour >= 0, "a number from 0"),
            ("typical_run_s", self.typical_run_s > 0, "a number above 0"),
            ("preemption_loss_s", self.preemption_loss_s >= 0, "a number from 0"),
            ("memory_half_life_s", self.memory_half_life_s > 0, "a number above 0"),
        )
        return [
            Fault(f"capacity.{name}", f"{getattr(self, name)}", expected)
            for name, good, expected in rules
            if not good
        ]


def fade(span: timedelta, half_life_s: float = HALF_LIFE_S) -> float:
    """What is left of a count after this long."""
    return math.pow(0.5, max(0.0, span.total_seconds()) / half_life_s)


def faded(known: SupplyHistory, now: datetime, half_life_s: float) -> SupplyHistory:
    """The record as of now."""
    left = fade(now - known.updated_at, half_life_s)
    return replace(
        known,
        updated_at=max(now, known.updated_at),
        hits=known.hits * left,
        misses=known.misses * left,
        delivery=replace(known.delivery, weight=known.delivery.weight * left),
        boot=replace(known.boot, weight=known.boot.weight * left),
        preempted=known.preempted * left,
        vm_hours=known.vm_hours * left,
    )


def usual_probability(
    known: SupplyHistory | None, now: datetime, half_life_s: float = HALF_LIFE_S
) -> float:
    """How often the place has delivered in the long run."""
    if known is None:
        return PRIOR_PROBABILITY
    left = fade(now - known.updated_at, half_life_s)
    hits, misses = known.hits * left + PRIOR_HITS, known.misses * left + PRIOR_MISSES
    return hits / (hits + misses)


def success_probability(
    known: SupplyHistory | None, now: datetime, half_life_s: float = HALF_LIFE_S
) -> float:
    """How likely the place is to deliver now: the long-run mean, pulled towards the last outcome,
    the more the fresher it is."""
    mean = usual_probability(known, now, half_life_s)
    if known is None or known.last is None or known.last_at is None:
        return mean
    last = 0.0 if known.last in (SupplyOutcome.MISS, SupplyOutcome.RECLAIMED) else 1.0
    age_s = max(0.0, (now - known.last_at).total_seconds())
    return mean + (last - mean) / (1.0 + age_s / SIGHTING_S)


def room(known: SupplyHistory | None, now: datetime) -> int:
    """How many may be asked for at once; what was learned fades like any other sighting."""
    return max(1, round(ROOM if known is None else _faded_room(known, now)))


def _faded_room(known: SupplyHistory, now: datetime) -> float:
    if known.last_at is None:
        return ROOM
    age_s = max(0.0, (now - known.last_at).total_seconds())
    return ROOM + (known.room - ROOM) / (1.0 + age_s / SIGHTING_S)


def preemptions_per_hour(
    known: SupplyHistory | None,
    living_hours: float,
    now: datetime,
    half_life_s: float = HALF_LIFE_S,
) -> float:
    """How often a spot VM there is taken, per hour; `living_hours` are those of VMs that live."""
    seen, hours = 0.0, living_hours
    if known is not None:
        left = fade(now - known.updated_at, half_life_s)
        seen, hours = known.preempted * left, hours + known.vm_hours * left
    prior = PRIOR_PREEMPTIONS_PER_HOUR * PRIOR_VM_HOURS
    return (seen + prior) / (hours + PRIOR_VM_HOURS)


def with_shortage(known: SupplyHistory, kept: int, now: datetime) -> SupplyHistory:
    """The record after one more shortage."""
    deeper = tuple(shortage for shortage in known.shortages if shortage.kept < kept)
    shortages = (*deeper, Shortage(kept, now))[-SHORTAGES_MAX:]
    return replace(known, shortages=shortages)


def after_taking(known: SupplyHistory, at: datetime) -> SupplyHistory:
    """The record of a place that took VMs back then, unless something newer was seen of it. It had
    none to give; but no request missed: what it gives on the whole, and how many at once, stays."""
    if known.last_at is not None and known.last_at > at:
        return known
    return replace(known, last=SupplyOutcome.RECLAIMED, last_at=at, room=_faded_room(known, at))


def was_short(known: SupplyHistory, now: datetime) -> bool:
    """Whether its last shortage is younger than an hour."""
    if not known.shortages:
        return False
    return (now - known.shortages[-1].at).total_seconds() < SIGHTING_S


def reclaimed_after_shortage(shortages: Sequence[Shortage], number: int, now: datetime) -> float:
    """How often VM number so many of a place is taken in its next hour, by the time since the place
    last had no room for so many. 0: that was never seen."""
    last = next((s.at for s in reversed(shortages) if s.kept < number), None)
    if last is None:
        return 0.0
    age_h = max(0.0, (now - last).total_seconds()) / HOUR_S + SHORT_LEAST_H
    return SHORT_PER_HOUR + SHORT_SHARE * math.log((age_h + 1.0) / age_h)


def usual_vms(
    known: SupplyHistory | None, now: datetime, half_life_s: float = HALF_LIFE_S
) -> float:
    """How many VMs a place has had on average, as far as is remembered."""
    if known is None:
        return 0.0
    hours = known.vm_hours * fade(now - known.updated_at, half_life_s)
    return hours * math.log(2.0) * HOUR_S / half_life_s
