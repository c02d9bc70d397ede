"""Where to ask for how many VMs, and why not elsewhere. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from operator import attrgetter

from core.actions import Action, Create, NoAction
from core.demand import VmRequest, VmRequestKind
from core.names import Names
from core.ports import Ids
from core.region_blocks import RegionBlock, is_remembered
from core.supply import PRIOR_PROBABILITY
from core.timers import Timers
from core.waits import JOBS_PER_REGION
from orchestrator.planning.analysis import Analysis
from orchestrator.planning.idle_policy import at_least
from orchestrator.planning.plan_input import PlanInput
from orchestrator.planning.region_estimates import Outlook

NAME_TRIES = 64
# A request that is more likely than this to do without gets no company: one job is one VM, unless
# there is a reason for doubt. Where many are asked for, VMs that become free help out: it takes
# more doubt.
DOUBT_ALONE, DOUBT = 0.4, 0.6
# A job that has waited for this long has been refused several times over: nothing is lost by asking
# a place that has just given one for more than it may have.
LONG_WAIT_S = 300.0


class Asks:
    """What is to be asked for, as the plan grows: bounded by the cluster and by each region."""

    def __init__(self, analysis: Analysis) -> None:
        inputs = analysis.inputs
        self._limits = {region.region: region.vm_max for region in inputs.spec.regions}
        self._taken = Counter(vm.region for vm in inputs.vms)
        self._waiting = Counter(vm.region for vm in analysis.fleet.on_time)
        self._unproven = unproven(inputs, analysis.timers, analysis.now)
        for ask in analysis.together.asks:
            self._taken[ask.region] += ask.count
        self.places = max(0, inputs.spec.vm_max - len(inputs.vms) - analysis.together.kept)
        """Left under the limit of the cluster."""
        self.found: list[tuple[str, str]] = []
        """(region, reason), one for each VM."""
        self.causes: dict[str, list[str | None]] = {}
        """Region → for each VM the job whose wait it is asked for."""

    def add(self, region: str, reason: str, request: VmRequest) -> None:
        self._taken[region] += 1
        self._waiting[region] += 1
        if region in self._unproven:
            self._unproven[region] += 1
        self.places -= 1
        self.found.append((region, reason))
        self.causes.setdefault(region, []).append(request.job)

    def fits(self, region: str) -> bool:
        """Whether the region's own limit, if it has one, allows one more, and none is tried."""
        limit = self._limits[region]
        return not self.tries(region) and (limit is None or self._taken[region] < limit)

    def tries(self, region: str) -> bool:
        """Whether one VM is to show there first that VMs get to work again."""
        return self._unproven.get(region, 0) > 0

    def number(self, region: str) -> int:
        """Which VM of the region the next one would be."""
        return self._taken[region] + 1

    def load(self, outlook: Outlook) -> int:
        """How many times over the region is asked for what it may have."""
        return self._waiting[outlook.region] // outlook.room

    def waiting(self, region: str) -> int:
        """How many the region is asked for and has not delivered, but may in time."""
        return self._waiting[region]


def growth(analysis: Analysis, names: Names, ids: Ids) -> list[Action]:
    inputs = analysis.inputs
    asks = Asks(analysis)
    left = _ask_for_each(analysis, asks)
    if left:
        _probe(analysis, left, asks)
    else:
        # Not for a floor alone, nor for who has time to wait.
        waits = (request for request in analysis.need if request.kind is VmRequestKind.JOB)
        if any(not request.has_slack(analysis.now) for request in waits):
            _hedge(analysis, asks)
        _stock_up(analysis, asks)
    used = {vm.name for vm in inputs.vms}
    actions: list[Action] = []
    counts = Counter(region for region, _ in asks.found)
    # One call per region; what was asked for first is its reason.
    for region, reason in sorted(dict(reversed(asks.found)).items()):
        new = new_names(names, inputs.spec.name, region, counts[region], used, ids)
        causes = tuple(asks.causes[region])
        actions.append(Create(region, new, ids.request_id(), reason, causes))
    return actions + (_refusals(analysis, left, asks) if left else [])


