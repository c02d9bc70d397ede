"""What to expect of each region now: price with all that comes with it, success probability, times.
Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from core.cluster import ClusterSpec
from core.demand import VmRequest
from core.region_blocks import NEVER_WORKS, BlockKind, RegionBlock, block_on
from core.supply import (
    DELIVERIES_MIN,
    HOUR_S,
    RECLAIMED_SHARE,
    DurationEstimate,
    Shortage,
    SupplyHistory,
    after_taking,
    preemptions_per_hour,
    reclaimed_after_shortage,
    regional,
    room,
    success_probability,
    usual_boot_s,
    usual_delivery_s,
    usual_probability,
    usual_vms,
    was_short,
)
from core.timers import Timers
from core.vm import Vm
from orchestrator.planning.plan_input import PlanInput

# A result that comes later costs less than a job that does not start: nobody sits and waits for it.
LATER_SHARE = 0.25
# Half of the risk of being taken is that of the place, half grows with how many are held there; and
# how many times the usual risk is believed at most.
CROWD_SHARE, CROWD_MAX = 0.5, 8.0
# A place that can give a VM does so for this share of the time that a job needs it: it is taken
# back, and starts anew elsewhere.
UP_SHARE = 0.7
# While a job with a deadline waits, the price that it is content with grows to the price band
# within this share of its slack, and at most this long.
WAIT_SHARE, WAIT_MAX_S = 0.2, 7200.0
# What is learned may move the threshold of lateness within these bounds.
LATE_MIN_S, LATE_MAX_S = 10.0, 600.0
# No retry makes these better, so they are no measure of what a VM should cost.
LASTING = NEVER_WORKS | {BlockKind.UNSUPPORTED, BlockKind.PERMISSION, BlockKind.MISSING}


@dataclass(frozen=True, slots=True)
class Risk:
    """What preemptions cost in one place."""

    usd: float
    """Each of them; nothing for a VM that is not taken."""
    per_hour: float
    usual: float
    """How often a VM was reclaimed, and how many there were meanwhile."""
    shortages: tuple[Shortage, ...]
    now: datetime

    def of(self, number: int) -> float:
        """Dollars per hour of VM number so many: when a place takes some back, the more are held
        the likelier it is that one more is among them; more so if it was short a while ago."""
        if not self.usd:
            return 0.0
        rate = self.per_hour * crowding(number, self.usual)
        return self.usd * max(rate, reclaimed_after_shortage(self.shortages, number, self.now))


@dataclass(frozen=True, slots=True)
class Outlook:
    """One region of a cluster, as the plan sees it."""

    region: str
    usd_per_hour: float
    price: float
    """Of the next VM there, per hour of work, in effect: with what preemptions and waiting cost."""
    patient_price: float
    """The same for a job that has time: its wait costs nothing, and what the place did in the last
    hour says little about when it will start."""
    probability: float
    usual_probability: float
    """In the long run, whatever was seen last."""
    late_after_s: float
    cold_start_s: float
    boot_s: float
    room: int
    """How many it may be asked for at once."""
    was_short: bool
    """Whether it took VMs back, or refused one more, within the last hour."""
    block: RegionBlock | None
    risk: Risk
    held: int
    """How many VMs are there."""

    def price_of(self, number: int) -> float:
        """As `price`, of VM number so many."""
        return self.price + self.risk.of(number) - self.risk.of(self.held + 1)

    @property
    def likely_room(self) -> int:
        """How many it is likely to give now; one may be asked for anywhere."""
        return max(1, round(self.room * self.probability))

    @property
    def stocked_out(self) -> bool:
        return self.block is not None and self.block.kind is BlockKind.STOCKOUT


class Outlooks(Mapping[str, Outlook]):
    """All regions of the cluster, in the order of the configuration. Each is worked out when it is
    first asked for: most cycles look at few of them."""

    def __init__(self, inputs: PlanInput, timers: Timers, now: datetime) -> None:
        spec = inputs.spec
        self._inputs = inputs
        self._timers = timers
        self._now = now
        self._usd = {
            region.region: region.spot_usd_per_hour if spec.spot else region.usd_per_hour
            for region in spec.regions
        }
        self._seen = regional(inputs.supply, spec)
        self._found: dict[str, Outlook] = {}

    def __getitem__(self, region: str) -> Outlook:
        found = self._found.get(region)
        if found is None:
            found = self._found[region] = self._outlook(region, self._usd[region])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._usd)

    def __len__(self) -> int:
        return len(self._usd)

    def __contains__(self, region: object) -> bool:
        return region in self._usd

    def _outlook(self, region: str, usd: float) -> Outlook:
        inputs, policy, now = self._inputs, self._inputs.policy, self._now
        known = self._seen.get(region)
        usual_s, late_s = _delivery_s(known, inputs.spec, self._timers)
        likely = success_probability(
            self._with_takings(known, region), now, policy.memory_half_life_s
        )
        cold_start_s = usual_s + self.boot_s
        waiting = policy.waiting_usd_per_gpu_hour * inputs.spec.slots
        lost_s = policy.preemption_loss_s + cold_start_s
        risk = Risk(
            usd=_lost_usd(usd, waiting, lost_s) if inputs.spec.spot else 0.0,
            per_hour=self._preemptions(region, known),
            usual=usual_vms(known, now, policy.memory_half_life_s),
            shortages=() if known is None else known.shortages,
            now=now,
        )
        held = self._held[region]
        # A miss costs the time until it is noticed. Machines that are there anyway have no price to
        # compare it with: next to one at $0 the least doubt would be too dear for ever.
        missed_h = (1.0 - likely) * late_s / policy.typical_run_s
        if inputs.spec.terms.owned:
            missed_h = 0.0
        return Outlook(
            region=region,
            usd_per_hour=usd,
            price=usd + risk.of(held + 1) + waiting * missed_h,
            patient_price=usd + risk.per_hour * lost_s / HOUR_S * usd if inputs.spec.spot else usd,
            probability=likely,
            usual_probability=usual_probability(known, now, policy.memory_half_life_s),
            late_after_s=late_s,
            cold_start_s=cold_start_s,
            boot_s=self.boot_s,
            room=room(known, now),
            was_short=known is not None and was_short(known, now),
            block=block_on(inputs.blocks, inputs.spec, region, now),
            risk=risk,
            held=held,
        )

    @cached_property
    def boot_s(self) -> float:
        """From RUNNING to READY, in all regions."""
        return usual_boot_s(self._seen.values(), lambda: _lived(self._inputs.vms))

    def _preemptions(self, region: str, known: SupplyHistory | None) -> float:
        half_life_s = self._inputs.policy.memory_half_life_s
        return preemptions_per_hour(known, self._lived_h[region], self._now, half_life_s)

    def _with_takings(self, known: SupplyHistory | None, region: str) -> SupplyHistory | None:
        """The record, with what it will say once the VMs are gone that the cloud is reclaiming."""
        leaving = self._leaving.get(region, ())
        if len(leaving) < max(1.0, RECLAIMED_SHARE * self._held[region]):
            return known
        at = max(leaving)
        place = self._inputs.spec.supply_key(region)
        return after_taking(known or SupplyHistory.none_of(place, at), at)

    @cached_property
    def _leaving(self) -> Mapping[str, Sequence[datetime]]:
        """Spot VMs that are being taken, by region: since when they are told, off, or deleted."""
        found: dict[str, list[datetime]] = defaultdict(list)
        for vm in self._inputs.vms if self._inputs.spec.spot else ():
            if vm.taken and not vm.together:
                found[vm.region].append(vm.state_since)
        return found

    @cached_property
    def _held(self) -> Counter[str]:
        return Counter(vm.region for vm in self._inputs.vms)

    @cached_property
    def _lived_h(self) -> Mapping[str, float]:
        """Hours of the VMs that live, by region."""
        hours: dict[str, float] = defaultdict(float)
        for vm in self._inputs.vms:
            if vm.running_since is not None:
                lived_s = (self._now - vm.running_since).total_seconds()
                hours[vm.region] += max(0.0, lived_s) / HOUR_S
        return hours


def _lived(vms: Iterable[Vm]) -> DurationEstimate:
    spread = DurationEstimate()
    for vm in vms:
        if vm.running_since is not None and vm.ready_at is not None:
            spread = spread.add((vm.ready_at - vm.running_since).total_seconds())
    return spread


def _delivery_s(
    known: SupplyHistory | None, spec: ClusterSpec, timers: Timers
) -> tuple[float, float]:
    """The usual time from the request to RUNNING, and the time after which it is late."""
    usual_s = usual_delivery_s(known, spec.terms)
    if known is None or known.delivery.weight < DELIVERIES_MIN:
        return min(usual_s, timers.widen_after_s), timers.widen_after_s
    # What is seen is up to one observation old.
    late_s = min(LATE_MAX_S, max(LATE_MIN_S, known.delivery.late_s + timers.observe_s))
    return usual_s, late_s


def _lost_usd(usd: float, waiting: float, lost_s: float) -> float:
    """Each preemption is paid for twice: the work is done again, and its result comes later."""
    return lost_s / HOUR_S * (usd + LATER_SHARE * waiting)


def crowding(number: int, usual: float) -> float:
    """How much likelier than usual VM number so many of a place is to be taken."""
    grows = 2.0 * number / (usual + 2.0)
    return min(CROWD_MAX, 1.0 - CROWD_SHARE + CROWD_SHARE * grows)


# --- how dear is too dear ----------------------------------------------------------------


class Prices:
    """What VM requests may pay. Many VM requests are alike: the cheapest region is found once for
    each kind."""

    def __init__(self, known: Mapping[str, Outlook], inputs: PlanInput, now: datetime) -> None:
        self._known = known
        self._policy = inputs.policy
        self._usd_per_s = inputs.policy.waiting_usd_per_gpu_hour * inputs.spec.slots / HOUR_S
        self._now = now
        self._cheapest: dict[tuple[object, ...], float] = {}

    def limit(self, request: VmRequest, band: float) -> float:
        """The most that a VM request may pay now, in effect: so much above the cheapest region, and
        what it has already lost by waiting. So a dear region is asked when the wait has cost as
        much as the region would have: never more than about twice the best choice in hindsight."""
        if request.start_by is not None:
            return self._patient_limit(request, band) if request.has_slack(self._now) else math.inf
        lost = self._usd_per_s * request.waited_s(self._now) * HOUR_S / self._policy.typical_run_s
        return self.cheapest(request) * (1.0 + band) + lost

    def _patient_limit(self, request: VmRequest, band: float) -> float:
        """Of a VM request with a deadline and time to wait. Until the deadline its wait costs
        nothing, so it spends a part of its slack on the cheapest place, then takes what is within
        the price band. Dearer places only as far as they are needed: the ones that it is content
        with must be up often enough for what is left of its run."""
        assert request.start_by is not None, "asked of VM requests with a deadline"
        places, policy = self._lasting(request), self._policy
        cheapest = min((o.patient_price for o in places), default=0.0)
        waited_s = request.waited_s(self._now)
        slack_s = (request.start_by - self._now).total_seconds()
        grown = min(1.0, waited_s / min(WAIT_MAX_S, WAIT_SHARE * (slack_s + waited_s)))
        within = cheapest * (1.0 + policy.price_band * grown)
        if band <= policy.price_band or grown < 1.0:
            return within
        needed, missing = cheapest, 1.0
        for outlook in sorted(places, key=lambda o: (o.patient_price, o.region)):
            needed, missing = outlook.patient_price, missing * (1.0 - outlook.usual_probability)
            if (1.0 - missing) * UP_SHARE * (slack_s + request.left_s) >= request.left_s:
                break
        return max(within, min(needed, cheapest * (1.0 + band)))

    def price(self, request: VmRequest, outlook: Outlook) -> float:
        """What a VM there costs in effect, for that VM request."""
        return outlook.patient_price if request.has_slack(self._now) else outlook.price

    def affordable_at(self, request: VmRequest, outlook: Outlook) -> Iterator[datetime]:
        """When the VM request will have waited long enough for that region to be within the price
        band, and when within the search band, as far as waiting brings that about."""
        if request.start_by is not None or request.since is None or self._usd_per_s <= 0:
            return  # the plan looks again at a deadline anyway
        for band in (self._policy.price_band, self._policy.search_band):
            short = outlook.price - self.limit(request, band)
            if short > 0:
                wait_s = short * self._policy.typical_run_s / HOUR_S / self._usd_per_s
                yield self._now + timedelta(seconds=wait_s)

    def cheapest(self, request: VmRequest) -> float:
        """The best effective price among the regions that may ever serve the VM request."""
        key = (request.regions, request.denied, request.max_usd_per_hour)
        if key not in self._cheapest:
            self._cheapest[key] = min((o.price for o in self._lasting(request)), default=0.0)
        return self._cheapest[key]

    def _lasting(self, request: VmRequest) -> list[Outlook]:
        """Regions that may ever serve it; if there is none, the ones that it allows."""
        allowed = [o for o in self._known.values() if request.allows(o.region, o.usd_per_hour)]
        return [o for o in allowed if o.block is None or o.block.kind not in LASTING] or allowed
