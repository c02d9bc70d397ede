"""Whether the end of every container is told as it was, also of containers that end at once, on a
busy machine: exit codes, whole logs, nothing left.

    python -m bench.container_ends [--jobs 200] [--at-once 8] [--load 2]

Each container is a job of the agent's own runner. `--load` busy loops run beside them, at nice 10.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from agent.containers.leftovers import SHIM
from agent.events import Exited
from bench.report import figure, quantile, show
from core.clock import SystemClock
from tests.agent.podman import IMAGE, Podman
from tests.agent.runner_rig import RunnerRig

LINES = 2000
PROGRAMS = (
    ("true", 0, ""),
    ("false", 1, ""),
    ("exit 7", 7, ""),
    ("echo out; exit 3", 3, "out\n"),
    (f"seq 1 {LINES}", 0, "".join(f"{number}\n" for number in range(1, LINES + 1))),
    ("kill -TERM $$", 143, ""),
)


@dataclass(frozen=True, slots=True)
class End:
    """How one of them was told to have ended."""

    number: int
    code: int | None
    """None: a loss."""
    hung: bool
    log_whole: bool
    took_s: float


async def run_one(docker: str, root: Path, number: int) -> End:
    command, _, output = PROGRAMS[number % len(PROGRAMS)]
    rig = RunnerRig(root / str(number), docker=docker, image=IMAGE)
    clock = SystemClock().monotonic
    began = clock()
    rig.start(command, lease_id=f"lease-{number}")
    try:
        told = await rig.end()
        hung, code = False, told.exit_code
        log_whole = await rig.log() == output
        if not isinstance(told, Exited) or code is None:
            print(f"{number}: {told}", file=sys.stderr)
    except TimeoutError:
        hung, code, log_whole = True, None, False
    took_s = clock() - began
    await rig.runner.close()
    return End(number, code, hung, log_whole, took_s)


async def run_all(docker: str, jobs: int, at_once: int) -> list[End]:
    turn = asyncio.Semaphore(at_once)
    with tempfile.TemporaryDirectory() as root:

        async def in_turn(number: int) -> End:
            async with turn:
                return await run_one(docker, Path(root), number)

        return await asyncio.gather(*(in_turn(number) for number in range(jobs)))


@contextmanager
def load(loops: int) -> Iterator[None]:
    busy = [
        subprocess.Popen(["nice", "-n", "10", sys.executable, "-c", "while True: pass"])
        for _ in range(loops)
    ]
    try:
        yield
    finally:
        for loop in busy:
            loop.kill()
            loop.wait()


def report(ends: list[End], left: int, given: argparse.Namespace) -> int:
    title = (
        f"{given.jobs} containers that end at once, {given.at_once} at a time, load {given.load}"
    )
    table = Table(title=title)
    for heading in ("program", "exit code", "runs", "told right", "lost", "wrong", "hung",
                    "log whole", "p50 s", "most s"):  # fmt: skip
        table.add_column(heading, justify="left" if heading == "program" else "right")
    bad = 0
    for kind, (command, code, _) in enumerate(PROGRAMS):
        mine = [end for end in ends if end.number % len(PROGRAMS) == kind]
        right = sum(end.code == code for end in mine)
        hung = sum(end.hung for end in mine)
        lost = sum(end.code is None for end in mine) - hung
        whole = sum(end.log_whole for end in mine)
        times = [end.took_s for end in mine]
        counts = (code, len(mine), right, lost, len(mine) - right - lost - hung, hung, whole)
        cells = [str(count) for count in counts]
        table.add_row(command, *cells, figure(quantile(times, 0.5)), figure(max(times)))
        bad += 2 * len(mine) - right - whole
    show(table, f"Containers left: {left}. {'All told right.' if not bad + left else 'NOT GOOD.'}")
    return 0 if not bad + left else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--load", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zen-podman-", ignore_cleanup_errors=True) as home:
        podman = Podman(Path(home))
        if why := podman.prepare():
            raise SystemExit(f"no container can run here: {why}")
        with podman.serve(), load(given.load):
            ends = asyncio.run(run_all(podman.address, given.jobs, given.at_once))
            left = len(podman.docker.labelled(SHIM))
    return report(ends, left, given)


if __name__ == "__main__":
    raise SystemExit(main())
