"""How long a container needs until its program runs: by `podman run` alone, by the agent, and
over the whole road from a submission on a warm VM.

    python -m bench.containers [--rounds 15] [--road]

The program itself says when it ran (`cat /proc/uptime`, 10 ms), so that no way of reading its
output counts. All ways take turns in one run; podman, runc and busybox are needed, no registry.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.table import Table

from agent.events import Exited
from bench.local import LocalStack, local_stack
from bench.report import figure, quantile, show, verdict
from tests.agent.podman import IMAGE, LIMITS, Podman
from tests.agent.runner_rig import RunnerRig

TARGET = 1.5
PROGRAM = ("cat", "/proc/uptime")
PODMAN, AGENT, ROAD = "podman run", "agent: order → program", "submit → program, warm VM"


def uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def ran_at(output: str) -> float:
    return float(output.split(maxsplit=1)[0])


def by_podman(podman: Podman) -> float:
    began = uptime()
    entry = ("--entrypoint", "/bin/cat")
    out = podman.run("run", "--rm", "--init", "--network", "host", *LIMITS, *entry, IMAGE,
                     PROGRAM[1])  # fmt: skip
    return ran_at(out) - began


async def _one_by_agent(podman: Podman, root: Path) -> float:
    rig = RunnerRig(root, docker=podman.address, image=IMAGE)
    began = uptime()
    rig.start(*PROGRAM)
    end = await rig.end()
    if not isinstance(end, Exited) or end.exit_code != 0:
        raise RuntimeError(f"the job ended otherwise: {end}")
    return ran_at(await rig.log()) - began


def by_agent(podman: Podman) -> float:
    with tempfile.TemporaryDirectory() as root:
        return asyncio.run(_one_by_agent(podman, Path(root)))


def by_road(stack: LocalStack) -> float:
    began = uptime()
    job_id = stack.submit(*PROGRAM, image=IMAGE)
    stack.finish(job_id)
    return ran_at(stack.log(job_id)) - began


def measure(ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    for way in ways.values():
        way()  # what is loaded once is loaded
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(way())
    return found


def report(found: dict[str, list[float]], rounds: int) -> int:
    table = Table(title=f"From the order to the program in its container, {rounds} rounds each")
    for heading in ("way", "p50 ms", "p90 ms", "most ms", "× podman run (p50)"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    base = quantile(found[PODMAN], 0.5)
    for name, values in found.items():
        spots = [quantile(values, 0.5), quantile(values, 0.9), max(values)]
        cells = [figure(1000 * value) for value in spots]
        table.add_row(name, *cells, figure(spots[0] / base))
    ratio = quantile(found[AGENT], 0.5) / base
    show(table, f"The agent needs {figure(ratio)} × podman run: {verdict(ratio, TARGET)} ×.")
    return 0 if ratio <= TARGET else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--road", action="store_true", help="also over a whole `zen up`")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zen-podman-") as home:
        podman = Podman(Path(home))
        if why := podman.prepare():
            raise SystemExit(f"no container can run here: {why}")
        with podman.serve():
            ways = {PODMAN: lambda: by_podman(podman), AGENT: lambda: by_agent(podman)}
            if not given.road:
                return report(measure(ways, given.rounds), given.rounds)
            os.environ["DOCKER_HOST"] = podman.address
            with local_stack() as stack:
                ways[ROAD] = lambda: by_road(stack)
                return report(measure(ways, given.rounds), given.rounds)


if __name__ == "__main__":
    raise SystemExit(main())
