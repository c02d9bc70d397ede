"""The search for VMs over time: fold and plan in turn, against regions that open and close."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from core.actions import Create, Delete, Drain, NoAction, Undrain
from core.cluster import ClusterSpec, RegionSpec
from core.demand import Demand, VmRequest
from core.mig import MachineState, ManagedInstance, MigSnapshot, Refusal
from core.region_blocks import BlockKind, RegionBlock
from core.supply import SupplyHistory
from core.timers import Timers
from core.vm import Vm, VmEvent, VmState, advance_vm
from orchestrator.planning.plan import plan_cluster
from orchestrator.planning.plan_input import PlanInput
from tests.builders import NAMES, at, cluster, dice
from tests.orchestrator.folding import fold_in

V = VmState
TIMERS = Timers()
STEP_S = 5.0
GRANT_S, REFUSE_S, BOOT_S = 46.0, 57.0, 90.0
TEN = tuple(f"region-{dead_letter}1" for dead_letter in "abcdefghij")
STOCKOUT = Refusal(BlockKind.STOCKOUT, "no capacity")

Supply = Callable[[str, float], bool]
"""Whether the region gives VMs at that second."""


def ten_regions(vm_max: int = 40) -> ClusterSpec:
    regions = tuple(
        RegionSpec(name, (f"{name}-a",), 2.0 + rank / 50, 1.0) for rank, name in enumerate(TEN)
    )
    return cluster(vm_max=vm_max, regions=regions)


@dataclass(slots=True)
class Attempt:
    """A member of a group: tried, refused and tried again by the group itself."""

    tried_s: float
    good: bool
    refused: bool = False


@dataclass(slots=True)
class Search:
    """A cluster whose jobs take a VM as soon as it is ready, and never end."""

    spec: ClusterSpec
    stock: Supply
    requests: tuple[VmRequest, ...]
    errors: dict[str, Refusal] = field(default_factory=dict)
    vms: tuple[Vm, ...] = ()
    blocks: tuple[RegionBlock, ...] = ()
    supply: tuple[SupplyHistory, ...] = ()
    attempts: dict[str, Attempt] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    holds: dict[str, str] = field(default_factory=dict)
    now_s: float = 0.0
    started: list[float] = field(default_factory=list)
    never_ran: set[str] = field(default_factory=set)

    def run(self, until_s: float) -> None:
        ids = dice()
        while self.now_s < until_s:
            self._cloud()
            self._observe()
            self._work()
            inputs = PlanInput(
                self.spec, Demand(self.spec.name, self.requests), self.vms, self.blocks,
                supply=self.supply,
            )  # fmt: skip
            self.holds = {}
            for action in plan_cluster(inputs, NAMES, TIMERS, ids, at(self.now_s)):
                self._apply(action)
            assert len(self.vms) <= self.spec.vm_max
            self.now_s += STEP_S

    def _cloud(self) -> None:
        for vm in self.vms:
            attempt = self.attempts.get(vm.name)
            if attempt is None or attempt.good:
                continue
            if self.now_s - attempt.tried_s >= REFUSE_S:
                self.attempts[vm.name] = self._try(vm.region, refused=True)

    def _try(self, region: str, *, refused: bool) -> Attempt:
        good = region not in self.errors and self.stock(region, self.now_s)
        return Attempt(self.now_s, good, refused)

    def _observe(self) -> None:
        for region in self.spec.regions:
            members = tuple(
                self._member(vm) for vm in self.vms
                if vm.region == region.region and vm.name in self.attempts
            )  # fmt: skip
            now = at(self.now_s)
            observed = MigSnapshot("mig", self.spec.name, region.region, 0, True, members, now)
            folded = fold_in(
                *(observed, self.spec, self.vms, now),
                blocks=self.blocks,
                supply=self.supply,
            )
            self.vms = tuple(vm for vm in folded.vms if vm.counted)
            self.blocks, self.supply = folded.blocks, folded.supply

    def _member(self, vm: Vm) -> ManagedInstance:
        attempt = self.attempts[vm.name]
        running = attempt.good and self.now_s - attempt.tried_s >= GRANT_S
        error = self.errors.get(vm.region, STOCKOUT)
        return ManagedInstance(
            name=vm.name,
            zone=f"{vm.region}-a",
            machine=MachineState.RUNNING if running else MachineState.NONE,
            refusals=(error,) if attempt.refused and not running else (),
        )

    def _work(self) -> None:
        """VMs get ready, and take the first VM request that allows them."""
        for vm in self.vms:
            booted = vm.running_since is not None and vm.state is V.BOOTING
            if booted and (at(self.now_s) - vm.running_since).total_seconds() >= BOOT_S:  # type: ignore[operator]
                self._put(
                    advance_vm(vm, VmEvent.WORKER_READY, at(self.now_s), "ready", boot_nonce="n")
                )
        for vm in self.vms:
            if vm.running_since is not None and not vm.leases:
                self.never_ran.add(vm.name)
            if vm.idle and self.requests:
                self.requests = self.requests[1:]
                self._put(replace(vm, leases=("lease",), idle_since=None))
                self.never_ran.discard(vm.name)
                self.started.append(self.now_s)

    def _put(self, after: Vm) -> None:
        self.vms = tuple(after if vm.name == after.name else vm for vm in self.vms)

    def _apply(self, action: object) -> None:
        now = at(self.now_s)
        match action:
            case Create():
                self.calls["create"] += 1
                for name in action.names:
                    self.attempts[name] = self._try(action.region, refused=False)
                    self.vms += (
                        Vm(
                            uid=name, name=name, cluster=self.spec.name, region=action.region,
                            state=V.REQUESTED, version=1, request_id=action.request_id, gpus=1,
                            spot=False, usd_per_hour=self.spec.usd_per_hour(action.region),
                            requested_at=now, state_since=now,
                        ),
                    )  # fmt: skip
            case Delete():
                self.calls["delete"] += 1
                for vm in [vm for vm in self.vms if vm.name in action.names]:
                    assert not vm.leases
                    del self.attempts[vm.name]
                    self._put(advance_vm(vm, VmEvent.DELETE_ASKED, now, "asked"))
            case Drain() | Undrain():
                asked = isinstance(action, Drain)
                event = VmEvent.DRAIN_ASKED if asked else VmEvent.DRAIN_WITHDRAWN
                (vm,) = (vm for vm in self.vms if vm.name == action.vm_name)
                self._put(advance_vm(vm, event, now, action.reason))
            case NoAction():
                self.holds[action.region] = action.reason


@pytest.mark.parametrize("live", [0, 4, 9])
@pytest.mark.parametrize("demand", [1, 10])
def test_nine_of_ten_regions_stocked_out(live: int, demand: int) -> None:
    """All jobs start in the region that lives within one search round (one try of each region by
    rank) and a boot, and next to no VM runs without a job."""
    requests = (VmRequest(since=at(0)),) * demand
    search = Search(ten_regions(), lambda region, _: region == TEN[live], requests)
    one_try_s = TIMERS.widen_after_s + STEP_S
    search.run(one_try_s * len(TEN) + GRANT_S + BOOT_S + 4 * STEP_S)
    assert not search.requests, f"{len(search.requests)} jobs still wait"
    assert len(search.never_ran) <= max(1, 0.2 * demand)


def test_rolling_stockout_is_followed() -> None:
    """The live region changes every ten minutes; work goes on without a VM for nobody."""
    rolling = Search(ten_regions(), lambda region, s: region == TEN[int(s // 600) % 10], ())
    for wave in range(5):
        rolling.requests += (VmRequest(since=at(rolling.now_s)),) * 5
        rolling.run(600.0 * (wave + 1))
    rolling.run(600.0 * 8)
    assert not rolling.requests
    assert len(rolling.never_ran) <= 0.2 * 25


@pytest.mark.parametrize("heals", [0, 9])
def test_short_opening_after_six_hours_is_caught(heals: int) -> None:
    """Everything is stocked out for six hours, then one region gives VMs for three minutes: one is
    granted within 120 s, and the calls in between stay far within the budget."""
    opens = 6 * 3600.0

    def stock(region: str, second: float) -> bool:
        return region == TEN[heals] and opens <= second < opens + 180

    search = Search(ten_regions(), stock, (VmRequest(since=at(0)),))
    search.run(opens)
    calls = search.calls.total()
    assert calls <= 6 * 120, "no more than two write calls a minute, for ten regions"
    search.run(opens + 120 + STEP_S)
    granted = [vm for vm in search.vms if vm.running_since is not None]
    assert granted
    assert granted[0].running_since is not None
    assert granted[0].running_since <= at(opens + 120)


def test_each_kind_of_region_block_has_its_reason_and_its_time() -> None:
    """Quota, stockout and a type that the zone lacks: three reasons, three waiting times."""
    spec = replace(ten_regions(), regions=ten_regions().regions[:3])
    quota = Refusal(BlockKind.QUOTA, "Quota 'GPUS' exceeded. Limit: 0.0")
    lacks = Refusal(BlockKind.UNSUPPORTED, "machine type is not supported in the zone")
    errors = {TEN[0]: quota, TEN[1]: STOCKOUT, TEN[2]: lacks}
    search = Search(spec, lambda *_: False, (VmRequest(since=at(0)),) * 2, errors=errors)
    search.run(300)
    kinds = {t.region: t.kind for t in search.blocks if t.blocks(at(search.now_s))}
    assert kinds == {
        TEN[0]: BlockKind.QUOTA,
        TEN[1]: BlockKind.STOCKOUT,
        TEN[2]: BlockKind.UNSUPPORTED,
    }
    words = [search.holds[region].split(" until ")[0] for region in TEN[:3]]
    assert words == ["quota", "stockout", "unsupported"]
    spans = {t.kind: (t.until - t.last_seen).total_seconds() for t in search.blocks}
    assert spans[BlockKind.UNSUPPORTED] > spans[BlockKind.QUOTA] > spans[BlockKind.STOCKOUT]
