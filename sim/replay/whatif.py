"""What would have happened under another configuration: the same past, replayed for each."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from core.errors import BadInput, Fault
from sim.replay.cases import OURS, ReplayCase, Traces, run_cases
from sim.replay.figures import ReplayFigures
from sim.replay.physics import ReplayPhysics
from sim.replay.product import Setup
from sim.replay.supply import Supply, region_of
from sim.replay.workload import Workload


@dataclass(frozen=True, slots=True)
class Change:
    """What is asked: regions in or out, another limit, spot."""

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    vm_max: int | None = None
    spot: bool | None = None

    @property
    def words(self) -> str:
        parts = [f"with {name}" for name in self.add] + [f"without {name}" for name in self.drop]
        if self.vm_max is not None:
            parts.append(f"vm_max {self.vm_max}")
        if self.spot is not None:
            parts.append("spot" if self.spot else "no spot")
        return ", ".join(parts) or "as it is"

    def one_by_one(self) -> list[Change]:
        """Each part alone, then all together."""
        parts = [Change(add=(name,)) for name in self.add]
        parts += [Change(drop=(name,)) for name in self.drop]
        parts += [Change(vm_max=self.vm_max)] if self.vm_max is not None else []
        parts += [Change(spot=self.spot)] if self.spot is not None else []
        return [*parts, self] if len(parts) > 1 else parts


@dataclass(frozen=True, slots=True)
class Present:
    """The configuration as it is. `supply` also holds the zones that are not in use yet."""

    work: Workload
    supply: Supply
    regions: tuple[str, ...]
    setup: Setup
    physics: ReplayPhysics
    spot_supply: Supply | None = None
    """The same zones at the prices of spot; None: they cost the same."""


@dataclass(frozen=True, slots=True)
class WhatIfResult:
    """One configuration and what it gave: means over the rotations."""

    words: str
    wait_mean_s: float
    wait_p50_s: float
    wait_p95_s: float
    usd: float
    usd_wasted: float
    vm_hours: float
    wasted_hours: float
    inflation: float
    taken: float
    vms_most: int


def zones_of(supply: Supply, names: Sequence[str]) -> list[str]:
    """Zones by their own name or by their region's; every name must be known."""
    regions = {region_of(zone.name) for zone in supply.zones}
    known = {zone.name for zone in supply.zones} | regions
    expected = f"one of {', '.join(sorted(known))}"
    faults = [Fault("region", repr(name), expected) for name in names if name not in known]
    if faults:
        raise BadInput(faults)
    return [z.name for z in supply.zones if z.name in names or region_of(z.name) in names]


def ask(
    present: Present,
    change: Change,
    *,
    rotations: int,
    seed: int,
    workers: int,
    told: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[WhatIfResult]:
    """The configuration as it is, then with each change, then with all of them."""
    variants = [Change(), *change.one_by_one()]
    supplies = {variant.words: _supply(present, variant) for variant in variants}
    traces = Traces({"jobs": present.work}, supplies)
    cases = [
        replace(_case(present, variant, seed), rotation=rotation, rotations=rotations)
        for variant in variants
        for rotation in range(rotations)
    ]
    figures = run_cases(cases, traces, workers, told)
    return [
        _answer(variant.words, figures[i * rotations : (i + 1) * rotations])
        for i, variant in enumerate(variants)
    ]


def _spot(present: Present, change: Change) -> bool:
    return present.setup.spot if change.spot is None else change.spot


def _supply(present: Present, change: Change) -> Supply:
    spot = _spot(present, change) and present.spot_supply is not None
    supply = present.spot_supply if spot and present.spot_supply is not None else present.supply
    used = set(zones_of(supply, present.regions)) | set(zones_of(supply, change.add))
    used -= set(zones_of(supply, change.drop))
    return supply.only([zone.name for zone in supply.zones if zone.name in used])


def _case(present: Present, change: Change, seed: int) -> ReplayCase:
    spot = _spot(present, change)
    setup = replace(present.setup, spot=spot, vm_max=change.vm_max or present.setup.vm_max)
    physics = replace(present.physics, preemption="counts" if spot else "none")
    return ReplayCase("jobs", change.words, OURS, physics, setup, seed=seed)


def _answer(words: str, runs: Sequence[ReplayFigures]) -> WhatIfResult:
    def mean(value: Callable[[ReplayFigures], float]) -> float:
        return statistics.fmean(value(run) for run in runs)

    return WhatIfResult(
        words=words,
        wait_mean_s=mean(lambda f: f.wait_mean_s),
        wait_p50_s=mean(lambda f: f.wait_p50_s),
        wait_p95_s=mean(lambda f: f.wait_p95_s),
        usd=mean(lambda f: f.usd_useful + f.usd_wasted),
        usd_wasted=mean(lambda f: f.usd_wasted),
        vm_hours=mean(lambda f: f.billed_h),
        wasted_hours=mean(lambda f: f.billed_h - f.useful_h),
        inflation=mean(lambda f: f.inflation),
        taken=mean(lambda f: f.taken),
        vms_most=max(run.vms_most for run in runs),
    )
