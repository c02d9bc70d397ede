"""Every figure that the service is held to, in one table: figure, bound, verdict.

    python -m bench.all [--quick] [--only P9] [--markdown] [--keep FILE]

Each row is measured by a bench of its own, which is named beside it and prints more. --quick takes
smaller sizes and ends within ten minutes on two cores. A row without a bench says so; a bench that
fails or takes too long leaves its rows without a figure. --markdown prints docs/performance.md.
With --keep a bench whose figures are in the file is not measured again.
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
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from bench.figures import VARIABLE, BenchFigures, KeptFigures, told
from bench.local import ROOT
from bench.report import figure, show
from bench.rows import ROWS, RUNS, BenchPeer, BenchRow, BenchRun

QUICK_S = 570.0
"""Of all benches together; the rest of the ten minutes is for ending the last one."""
LONG_S = 7200.0
END_S = 30.0
WORDS_MAX = 100
REFUSED = 2
"""The exit code of a bench that cannot run here, and of a command line that is wrong: the last line
says why."""
HEADS = ("", "", "figure", "beside it", "must / stretch", "÷ must", "verdict", "command")
Figures = Mapping[BenchRun, BenchFigures]


def measured(run: BenchRun, quick: bool, most_s: float) -> BenchFigures:
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
                start_new_session=True,  # Ctrl-C reaches it through us, once
            )
            try:
                code = bench.wait(most_s)
            except subprocess.TimeoutExpired:
                return told(file) or f"not within {most_s:.0f} s"
            finally:
                _end(bench)
            errors.seek(0)
            last = errors.read().strip().rpartition("\n")[2][:WORDS_MAX]
        found = told(file)
    if found:
        return found
    return last if code == REFUSED else f"told nothing (exit code {code}) {last}".strip()


def _end(bench: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does: it stops what it has started."""
    if bench.poll() is not None:
        return
    bench.send_signal(signal.SIGINT)
    try:
        bench.wait(END_S)
    except subprocess.TimeoutExpired:
        bench.kill()
        bench.wait()


def measure(rows: Sequence[BenchRow], quick: bool, kept: KeptFigures) -> Figures:
    """One bench after the other."""
    needed = {run for row in rows for run in row.runs}
    deadline = time.monotonic() + QUICK_S
    figures: dict[BenchRun, BenchFigures] = {}
    for run in (run for run in RUNS if run in needed):
        title = run.title(quick)
        if (known := kept.get(title)) is not None:
            figures[run] = known
            continue
        sys.stderr.write(f"{title} …\n")
        left_s = deadline - time.monotonic()
        most_s = min(run.quick_s, max(1.0, left_s)) if quick else LONG_S
        figures[run] = measured(run, quick, most_s)
        kept.put(title, figures[run])
    return figures


# --- the table --------------------------------------------------------------------------


def _told_by(run: BenchRun, name: str, figures: Figures) -> float | str:
    found = figures[run]
    if isinstance(found, str):
        return found
    return found.get(name, "not at this size")


def value_of(row: BenchRow, figures: Figures) -> float | str:
    """The figure of a row, or why there is none."""
    if row.run is None:
        return "no bench"
    value = _told_by(row.run, row.told, figures)
    if row.over is None or isinstance(value, str):
        return value
    least = _told_by(row.over.run, row.over.told, figures)
    return f"{row.over.name}: {least}" if isinstance(least, str) else value / least


def beside(row: BenchRow, figures: Figures) -> str:
    """Figures of others, or why there are none."""

    def words(peer: BenchPeer) -> str:
        value = _told_by(peer.run, peer.told, figures)
        if isinstance(value, str):
            return f"{peer.name}: {value}"
        return f"{peer.name} {figure(value)} {peer.unit}".strip()

    return ", ".join(words(peer) for peer in row.peers)


def cells(row: BenchRow, figures: Figures, quick: bool) -> tuple[str, ...]:
    """One line of the table."""
    command = " ÷ ".join(run.title(quick) for run in row.divided)
    value = value_of(row, figures)
    if isinstance(value, str):
        shown = (value, "", "–")
    else:
        ratio = f"{value / row.must:.2f}" if row.must else ""
        shown = (f"{figure(value)} {row.unit}".strip(), ratio, row.verdict(value))
    others = beside(row, figures)
    return (row.id, row.what, shown[0], others, row.bounds(), shown[1], shown[2], command)


def table_of(rows: Sequence[BenchRow], figures: Figures, quick: bool) -> Table:
    table = Table(*HEADS, title="smaller sizes" if quick else "full sizes")
    for row in rows:
        table.add_row(*cells(row, figures, quick))
    return table


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it was measured, and what else went on there."""

    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    load: float = field(default_factory=lambda: os.getloadavg()[0])


def page_of(rows: Sequence[BenchRow], figures: Figures, quick: bool, machine: Machine) -> str:
    """docs/performance.md."""
    command = " ".join(("bench.all", *(("--quick",) if quick else ()), "--markdown"))
    lines = [
        "# Performance\n",
        "```sh show: takes minutes",
        f".venv/bin/python -m {command} > docs/performance.md",
        "```\n",
        f"One run on one machine of {machine.cores} cores; its load was {machine.load:.1f}:\n",
        f"| {' | '.join(HEADS)} |",
        f"|{'---|' * len(HEADS)}",
    ]
    for row in rows:
        *words, named = cells(row, figures, quick)
        lines.append(f"| {' | '.join((*words, f'`{named}`'))} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes, ten minutes")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="rows of these names")
    parser.add_argument("--markdown", action="store_true", help="print docs/performance.md")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="figures, kept and taken up")
    args = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # a background shell ignores Ctrl-C
    rows = [row for row in ROWS if not args.only or row.id in args.only]
    machine, began = Machine(), time.monotonic()
    figures = measure(rows, args.quick, KeptFigures(args.keep))
    if args.markdown:
        print(page_of(rows, figures, args.quick, machine), end="")
    else:
        show(
            table_of(rows, figures, args.quick),
            f"Measured in {time.monotonic() - began:.0f} s; the load before it was "
            f"{machine.load:.1f} on {machine.cores} cores (beside other work wall times and rates "
            "say little, CPU and ratios more).",
        )
    values = [(row, value_of(row, figures)) for row in rows]
    missed = any(not isinstance(v, str) and row.verdict(v) == "MISSED" for row, v in values)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
