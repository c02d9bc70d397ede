"""Every figure that the service is held to, in one table: figure, bound, verdict.

    python -m bench.all [--quick] [--only P9]

Each row is measured by a bench of its own, which is named beside it and prints more. --quick takes
smaller sizes and ends within ten minutes on two cores. A row without a bench says so; a bench that
fails or takes too long leaves its rows without a figure.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from bench.figures import VARIABLE, told
from bench.local import ROOT
from bench.report import figure, show
from bench.rows import ROWS, BenchRow, BenchRun

QUICK_S = 120.0
LONG_S = 3600.0
END_S = 60.0
WORDS_MAX = 100
Figures = Mapping[BenchRun, Mapping[str, float] | str]
"""What each bench told, or why it told nothing."""


def measured(run: BenchRun, quick: bool) -> dict[str, float] | str:
    """What one bench tells; words if it could not."""
    if importlib.util.find_spec(run.module) is None:
        return "no bench"
    with tempfile.TemporaryDirectory(prefix="zen-bench-") as directory:
        file = Path(directory) / "figures"
        with (Path(directory) / "errors").open("w+") as errors:
            bench = subprocess.Popen(
                [sys.executable, *run.command(quick)],
                cwd=ROOT,
                env={**os.environ, VARIABLE: str(file)},
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
            most_s = QUICK_S if quick else LONG_S
            try:
                code = bench.wait(most_s)
            except subprocess.TimeoutExpired:
                _end(bench)
                return f"not within {most_s:g} s"
            errors.seek(0)
            last = errors.read().strip().rpartition("\n")[2]
        found = told(file)
    if found:
        return found
    return f"told nothing (exit code {code}) {last[:WORDS_MAX]}".strip()


def _end(bench: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does: it stops what it has started."""
    bench.send_signal(signal.SIGINT)
    try:
        bench.wait(END_S)
    except subprocess.TimeoutExpired:
        bench.kill()
        bench.wait()


def value_of(row: BenchRow, figures: Figures) -> float | str:
    """The figure of a row, or why there is none."""
    found = []
    for run in row.runs:
        told_by = figures[run]
        if isinstance(told_by, str):
            return told_by
        if row.told not in told_by:
            return "not measured here"
        found.append(told_by[row.told])
    if not found:
        return "no bench"
    return found[0] / found[1] if row.peer is not None else found[0]


def cells(row: BenchRow, figures: Figures, quick: bool) -> tuple[str, ...]:
    """One line of the table."""
    command = " ÷ ".join(" ".join(run.command(quick)[1:]) for run in row.runs)
    value = value_of(row, figures)
    if isinstance(value, str):
        shown = (value, "", "–")
    else:
        ratio = f"{value / row.must:.2f}" if row.must else ""
        shown = (f"{figure(value)} {row.unit}".strip(), ratio, row.verdict(value))
    return (row.id, row.what, shown[0], row.bounds(), *shown[1:], command)


def table_of(rows: Sequence[BenchRow], figures: Figures, quick: bool) -> Table:
    title = "smaller sizes" if quick else "full sizes"
    table = Table("", "", "figure", "must / stretch", "÷ must", "verdict", "command", title=title)
    for row in rows:
        table.add_row(*cells(row, figures, quick))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes, ten minutes")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="rows of these names")
    args = parser.parse_args()
    rows = [row for row in ROWS if not args.only or row.id in args.only]
    load = os.getloadavg()[0]
    began, figures = time.monotonic(), dict[BenchRun, dict[str, float] | str]()
    for run in dict.fromkeys(run for row in rows for run in row.runs):
        sys.stderr.write(f"{' '.join(run.command(args.quick)[1:])} …\n")
        figures[run] = measured(run, args.quick)
    lasted_s = time.monotonic() - began
    show(
        table_of(rows, figures, args.quick),
        f"Measured in {lasted_s:.0f} s; the load before it was {load:.1f} on {os.cpu_count()} cores"
        " (beside other work wall times and rates say little, CPU and ratios more).",
    )
    values = [(row, value_of(row, figures)) for row in rows]
    missed = any(not isinstance(v, str) and row.verdict(v) == "MISSED" for row, v in values)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
