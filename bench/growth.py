"""What a cycle costs in houses that are larger than usual: many clusters, many VMs.

    python -m bench.growth [--quick]

Each size is a run of bench/decide.py in a process of its own. With 100,000 VMs each reports every
100 s, so that as many heartbeats come as from 10,000: what grows is what the leader keeps. Its
memory is told without that of the pretended fleet.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from bench.figures import VARIABLE, tell, told
from bench.report import figure, show, verdict

QUEUED = "10000"


@dataclass(frozen=True, slots=True)
class LargeHouse:
    """One size, and what it must reach."""

    words: str
    options: tuple[str, ...]
    targets: Mapping[str, tuple[str, float]]
    """The name under which decide tells a figure → the name under which we do, and its bound."""


HOUSES = (
    LargeHouse("300 clusters", ("--clusters", "300"), {"steady_cpu_ms": ("clusters_300_ms", 60)}),
    LargeHouse(
        "100,000 VMs",
        ("--vms", "100000", "--heartbeat", "100"),
        {
            "steady_cpu_ms": ("vms_100k_ms", 100),
            "ready_s": ("vms_100k_ready_s", 8),
            "rss_mb": ("vms_100k_mb", 700),
        },
    ),
)


def measure(house: LargeHouse, seconds: float) -> Mapping[str, float]:
    """What decide tells of it."""
    with tempfile.TemporaryDirectory(prefix="zen-growth-") as directory:
        file = Path(directory) / "figures"
        command = (sys.executable, "-m", "bench.decide", "--no-baseline", "--queued", QUEUED)
        subprocess.run(  # our own command
            (*command, "--submits", "0", "--seconds", f"{seconds:g}", *house.options),
            check=True,
            env={**os.environ, VARIABLE: str(file)},
            stdout=subprocess.DEVNULL,
        )
        return told(file)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="of each phase")
    parser.add_argument("--quick", action="store_true", help="phases of 8 seconds")
    args = parser.parse_args()
    table = Table("house", "figure", "", "target")
    for house in HOUSES:
        found = measure(house, 8.0 if args.quick else args.seconds)
        for name, (our_name, bound) in house.targets.items():
            table.add_row(house.words, name, figure(found[name]), verdict(found[name], bound))
            tell(**{our_name: found[name]})
    show(
        table,
        f"20 clusters, 10,000 VMs, {int(QUEUED):,} queued unless said. CPU of a cycle: the median "
        "of the loop itself, nothing special happening.",
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
