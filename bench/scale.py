"""What a fleet of a given size needs of one leader, of PostgreSQL and of Pub/Sub, and what ends
first: a calculation from measured unit costs.

    python -m bench.scale [--vms 100000] [--queued 10000000] [--ends 100]
    python -m bench.scale --check      measures three sizes and prints them beside the model
    python -m bench.scale --markdown   prints docs/internals/scale.md

The unit costs are those of one 2-core machine, and stand in MEASURED alone: ratios between sizes
are worth more than the figures themselves.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.table import Table

from bench.figures import VARIABLE, told
from bench.local import ROOT
from bench.report import figure, show
from core.timers import Timers

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
    server_submit_ms: float
    server_end_ms: float
    leader_mb: float
    vm_kb: float
    """Of the leader's memory."""
    queued_kb: float
    """Of the leader's memory, per job that waits."""
    ready_s: float
    """Until the first cycle of a leader with nothing in its queue."""
    queued_us: float
    """More of it per job that waits."""
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


QUOTAS = "https://cloud.google.com/pubsub/quotas"
SUBSCRIPTIONS_MAX = 10_000
"""Of one Google Cloud project, a limit that is not raised; each VM has one for its orders."""
STREAM_MB_PER_S = 10.0
"""Of one open StreamingPull, a limit that is not raised; a leader opens one for heartbeats."""
PUBLISHED_MB_PER_S = 50.0
"""Of one project in a small region, a quota that is raised on request; large regions have more."""
HEARTBEAT_KB = 1.0
UPSERTS_PER_S = 99_000.0
"""Rows of heartbeats by one statement, on this machine (2 cores)."""
SERVER_CORES = 2.0
DISK_GB = 1000.0
MEMORY_MB = 4096.0
LEADER_LEASE_S = Timers().leader_lease_s
"""Work waits that long for a new leader anyway."""


MEASURED = UnitCosts(
    leader_ms_per_s=0.0,
    heartbeat_ms=0.33,
    submit_ms=0.76,
    end_ms=5.2,
    server_heartbeat_ms=0.01,
    server_submit_ms=0.18,
    server_end_ms=3.2,
    leader_mb=170.0,
    vm_kb=8.3,
    queued_kb=0.0,
    ready_s=0.52,
    queued_us=0.7,
    job_kb=3.2,
)
SOURCES = {
    "leader_ms_per_s": ("CPU of a leader when nothing moves, per s", "ms", "bench.scale --check"),
    "heartbeat_ms": ("CPU per heartbeat", "ms", "bench.scale --check"),
    "submit_ms": ("CPU per submission", "ms", "bench.submit_rate"),
    "end_ms": ("CPU per end, with the start that follows", "ms", "bench.loop, part scheduler"),
    "server_heartbeat_ms": ("CPU of PostgreSQL per heartbeat", "ms", "bench.scale --check"),
    "server_submit_ms": ("CPU of PostgreSQL per submission", "ms", "bench.submit_replicas"),
    "server_end_ms": ("CPU of PostgreSQL per end", "ms", "bench.loop, part postgres"),
    "leader_mb": ("memory of a leader without VMs", "MB", "bench.scale --check"),
    "vm_kb": ("memory per VM", "kB", "bench.scale --check"),
    "queued_kb": ("memory per queued job", "kB", "bench.decide, RSS at two lengths"),
    "ready_s": ("start of a leader", "s", "bench.decide"),
    "queued_us": ("the same, more per queued job", "µs", "bench.decide, two lengths"),
    "job_kb": ("database per finished job", "kB", "bench.stored_bytes"),
}
"""Each unit cost: what it is, its unit, and the command that measures it."""