def _ask_for_each(analysis: Analysis, asks: Asks) -> tuple[VmRequest, ...]:
    """One more for each VM request that has no credit, in the best region that is not asked for
    more than it may have already; returns the VM requests that found none."""
    left: list[VmRequest] = []
    most = analysis.live_max - len(analysis.fleet.on_time)
    for request in analysis.uncredited:
        able = _within_room(request, _askable_for(request, analysis, asks), analysis, asks)
        if not able or asks.places <= 0 or len(asks.found) >= most:
            left.append(request)
            continue
        best = min(able, key=lambda outlook: _cost_for(request, outlook, analysis, asks))
        asks.add(best.region, _grow_reason(best, analysis), request)
    return tuple(left)


def _within_room(
    request: VmRequest, able: list[Outlook], analysis: Analysis, asks: Asks
) -> list[Outlook]:
    """Where one more may be asked for when a refusal is likely: while a request is late, and of
    spot VMs always. Jobs that lost their VMs together would else be asked for, all of them, in one
    short place after the other. Beyond what a place is likely to give now it is asked only if it is
    as likely to deliver as one that nobody has asked yet, and was not short lately; or, for who has
    waited for long, although it was: an opening may be over before one has shown how wide it is."""
    if not analysis.fleet.late and not analysis.inputs.spec.spot:
        return able
    within = [outlook for outlook in able if asks.waiting(outlook.region) < outlook.likely_room]
    if within:
        return within
    long = request.waited_s(analysis.now) > LONG_WAIT_S
    good = [outlook for outlook in able if outlook.probability >= PRIOR_PROBABILITY]
    return [outlook for outlook in good if long or not outlook.was_short]


def _hedge(analysis: Analysis, asks: Asks) -> None:
    """Company for requests that may fail: one VM each in the next best regions, within the slack,
    while the wait that it saves is worth more than a VM that comes second."""
    asked = [vm.region for vm in analysis.fleet.on_time] + [region for region, _ in asks.found]
    failures = sum(1.0 - analysis.known[region].probability for region in asked)
    hedges = max(0, len(asked) - len(analysis.need))
    for request in analysis.need:
        if request.has_slack(analysis.now):
            continue
        able = sorted(askable(request, analysis, asks), key=lambda o: _rank(o, analysis))
        for outlook in able:
            room = asks.places > 0 and len(asked) < analysis.live_max
            likely = outlook.probability >= analysis.inputs.policy.belief_bar
            # A single request gets company elsewhere; of many, some may fail anywhere.
            other = asks.load(outlook) < 1 if len(asked) > 1 else not asks.waiting(outlook.region)
            if room and likely and other:
                fails = at_least(hedges + 1, failures)
                if fails < (DOUBT if len(asked) > 1 else DOUBT_ALONE):
                    return
                if not _is_worth_company(outlook, able[0], fails, analysis):
                    return
                reason = f"in case {', '.join(sorted(set(asked)))} fails"
                asks.add(outlook.region, reason, request)
                asked.append(outlook.region)
                hedges += 1


def _stock_up(analysis: Analysis, asks: Asks) -> None:
    """Jobs come in numbers: within the slack, a few more than wait now are asked for, so that the
    next ones wait less."""
    fleet, request = analysis.fleet, analysis.stream.next_request
    company = max(0, len(asks.found) - len(analysis.uncredited))
    missing = analysis.spares.wanted - analysis.spares_among(fleet.on_time) - company
    if missing <= 0:
        return
    able = askable(request, analysis, asks)
    if not able:
        return
    best = min(able, key=lambda outlook: _cost(outlook, analysis, asks))
    room = analysis.live_max - len(fleet.on_time) - len(asks.found)
    for _ in range(min(missing, room, asks.places)):
        if asks.fits(best.region):
            asks.add(best.region, "jobs come in numbers, more are expected", request)


def _is_worth_company(outlook: Outlook, best: Outlook, fails: float, analysis: Analysis) -> bool:
    """One more hedge saves a wait if more requests fail than there are hedges; if not, it is paid
    for as long as the shortest bill, or wins the race and is dearer for as long as a job runs."""
    policy, gpus = analysis.inputs.policy, analysis.inputs.spec.slots
    saved = fails * outlook.late_after_s * policy.waiting_usd_per_gpu_hour * gpus
    second = outlook.usd_per_hour * analysis.inputs.spec.terms.billed_at_least_s
    dearer = max(0.0, outlook.price - best.price) * policy.typical_run_s / 2
    return saved >= (1.0 - fails) * (second + dearer)


