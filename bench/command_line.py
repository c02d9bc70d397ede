"""How long people wait for the command line on a quiet local stack.

    python -m bench.command_line [--rounds 20]

Each command is a process of its own, as people call it: `./zen`, wall and CPU, medians. Beside it
`python -c pass`, and Slurm's squeue where it is installed and answers.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rich.table import Table

from bench.figures import tell
from bench.local import ROOT, local_stack
from bench.report import figure, show, verdict

WALL_MS = 150.0
HELP_MS = 100.0
JOB = "JOB"
COMMANDS = {
    "jobs": ("jobs",),
    "submit": ("submit", "-q", "--gpu-type", "l4", "--", "true"),
    "show": ("show", JOB),
    "status": ("status",),
    "help": ("--help",),
}
TOLD = tuple(f"{name}_{what}" for name in COMMANDS for what in ("ms", "cpu_ms"))


def timed(argv: Sequence[str], environment: Mapping[str, str], rounds: int) -> tuple[float, float]:
    """(wall, CPU) in milliseconds; the first call fills the caches and does not count."""
    wall, spent = [], []
    for _ in range(rounds + 1):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(argv, check=True, env=environment, stdout=subprocess.DEVNULL, cwd=ROOT)
        wall.append(1000 * (time.perf_counter() - began))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        spent.append(1000 * used)
    return statistics.median(wall[1:]), statistics.median(spent[1:])


def peers(rounds: int) -> dict[str, tuple[float, float]]:
    found = {"python -c pass": timed((sys.executable, "-c", "pass"), os.environ, rounds)}
    if squeue := shutil.which("squeue"):
        # It may be installed while no controller answers.
        with suppress(subprocess.CalledProcessError):
            found["squeue"] = timed((squeue,), os.environ, rounds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    zen = str(ROOT / "zen")
    with local_stack() as stack:
        job = stack.submit("true", gpu_type="l4")
        stack.finish(job)
        environment = {**os.environ, "ZEN_HOME": str(stack.home)}
        found = {}
        for name, words in COMMANDS.items():
            named = (job if word == JOB else word for word in words)
            found[name] = timed((zen, *named), environment, rounds)
        beside = peers(rounds)
    table = Table("", "wall, ms", "CPU, ms", "target", title=f"medians of {rounds} calls")
    for name, (wall, spent) in (found | beside).items():
        target = "" if name in beside else verdict(wall, HELP_MS if name == "help" else WALL_MS)
        table.add_row(name, figure(wall), figure(spent), target)
    show(table)
    tell(**{f"{name}_ms": wall for name, (wall, _) in found.items()})
    tell(**{f"{name}_cpu_ms": spent for name, (_, spent) in found.items()})


if __name__ == "__main__":
    main()