def needs(size: FleetSize, costs: UnitCosts) -> tuple[FleetLimit, ...]:
    """All that is needed, the scarcest first."""
    heartbeats = size.vms / size.heartbeat_s
    leader_ms = (
        costs.leader_ms_per_s
        + heartbeats * costs.heartbeat_ms
        + size.ends_per_s * costs.end_ms
        + size.submits_per_s * costs.submit_ms
    )
    server_ms = (
        heartbeats * costs.server_heartbeat_ms
        + size.ends_per_s * costs.server_end_ms
        + size.submits_per_s * costs.server_submit_ms
    )
    memory_mb = costs.leader_mb + (size.vms * costs.vm_kb + size.queued * costs.queued_kb) / 1000
    stored_gb = (size.queued + size.finished) * costs.job_kb / 1e6
    published = heartbeats * HEARTBEAT_KB / 1000
    found = (
        FleetLimit(
            *(LEADER, leader_ms / 1000, 1.0, "core"),
            then="followers fold heartbeats; then clusters in shards with a leader each",
        ),
        FleetLimit(
            *("CPU of PostgreSQL", server_ms / 1000, SERVER_CORES, "cores"),
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
            *("heartbeats of one StreamingPull", published, STREAM_MB_PER_S, "MB/s"),
            then="a second stream; then followers, each with a part of the subscription",
        ),
        FleetLimit(
            *("Pub/Sub, published by VMs", published, PUBLISHED_MB_PER_S, "MB/s"),
            then="a larger quota",
        ),
        FleetLimit(
            *("memory of the leader", memory_mb, MEMORY_MB, "MB"),
            then="clusters in shards",
        ),
        FleetLimit(
            *("start of a leader", costs.ready_s + size.queued * costs.queued_us / 1e6),
            there_is=LEADER_LEASE_S,
            unit="s",
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
    ready_s = first["ready_s"] - CHECKED_QUEUED * known.queued_us / 1e6
    vm_kb = max(0.0, 1000 * (last["rss_mb"] - first["rss_mb"]) / (large - small))
    moving_ms = small * (heartbeat_ms / HEARTBEAT_S + end_ms / RUN_S)
    return replace(
        known,
        leader_ms_per_s=max(
            0.0, 1000 * first["steady_cores"] - moving_ms - SUBMITS_PER_S * known.submit_ms
        ),
        heartbeat_ms=heartbeat_ms,
        end_ms=end_ms,
        server_heartbeat_ms=per_heartbeat_ms("steady_server_cores"),
        server_end_ms=per_end_ms("server_cores"),
        leader_mb=first["rss_mb"] - vm_kb * small / 1000,
        vm_kb=vm_kb,
        ready_s=max(0.0, ready_s),
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


# --- the page ---------------------------------------------------------------------------

LARGE = FleetSize(100_000, 10_000_000, HEARTBEAT_S, 100.0, 100.0)
PAGE = """\
# Scale

What a fleet needs of one leader, of PostgreSQL and of Pub/Sub is calculated from unit costs. This
page is printed by `bench/scale.py`, where the unit costs stand:

```sh show: prints a table, or takes minutes
.venv/bin/python -m bench.scale --vms 100000 --queued 10000000
.venv/bin/python -m bench.scale --check
.venv/bin/python -m bench.scale --markdown > docs/internals/scale.md
```

The leader pays for what moves (heartbeats, submissions, ends), not for what waits. The unit costs
are of one 2-core machine:

| Unit cost | | Command |
|---|---|---|
{costs}

`--check` measures three sizes ({sizes} VMs), fits the unit costs to the smallest and the largest,
and prints what the model says of each beside what was measured. No size has been confirmed on a
quiet machine yet.

{vms:,} VMs at {heartbeat_s:g} s and {queued:,} queued jobs, {submits:g} submissions and {ends:g}
ends a second, the scarcest first:

| | Needed | There is | ÷ | When it ends |
|---|---|---|---|---|
{needs}

Pub/Sub's limits are of [its page of quotas]({quotas}): subscriptions
and the rate of a stream are not raised; the published bytes are those of a small region.

Of the leader's CPU heartbeats take {heartbeats:.1f} cores, ends {ended:.1f}, submissions
{submitted:.1f}. Heartbeats alone fill one core at {one_core:,} VMs and {heartbeat_s:g} s, or at
{one_core_60:,} VMs and 60 s.
"""


def page_of(costs: UnitCosts) -> str:
    """docs/internals/scale.md."""
    size, rows = LARGE, asdict(costs)
    one_core = 1000 / costs.heartbeat_ms
    return PAGE.format(
        costs="\n".join(
            f"| {what} | {rows[name]:.3g} {unit} | `{command}` |"
            for name, (what, unit, command) in SOURCES.items()
        ),
        needs="\n".join(f"| {' | '.join(_cells(one))} |" for one in needs(size, costs)),
        sizes=", ".join(f"{vms:,}" for vms in CHECKED_VMS),
        vms=size.vms,
        queued=size.queued,
        heartbeat_s=size.heartbeat_s,
        submits=size.submits_per_s,
        ends=size.ends_per_s,
        quotas=QUOTAS,
        heartbeats=size.vms / size.heartbeat_s * costs.heartbeat_ms / 1000,
        ended=size.ends_per_s * costs.end_ms / 1000,
        submitted=size.submits_per_s * costs.submit_ms / 1000,
        one_core=_thousands(one_core * size.heartbeat_s),
        one_core_60=_thousands(one_core * 60),
    )


def _thousands(value: float) -> int:
    return round(value / 1000) * 1000


def _cells(one: FleetLimit) -> tuple[str, ...]:
    there_is = f"{figure(one.there_is)} {one.unit}".strip()
    return one.what, figure(one.needed), there_is, f"{one.share:.2f}", one.then


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
    parser.add_argument("--markdown", action="store_true", help="print docs/internals/scale.md")
    args = parser.parse_args()
    if args.markdown:
        print(page_of(MEASURED), end="")
        return 0
    if args.check:
        check(args.seconds)
        return 0
    size = FleetSize(args.vms, args.queued, args.heartbeat, args.submits, args.ends)
    table = Table("", "needed", "there is", "÷", "when it ends", title=f"{size.vms:,} VMs")
    for one in needs(size, MEASURED):
        table.add_row(*_cells(one))
    show(table, "Calculated from unit costs of a 2-core machine; --check measures them here.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