def _probe(analysis: Analysis, left: Sequence[VmRequest], asks: Asks) -> None:
    """Nowhere else to ask: one standing request in each region that is stocked out, so that a
    short opening is not missed."""
    band = analysis.inputs.policy.search_band
    watched = {vm.region for vm in (*analysis.fleet.late, *analysis.fleet.on_time)}
    watched |= analysis.inputs.quiet.keys() | analysis.inputs.refused.keys()
    for outlook in sorted(analysis.known.values(), key=attrgetter("price", "region")):
        first = next(
            (request for request in left if _may_pay(request, outlook, analysis, band)), None
        )
        idle = outlook.region not in watched and asks.fits(outlook.region)
        if asks.places > 0 and outlook.stocked_out and first is not None and idle:
            reason = "one standing request, to catch the end of the stockout"
            asks.add(outlook.region, reason, first)


def _askable_for(request: VmRequest, analysis: Analysis, asks: Asks) -> list[Outlook]:
    """A warm VM that nobody waits for stands where the next job may use it, if that can be."""
    if request.kind is not VmRequestKind.FLOOR:
        return askable(request, analysis, asks)
    return askable(analysis.stream.next_request, analysis, asks) or askable(request, analysis, asks)


def askable(request: VmRequest, analysis: Analysis, asks: Asks) -> list[Outlook]:
    """Regions that may deliver for this VM request at a price that it may pay."""
    late = {vm.region for vm in analysis.fleet.late}
    policy = analysis.inputs.policy
    able = [
        outlook
        for outlook in analysis.known.values()
        if outlook.block is None
        and outlook.region not in late
        and outlook.region not in analysis.inputs.quiet
        and outlook.region not in analysis.inputs.refused
        and asks.fits(outlook.region)
    ]
    found: list[Outlook] = []
    for band in (policy.price_band, policy.search_band):
        found = found or [outlook for outlook in able if _may_pay(request, outlook, analysis, band)]
    return found


def _rank(outlook: Outlook, analysis: Analysis) -> tuple[bool, float, str]:
    return (outlook.probability < analysis.inputs.policy.belief_bar, outlook.price, outlook.region)


def _cost(outlook: Outlook, analysis: Analysis, asks: Asks) -> tuple[bool, float, str]:
    """Of one more there. A region that is asked for more than it may have is likely to refuse, and
    a refusal costs the time until it is noticed: that much dearer another region may be. For the
    same reason doubt alone sends nobody to a dearer one, unless a refusal is nearly sure."""
    policy = analysis.inputs.policy
    waiting = policy.waiting_usd_per_gpu_hour * analysis.inputs.spec.slots
    refused = outlook.probability * (1.0 - 0.5 ** asks.load(outlook))
    dearer = waiting * refused * outlook.late_after_s / policy.typical_run_s
    hopeless = outlook.probability < policy.belief_bar / 2
    return hopeless, outlook.price_of(asks.number(outlook.region)) + dearer, outlook.region


def _cost_for(
    request: VmRequest, outlook: Outlook, analysis: Analysis, asks: Asks
) -> tuple[bool, float, str]:
    """Who has time to wait takes the cheapest place that is not nearly sure to refuse."""
    if not request.has_slack(analysis.now):
        return _cost(outlook, analysis, asks)
    hopeless = outlook.probability < analysis.inputs.policy.belief_bar / 2
    return hopeless, outlook.patient_price, outlook.region


def _may_pay(request: VmRequest, outlook: Outlook, analysis: Analysis, band: float) -> bool:
    limit = analysis.prices.limit(request, band)
    price = analysis.prices.price(request, outlook)
    return request.allows(outlook.region, outlook.usd_per_hour) and price <= limit


def new_names(
    names: Names, cluster: str, region: str, count: int, used: set[str], ids: Ids
) -> tuple[str, ...]:
    """Names that no VM has; fewer than `count` if chance finds no more of them."""
    found: list[str] = []
    for _ in range(count + NAME_TRIES):
        name = names.vm(cluster, region, ids.suffix())
        if name not in used:
            used.add(name)
            found.append(name)
        if len(found) == count:
            break
    return tuple(found)


