"""What a job with a deadline pays on recorded spot supply, and whether it is done in time.

One job on one VM, spot VMs as recorded, standard VMs always to be had at a dearer price. The
planner is the service's own code behind sim/replay, with its default settings:

    python -m bench.deadlines --supply h100.csv.gz --prices prices.csv

Without --supply a made-up week is replayed. Windows start every --every-h hours, as many as fit
into the series, and one after the other.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from core.job import Job, SavedWork
from core.job_fields import JobSpec
from sim.replay.engine import ReplayCloud
from sim.replay.physics import ReplayPhysics
from sim.replay.product import CLUSTER, Product, Setup
from sim.replay.supply import UNBOUNDED, Supply, Zone, load_prices, load_supply
from sim.replay.synthetic import Recipe, make_supply
from sim.replay.workload import TraceJob, Workload

HOUR_S = 3600.0
ZONES = (
    *("us-central1-a", "us-west1-a", "europe-west1-c"),
    *("europe-west3-c", "asia-southeast1-b", "asia-south2-b"),
)
STANDARD = "1xreplay-standard"
STANDARD_ZONE = "/standard"
"""Ends the name of a zone that gives standard VMs, beside the spot VMs of the others."""
LOOK_S = 60.0
"""A job with a deadline that waits is planned anew at least this often; the service does each
second."""
GPUS = 8


@dataclass(frozen=True, slots=True)
class DeadlineTask:
    """The job and what surrounds it."""

    work_h: float = 34.56
    deadline_h: float = 51.83
    restart_h: float = 0.2
    """From a VM that runs to a job that goes on."""
    standard_usd_per_hour: float = 88.49
    egress_usd: float = 1.0
    """To bring the checkpoint to another region."""


USUAL = DeadlineTask()


@dataclass(frozen=True, slots=True)
class _ReplayOutcome:
    """One replay."""

    usd: float
    ended_h: float
    starts: int
    standard_starts: int
    moves: int

    def missed(self, task: DeadlineTask) -> bool:
        return self.ended_h > task.deadline_h


@dataclass(frozen=True, slots=True)
class _DeadlineRow:
    """One kind of job over all windows."""

    job: str
    windows: int
    usd: float
    usd_most: float
    missed: int
    ended_h: float
    starts: float
    standard: int
    """Windows in which it ran on standard VMs at all."""


@dataclass(frozen=True, slots=True)
class JobWithDeadline:
    """A job that is to be done in time."""

    deadline_s: float
    """After its submission."""
    stated_s: float | None = None
    """The run time that it stated; None: none."""
    saves: bool = True
    """Whether it tells when it has saved its work."""
    counts: bool = True
    """Whether it tells how far it is, too: step so many of so many."""


class DeadlineProduct(Product):
    """Each job has a deadline and takes spot VMs, and standard ones in need."""

    def __init__(
        self, cloud: ReplayCloud, setup: Setup, wanted: JobWithDeadline, *, seed: int
    ) -> None:
        self._wanted = wanted
        super().__init__(cloud, setup, seed=seed)

    @property
    def _look_within_s(self) -> float | None:
        return LOOK_S if self._heads or self._active.admitted else None

    def _asked(self, spec: JobSpec, moment: datetime) -> JobSpec:
        return replace(
            spec,
            cluster=None,
            gpu_type="replay",
            gpu_count=self._setup.gpus,
            spot=True,
            deadline=moment + timedelta(seconds=self._wanted.deadline_s),
            max_runtime_s=self._wanted.stated_s or self._setup.timers.max_runtime_s,
        )

    def _place(self, zone: str) -> tuple[str, str]:
        if zone.endswith(STANDARD_ZONE):
            return STANDARD, zone.removesuffix(STANDARD_ZONE)
        return super()._place(zone)

    def _saved(self, job: Job) -> SavedWork | None:
        if not self._wanted.saves:
            return None
        run = self._runs[job.uid]
        done_s = run.duration_s - run.left_s
        share = done_s / run.duration_s if self._wanted.counts else 0.0
        return SavedWork(done_s - job.saved_s, share)


KINDS = {
    "states its run time, reports checkpoints": JobWithDeadline(0.0, stated_s=1.0, counts=False),
    "states nothing, reports step so many of so many": JobWithDeadline(0.0),
    "states nothing, reports checkpoints without a total": JobWithDeadline(0.0, counts=False),
    "states its run time, reports nothing": JobWithDeadline(
        0.0, stated_s=1.0, saves=False, counts=False
    ),
    "states nothing, reports nothing": JobWithDeadline(0.0, saves=False, counts=False),
}


def supply_for(supply: Supply, task: DeadlineTask) -> Supply:
    """Spot zones that can give a VM or cannot, and a standard zone beside each."""
    spot = [
        replace(
            zone,
            usd_per_hour=zone.usd_per_hour * GPUS,
            counts=tuple(UNBOUNDED if count else 0 for count in zone.counts),
        )
        for zone in supply.zones
    ]
    standard = [
        Zone(zone.name + STANDARD_ZONE, task.standard_usd_per_hour, (0.0,), (UNBOUNDED,), 16.0)
        for zone in supply.zones
    ]
    return replace(supply, zones=(*spot, *standard))


def run(
    supply: Supply, task: DeadlineTask, kind: JobWithDeadline, start_h: float, seed: int
) -> _ReplayOutcome:
    """One window. Nothing is lost at a preemption but the restart."""
    work_s = task.work_h * HOUR_S
    wanted = replace(
        kind,
        deadline_s=task.deadline_h * HOUR_S,
        stated_s=None if kind.stated_s is None else work_s,
    )
    physics = ReplayPhysics(boot_s=task.restart_h * HOUR_S, preemption="counts", save_s=0.0)
    cloud = ReplayCloud(supply, physics, seed=seed, offset_s=start_h * HOUR_S)
    product = DeadlineProduct(cloud, Setup(4, spot=True, gpus=GPUS), wanted, seed=seed)
    figures = cloud.play(Workload("one job", (TraceJob(0.0, work_s, GPUS),)), product)
    regions = [region for _, _, region in product.starts]
    moves = sum(before != after for before, after in pairwise(regions))
    standard = sum(cluster != CLUSTER for _, cluster, _ in product.starts)
    usd = figures.usd_useful + figures.usd_wasted + moves * task.egress_usd
    return _ReplayOutcome(usd, figures.inflation * task.work_h, len(regions), standard, moves)


def windows(supply: Supply, task: DeadlineTask, every_h: float) -> list[float]:
    """Starts of the windows that fit into the series."""
    last_h = supply.period_s / HOUR_S - task.deadline_h
    count = int(max(0.0, last_h) / every_h) + 1
    return [number * every_h for number in range(count)]


def rows(
    supply: Supply, task: DeadlineTask, starts: Sequence[float], seed: int
) -> list[_DeadlineRow]:
    """Every kind of job over the same windows."""
    both = supply_for(supply, task)
    found: list[_DeadlineRow] = []
    for name, kind in KINDS.items():
        seen = [run(both, task, kind, start_h, seed) for start_h in starts]
        found.append(
            _DeadlineRow(
                name,
                len(seen),
                statistics.fmean(o.usd for o in seen),
                max(o.usd for o in seen),
                sum(o.missed(task) for o in seen),
                statistics.fmean(o.ended_h for o in seen),
                statistics.fmean(o.starts for o in seen),
                sum(o.standard_starts > 0 for o in seen),
            )
        )
    return found


def main() -> None:
    """Prints the tables."""
    args = _arguments()
    task = DeadlineTask(
        work_h=args.work_h,
        deadline_h=args.deadline_h,
        restart_h=args.restart_h,
        standard_usd_per_hour=args.standard_usd,
    )
    supply = _supply(args)
    tables = {
        "windows one after the other": windows(supply, task, task.deadline_h),
        f"a window every {args.every_h:g} h": windows(supply, task, args.every_h),
    }
    found = {name: rows(supply, task, starts, args.seed) for name, starts in tables.items()}
    if args.json:
        print(json.dumps({name: [asdict(row) for row in table] for name, table in found.items()}))
        return
    zones = ", ".join(zone.name for zone in supply.zones)
    print(f"work {task.work_h:g} h, deadline {task.deadline_h:g} h, restart {task.restart_h:g} h,")
    print(f"standard VMs ${task.standard_usd_per_hour:g} per hour; {supply.source}: {zones}")
    for name, table in found.items():
        print(f"\n{name}: {table[0].windows}\n")
        print("| the job | mean $ | most $ | missed | ends after h | starts | on standard VMs |")
        print("|---|---|---|---|---|---|---|")
        for row in table:
            print(
                f"| {row.job} | {row.usd:.1f} | {row.usd_most:.0f} | {row.missed} | "
                f"{row.ended_h:.1f} | {row.starts:.1f} | {row.standard} |"
            )


def _supply(args: argparse.Namespace) -> Supply:
    if args.supply is None:
        return make_supply(Recipe(seed=args.seed))
    supply = load_supply(args.supply).only(args.zones.split(","))
    return supply.priced(load_prices(args.prices)) if args.prices else supply


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--supply", type=Path, help="counts per zone over time (CSV)")
    parser.add_argument("--prices", type=Path, help="dollars per GPU-hour by region (CSV)")
    parser.add_argument("--zones", default=",".join(ZONES), help="of the supply, by commas")
    parser.add_argument("--work-h", type=float, default=USUAL.work_h)
    parser.add_argument("--deadline-h", type=float, default=USUAL.deadline_h)
    parser.add_argument("--restart-h", type=float, default=USUAL.restart_h)
    parser.add_argument("--standard-usd", type=float, default=USUAL.standard_usd_per_hour)
    parser.add_argument("--every-h", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
