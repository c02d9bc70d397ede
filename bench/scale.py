"""What a fleet of a given size needs of one leader, of PostgreSQL and of Pub/Sub, and what ends
first: a calculation from measured unit costs.

    python -m bench.scale [--vms 100000] [--queued 10000000] [--ends 100]
    python -m bench.scale --check      measures three sizes and prints them beside the model

The unit costs are those of one 2-core machine (docs/internals/scale.md): ratios between sizes are
worth more than the figures themselves.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from bench.figures import VARIABLE, told
from bench.local import ROOT
from bench.report import figure, show

CHECKED_VMS = (1000, 3000, 10_000)
CHECKED_QUEUED = 10_000
HEARTBEAT_S = 10.0
SUBMITS_PER_S = 10.0
RUSH_ENDS_PER_S = 50.0
RUN_S = 7200.0
"""How long a job of the pretended fleet runs."""
LEADER = "CPU of the leader"


@dataclass(frozen=True, slots=True)
class FleetSize:
    """What moves, and what waits."""

    vms: int
    queued: int
    heartbeat_s: float
    submits_per_s: float
    ends_per_s: float
    finished: int = 1_000_000
    """Jobs that are kept after their end."""


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """CPU in milliseconds, memory and storage in kilobytes; all measured."""

    leader_ms_per_s: float
    """Of the leader when nothing moves, per second."""
    heartbeat_ms: float
    submit_ms: float
    end_ms: float
    """An end and the start that follows it."""
    server_heartbeat_ms: float
    """Of PostgreSQL's sessions."""
    server_end_ms: float
    leader_mb: float
    vm_kb: float
    """Of the leader's memory."""
    job_kb: float
    """Of the database, tables and indexes."""


@dataclass(frozen=True, slots=True)
class FleetLimit:
    """One resource: what is needed, what there is, and what takes its place when it ends."""

    what: str
    needed: float
    there_is: float
    unit: str
    then: str

    @property
    def share(self) -> float:
        return self.needed / self.there_is


SUBSCRIPTIONS_MAX = 10_000
"""Of one Google Cloud project; each VM has one for control messages."""
PUBLISHED_MB_PER_S = 200.0
"""Of Pub/Sub in a small region; large ones allow twenty times as much."""
HEARTBEAT_KB = 1.0
UPSERTS_PER_S = 99_000.0
"""Rows of heartbeats by one statement, on this machine (2 cores)."""
DISK_GB = 1000.0
MEMORY_MB = 4096.0


MEASURED = UnitCosts(
    leader_ms_per_s=0.0,
    heartbeat_ms=0.55,
    submit_ms=0.76,
    end_ms=12.0,
    server_heartbeat_ms=0.01,
    server_end_ms=4.0,
    leader_mb=170.0,
    vm_kb=8.3,
    job_kb=4.0,
)
"""Where each comes from: docs/internals/scale.md."""


def needs(size: FleetSize, costs: UnitCosts) -> tuple[FleetLimit, ...]:
    """All that is needed, the scarcest first."""
    heartbeats = size.vms / size.heartbeat_s
    leader_ms = (
        costs.leader_ms_per_s
        + heartbeats * costs.heartbeat_ms
        + size.ends_per_s * costs.end_ms
        + size.submits_per_s * costs.submit_ms
    )
    server_ms = heartbeats * costs.server_heartbeat_ms + size.ends_per_s * costs.server_end_ms
    stored_gb = (size.queued + size.finished) * costs.job_kb / 1e6
    published = heartbeats * HEARTBEAT_KB / 1000
    found = (
        FleetLimit(
            *(LEADER, leader_ms / 1000, 1.0, "core"),
            then="followers fold heartbeats; then clusters in shards with a leader each",
        ),
        FleetLimit(
            *("CPU of PostgreSQL for the leader", server_ms / 1000, 2.0, "cores"),
            then="a larger database server",
        ),
        FleetLimit(
            *("rows of heartbeats", heartbeats, UPSERTS_PER_S, "/s"),
            then="followers fold heartbeats: only what changed is written",
        ),
        FleetLimit(
            *("Pub/Sub subscriptions", float(size.vms), float(SUBSCRIPTIONS_MAX), ""),
            then="VMs over several projects, or shared subscriptions with the VM as ordering key",
        ),
        FleetLimit(
            *("Pub/Sub, published by VMs", published, PUBLISHED_MB_PER_S, "MB/s"),
            then="another region's quota",
        ),
        FleetLimit(
            *("memory of the leader", costs.leader_mb + size.vms * costs.vm_kb / 1000, MEMORY_MB),
            unit="MB",
            then="clusters in shards",
        ),
        FleetLimit(
            *("database", stored_gb, DISK_GB, "GB"),
            then="events and finished jobs in partitions by month",
        ),
    )
    return tuple(sorted(found, key=lambda one: -one.share))