# --- words -------------------------------------------------------------------------------


def _waiting(count: int) -> str:
    return "1 VM is wanted" if count == 1 else f"{count} VMs are wanted"


def _grow_reason(best: Outlook, analysis: Analysis) -> str:
    late = sorted({vm.region for vm in analysis.fleet.late})
    slow = f"; no answer yet from {', '.join(late)}" if late else ""
    return f"{_waiting(len(analysis.requests))}, {best.region} is the best region now{slow}"


def _refusals(analysis: Analysis, left: Sequence[VmRequest], asks: Asks) -> list[Action]:
    inputs, counted = analysis.inputs, len(analysis.inputs.vms)
    if counted >= inputs.spec.vm_max:
        wanted = _waiting(len(analysis.requests))
        words = f"cluster limit {inputs.spec.vm_max} reached ({counted} VMs), {wanted}"
        return [NoAction("", words, _first_jobs(left))]
    return [
        NoAction(
            o.region,
            _refusal(o, analysis, left, asks),
            _first_jobs(request for request in left if request.in_reach(o.region)),
        )
        for o in analysis.known.values()
    ]


def _first_jobs(left: Iterable[VmRequest]) -> tuple[str, ...]:
    return tuple(islice((request.job for request in left if request.job), JOBS_PER_REGION))


def _refusal(outlook: Outlook, analysis: Analysis, left: Sequence[VmRequest], asks: Asks) -> str:
    region, block = outlook.region, outlook.block
    band = analysis.inputs.policy.search_band
    if block is not None:
        return f"{block.words}: {block.message}"
    if region in analysis.inputs.refused:
        return analysis.inputs.refused[region]
    if region in analysis.inputs.quiet:
        return analysis.inputs.quiet[region]
    if any(vm.region == region for vm in analysis.fleet.late):
        return "asked already, slow to deliver"
    if asks.tries(region):
        return "VMs came up there and never got to work: one is tried first, `zen alerts` says more"
    if not asks.fits(region):
        return f"region limit {analysis.inputs.spec.region(region).vm_max} reached"
    if not any(request.in_reach(region) for request in left):
        return "not among the regions that the waiting jobs allow"
    if not any(request.allows(region, outlook.usd_per_hour) for request in left):
        return f"${outlook.usd_per_hour:.2f} per hour is above what the waiting jobs may cost"
    if not any(_may_pay(request, outlook, analysis, band) for request in left):
        return f"${outlook.usd_per_hour:.2f} per hour is not worth it yet, cheaper ones may deliver"
    if asks.waiting(region) >= outlook.likely_room:
        return "asked for as many as it is likely to give at once, more when these come"
    return "enough VMs are in flight"


# --- where VMs came up and never got to work, one is tried before all others --------------


def unproven(inputs: PlanInput, timers: Timers, now: datetime) -> dict[str, int]:
    """Regions whose block is over and where nothing has worked since → VMs there that are to show
    whether it does now. One that is READY and waits for others of its gang keeps nobody."""
    faults = sorted(_faults(inputs, timers, now), key=attrgetter("until"))
    ends = {t.region: t.until for t in faults if not t.blocks(now)}
    if not ends:
        return {}
    new = [
        vm
        for vm in inputs.vms
        if vm.region in ends and vm.requested_at >= ends[vm.region] and not vm.state.deleting
    ]
    waits = {vm.region for vm in new if vm.idle}
    tried = Counter(vm.region for vm in new)
    return {region: tried[region] for region in ends if region not in waits}


def proof_ends(inputs: PlanInput, timers: Timers, now: datetime) -> Iterator[datetime]:
    """When what is known is forgotten."""
    memory = timedelta(seconds=timers.stockout_memory_s)
    faults = _faults(inputs, timers, now)
    return (max(block.last_seen, block.until) + memory for block in faults)


def _faults(inputs: PlanInput, timers: Timers, now: datetime) -> list[RegionBlock]:
    return [
        block
        for block in inputs.blocks
        if block.is_fault and block.concerns(inputs.spec) and is_remembered(block, timers, now)
    ]
