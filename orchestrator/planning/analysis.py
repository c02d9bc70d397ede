"""A plan input with all that follows from it: which VM is good for what, and what is missing. Pure.

Words: a requested VM is *running* once the cloud shows it so (it will be ready in a moment), *in
flight* while its region may still deliver in its usual time, and *late* after that, or once the
cloud has said that it cannot make it now. A late one gets no credit; one per region is left
standing as a probe, because the group tries again by itself and a name without a VM is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter

from core.demand import VmRequest
from core.timers import Timers
from core.vm import Vm
from orchestrator.planning.flex_start import NOBODY, FlexStartPlan, free_to_use, gather, is_gangs
from orchestrator.planning.idle_policy import NO_SPARES, Spares, Stream, spares_wanted
from orchestrator.planning.plan_input import PlanInput, match, requests_of
from orchestrator.planning.region_estimates import Outlook, Outlooks, Prices


@dataclass(frozen=True, slots=True)
class VmsByUse:
    """The VMs of a cluster by what they are good for."""

    idle: tuple[Vm, ...] = ()
    draining: tuple[Vm, ...] = ()
    """Could still be called back."""
    running: tuple[Vm, ...] = ()
    on_time: tuple[Vm, ...] = ()
    """In flight, and not late yet."""
    late: tuple[Vm, ...] = ()
    bound: tuple[Vm, ...] = ()
    """Asked for together, for one gang: in the cloud's queue, or given and not running yet."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """A plan input with all that follows from it."""

    inputs: PlanInput
    timers: Timers
    now: datetime
    known: Mapping[str, Outlook]
    fleet: VmsByUse
    requests: tuple[VmRequest, ...]
    back: tuple[Vm, ...]
    """Draining VMs that are wanted again."""
    need: tuple[VmRequest, ...]
    """VM requests that no idle and no running VM serves, without the ones that are asked for
    together."""
    uncredited: tuple[VmRequest, ...]
    """Those of them that not even a VM in flight serves."""
    prices: Prices
    stream: Stream
    """How jobs have come lately."""
    spares: Spares = NO_SPARES
    """VMs without work that the jobs to come are worth."""
    lacking: tuple[VmRequest, ...] = ()
    """VM requests of gangs that no idle and no running VM serves, where gangs' VMs come
    together."""
    together: FlexStartPlan = NOBODY

    @property
    def live_max(self) -> int:
        """How many may be in flight before RUNNING, without the probes."""
        return self._live_max(self.spares.wanted)

    @property
    def keep_max(self) -> int:
        """How many of those in flight are not cancelled yet."""
        return self._live_max(self.spares.kept)

    def _live_max(self, spares: int) -> int:
        slack = self.inputs.policy.slack
        if self.need:
            return len(self.need) + slack
        return min(slack, max(0, spares - self.spares_among(())))

    def spares_among(self, coming: tuple[Vm, ...]) -> int:
        """How many there are beyond the demand that the next job may use: of the running ones, and
        of these."""
        fleet, request = self.fleet, self.stream.next_request
        here = (*fleet.idle, *self.back, *fleet.running, *coming)
        spare = match(self.requests, here, self.now).spare
        return sum(request.served_by(vm, self.now) for vm in spare)


def survey(inputs: PlanInput, timers: Timers, now: datetime) -> Analysis:
    """Who is good for what, and what is still missing."""
    known = Outlooks(inputs, timers, now)
    requests = requests_of(inputs, now)
    fleet = _fleet(replace(inputs, vms=free_to_use(inputs.vms, requests, now)), known, timers, now)
    back = _called_back(match(requests, fleet.idle, now).unmet, fleet.draining, now)
    stream = Stream(inputs, now)
    unmet = match(requests, (*fleet.idle, *back, *fleet.running), now).unmet
    lacking = tuple(request for request in unmet if is_gangs(request, inputs))
    need = (
        tuple(request for request in unmet if not is_gangs(request, inputs)) if lacking else unmet
    )
    uncredited = match(need, fleet.on_time, now).unmet
    return Analysis(
        inputs=inputs,
        timers=timers,
        now=now,
        known=known,
        fleet=fleet,
        requests=requests,
        back=back,
        need=need,
        uncredited=uncredited,
        prices=Prices(known, inputs, now),
        stream=stream,
        # Where gangs come, a single spare one serves none of them.
        spares=spares_wanted(stream, known, len(need), inputs, timers)
        if inputs.spec.flex_start_wait_s is None
        else NO_SPARES,
        lacking=lacking,
        together=gather(inputs, known, lacking, uncredited, fleet.bound, timers),
    )


def _fleet(
    inputs: PlanInput, known: Mapping[str, Outlook], timers: Timers, now: datetime
) -> VmsByUse:
    boot_s = timers.boot_timeout_s
    groups: dict[str, list[Vm]] = {name: [] for name in VmsByUse.__slots__}
    # Most VMs of a busy cluster work: they are none of the plan's business.
    free = [vm for vm in inputs.vms if not vm.leases and not vm.state.deleting]
    for vm in sorted(free, key=attrgetter("usd_per_hour", "requested_at", "name")):
        if vm.region not in known or vm.taken or vm.has_boot_timed_out(boot_s, now):
            continue
        if vm.state.ready:
            groups["idle"].append(vm)
        elif vm.state.draining and vm.name not in inputs.asked:
            groups["draining"].append(vm)
        elif vm.together and vm.running_since is None:
            groups["bound"].append(vm)
        elif vm.state.in_flight:
            groups[_progress(vm, known[vm.region], now)].append(vm)
    return VmsByUse(**{name: tuple(group) for name, group in groups.items()})


def _progress(vm: Vm, outlook: Outlook, now: datetime) -> str:
    if vm.running_since is not None:
        return "running"
    late = (now - vm.requested_at).total_seconds() > outlook.late_after_s
    block = outlook.block
    # Asked for while the region is known to be stocked out: a probe from the beginning.
    probe = block is not None and outlook.stocked_out and vm.requested_at > block.since
    return "late" if late or vm.refused or probe else "on_time"


def _called_back(
    unmet: Iterable[VmRequest], draining: Iterable[Vm], now: datetime
) -> tuple[Vm, ...]:
    waiting = list(unmet)
    back: list[Vm] = []
    for vm in draining:
        request = next((w for w in waiting if w.served_by(vm, now)), None)
        # The worker of a VM that is kept has done its one job.
        if request is not None and vm.boot_nonce and vm.kept_until is None:
            waiting.remove(request)
            back.append(vm)
    return tuple(back)