def fitted(measured: Mapping[int, Mapping[str, float]], known: UnitCosts) -> UnitCosts:
    """Unit costs from the smallest and the largest size that were measured; what sizes do not show
    stays as known."""
    small, large = min(measured), max(measured)
    first, last = measured[small], measured[large]

    def per_heartbeat_ms(name: str) -> float:
        return max(0.0, 1000 * (last[name] - first[name]) * HEARTBEAT_S / (large - small))

    def per_end_ms(name: str) -> float:
        more = RUSH_ENDS_PER_S - large / RUN_S
        return max(0.0, 1000 * (last[f"rush_{name}"] - last[f"steady_{name}"]) / more)

    heartbeat_ms, end_ms = per_heartbeat_ms("steady_cores"), per_end_ms("cores")
    vm_kb = max(0.0, 1000 * (last["rss_mb"] - first["rss_mb"]) / (large - small))
    moving_ms = small * (heartbeat_ms / HEARTBEAT_S + end_ms / RUN_S)
    return UnitCosts(
        leader_ms_per_s=max(
            0.0, 1000 * first["steady_cores"] - moving_ms - SUBMITS_PER_S * known.submit_ms
        ),
        heartbeat_ms=heartbeat_ms,
        submit_ms=known.submit_ms,
        end_ms=end_ms,
        server_heartbeat_ms=per_heartbeat_ms("steady_server_cores"),
        server_end_ms=per_end_ms("server_cores"),
        leader_mb=first["rss_mb"] - vm_kb * small / 1000,
        vm_kb=vm_kb,
        job_kb=known.job_kb,
    )


def leader_cores(size: FleetSize, costs: UnitCosts) -> float:
    return next(one.needed for one in needs(size, costs) if one.what == LEADER)


def checked_size(vms: int, ends_per_s: float) -> FleetSize:
    """As bench.decide pretends it."""
    return FleetSize(vms, CHECKED_QUEUED, HEARTBEAT_S, SUBMITS_PER_S, ends_per_s)


def check(seconds: float) -> None:
    """Three sizes by bench.decide; the smallest and the largest make the model, which must then
    say what the middle one needs."""
    measured = {vms: _decided(vms, seconds) for vms in CHECKED_VMS}
    costs = fitted(measured, MEASURED)
    table = Table("VMs", "ends/s", "cores, measured", "cores, model", "÷", "MB", title="the leader")
    for vms, found in measured.items():
        for name, ends in (("steady", vms / RUN_S), ("rush", RUSH_ENDS_PER_S)):
            model = leader_cores(checked_size(vms, ends), costs)
            cores = found[f"{name}_cores"]
            words = (f"{vms:,}", figure(ends), f"{cores:.3f}", f"{model:.3f}")
            table.add_row(*words, f"{model / cores:.2f}", figure(found["rss_mb"]))
    show(table, *(f"{name}: {value:.4g}" for name, value in asdict(costs).items()))


def _decided(vms: int, seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="zen-scale-") as directory:
        file = Path(directory) / "figures"
        words = ("--no-baseline", "--queued", str(CHECKED_QUEUED), "--vms", str(vms))
        subprocess.run(
            [sys.executable, "-m", "bench.decide", *words, "--seconds", str(seconds)],
            cwd=ROOT,
            env={**os.environ, VARIABLE: str(file)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return told(file)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vms", type=int, default=100_000)
    parser.add_argument("--queued", type=int, default=10_000_000)
    parser.add_argument("--heartbeat", type=float, default=HEARTBEAT_S, help="seconds between two")
    parser.add_argument("--submits", type=float, default=100.0, help="a second")
    parser.add_argument("--ends", type=float, default=100.0, help="a second")
    parser.add_argument("--check", action="store_true", help="measure three sizes (minutes)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase of --check")
    args = parser.parse_args()
    if args.check:
        check(args.seconds)
        return 0
    size = FleetSize(args.vms, args.queued, args.heartbeat, args.submits, args.ends)
    table = Table("", "needed", "there is", "÷", "when it ends", title=f"{size.vms:,} VMs")
    for one in needs(size, MEASURED):
        there_is = f"{figure(one.there_is)} {one.unit}".strip()
        table.add_row(one.what, figure(one.needed), there_is, f"{one.share:.2f}", one.then)
    show(table, "Calculated from unit costs of a 2-core machine; --check measures them here.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
