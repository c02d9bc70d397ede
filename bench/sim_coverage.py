"""How much of the service the simulation alone runs: `python -m bench.sim_coverage`.

A line counts if the compiler made instructions of it; that is asked of the code objects
(`co_lines`), not guessed from the text. Left out of every count: a lone `...`, which is no body but
the place of one, and `assert_never`, which is there so as never to be reached. No function is left
out. Files are left out as a whole, each with its reason, and are shown all the same.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
LEAST = 0.90
SEEDS, SMALL_SEEDS = 12, 3
JOBS, SMALL_JOBS = 210, 25
WORLDS = ("usual", "v1", "own")
"""All faults at once; older workers; machines that are there anyway. The last two are small."""
ROOMS: Mapping[str, str] = {
    "scheduler": "scheduler/ without api/",
    "orchestrator": "orchestrator/",
    "migs": "migs/ without its Google adapter",
    "agent": "the agent's logic",
}
_GOOGLE = "the Google adapter: it speaks to Compute over HTTP (tests/migs)"
_MACHINE = "not logic: processes, containers, disks and sockets of the machine (tests/agent)"
_WIRING = "wiring: it puts the real adapters together, which a simulated run replaces (tests/e2e)"
LEFT_OUT: Mapping[str, str] = {
    "scheduler/api/": "the HTTP doors and pages (tests/api)",
    "scheduler/app.py": _WIRING,
    "scheduler/operations/first_config.py": _WIRING,
    "scheduler/__main__.py": _WIRING,
    "scheduler/operations/logs.py": "wiring: the format of a real process's log lines",
    **dict.fromkeys(
        (
            "migs/advice.py",
            "migs/rate_limit.py",
            "migs/calling.py",
            "migs/errors.py",
            "migs/google_compute.py",
            "migs/library.py",
            "migs/responses.py",
            "migs/group_settings.py",
        ),
        _GOOGLE,
    ),
    **dict.fromkeys(
        (
            "agent/__main__.py",
            "agent/containers/shim.py",
            "agent/containers/spec.py",
            "agent/containers/docker.py",
            "agent/environment.py",
            "agent/containers/first_process.py",
            "agent/gpus.py",
            "agent/inventory.py",
            "agent/shim.py",
            "agent/runtimes.py",
            "agent/containers/leftovers.py",
            "agent/logs.py",
            "agent/main.py",
            "agent/metadata.py",
            "agent/node.py",
            "agent/outputs.py",
            "agent/containers/registry.py",
            "agent/runner.py",
            "agent/status_file.py",
        ),
        _MACHINE,
    ),
}
"""File or folder → why it is no part of the guarantee."""
Lines = dict[str, set[int]]
"""Path from the root → numbers of lines."""


@dataclass(frozen=True, slots=True)
class _SeedTask:
    """One run of one seed."""

    seed: int
    world: str = "usual"


@dataclass(frozen=True, slots=True)
class FileCount:
    """One file: its lines, and the lines that no run reached."""

    path: str
    lines: int
    missed: tuple[int, ...]
    left_out: str
    """Why it does not count; empty: it does."""

    @property
    def room(self) -> str:
        return self.path.partition("/")[0]

    @property
    def run(self) -> int:
        return self.lines - len(self.missed)


# --- which lines there are ------------------------------------------------------------------------


def files(root: Path) -> list[str]:
    """Of the rooms that the guarantee speaks of."""
    found = (path for room in ROOMS for path in (root / room).rglob("*.py"))
    return sorted(path.relative_to(root).as_posix() for path in found)


def reason_of(path: str) -> str:
    """Why the file is left out; empty: it counts."""
    return next((why for name, why in LEFT_OUT.items() if path.startswith(name)), "")


def lines_of(text: str) -> set[int]:
    """The lines that the compiler made something of, without lines that are no code by intent."""
    idle = {line for node in ast.walk(ast.parse(text)) if _is_idle(node) for line in _span(node)}
    return _compiled(compile(text, "<source>", "exec")) - idle


def _compiled(code: CodeType) -> set[int]:
    lines = {line for _, _, line in code.co_lines() if line}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            lines |= _compiled(inner)
    return lines


def _is_idle(node: ast.AST) -> bool:
    match node:
        case ast.Expr(ast.Constant(value)):
            return value is ...
        case ast.Expr(ast.Call(ast.Name("assert_never"))):
            return True
        case _:
            return False


def _span(node: ast.AST) -> range:
    assert isinstance(node, ast.Expr)
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


# --- which lines run ------------------------------------------------------------------------------


class Tracer:
    """Told by the interpreter of every line of the rooms; a function whose lines have all been seen
    is not watched any more, or a run would take ten times as long."""

    def __init__(self, root: Path) -> None:
        self._paths = {str(root / path): path for path in files(root)}
        # By identity: code objects compare and hash by their content, which takes long.
        self._left: dict[int, set[int]] = {}
        self._known: list[CodeType] = []
        self.hit: Lines = {path: set() for path in self._paths.values()}

    def __call__(self, frame: FrameType, _: str, __: Any) -> Any:
        left = self._left.get(id(frame.f_code))
        if left is None:
            left = self._meet(frame.f_code)
        if not left:
            return None
        self._seen(frame)
        return self._line

    def _meet(self, code: CodeType) -> set[int]:
        self._known.append(code)  # kept, or another could come under its number
        ours = code.co_filename in self._paths
        left = {line for _, _, line in code.co_lines() if line} if ours else set()
        self._left[id(code)] = left
        return left

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self._seen(frame)
        return self._line

    def _seen(self, frame: FrameType) -> None:
        self._left[id(frame.f_code)].discard(frame.f_lineno)
        self.hit[self._paths[frame.f_code.co_filename]].add(frame.f_lineno)


_tracer: Tracer | None = None


def traced(task: _SeedTask) -> Lines:
    """In a fresh process: what it runs of the rooms, from their import on. A run that breaks a
    guarantee counts for nothing."""
    global _tracer  # noqa: PLW0603  # one interpreter, one tracer
    if _tracer is None:
        loaded = [room for room in ROOMS if room in sys.modules]
        assert not loaded, f"{loaded} were loaded before the tracer: their first lines are missed"
        _tracer = Tracer(ROOT)
    sys.settrace(_tracer)
    try:
        _simulate(task)
    finally:
        sys.settrace(None)
    return _tracer.hit


def _simulate(task: _SeedTask) -> None:
    # Not before the tracer is set: what runs on import counts, too.
    from bench.worlds.own_machines import simulate_own  # noqa: PLC0415
    from bench.worlds.v1_workers import simulate_v1  # noqa: PLC0415
    from sim.virtual.report import failure_text  # noqa: PLC0415
    from sim.virtual.run import SimulationPlan, simulate  # noqa: PLC0415

    small = SimulationPlan(task.seed, jobs=SMALL_JOBS, replicas=2)
    match task.world:
        case "v1":
            outcome = simulate_v1(small)
        case "own":
            outcome = simulate_own(small)
        case _:
            outcome = simulate(SimulationPlan(task.seed, jobs=JOBS))
    if outcome.violations:
        raise RuntimeError(failure_text(outcome))


def measure(tasks: Sequence[_SeedTask], workers: int) -> Iterator[Lines]:
    """As they end. Processes of their own, so that the tracer is there before the service is."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(traced, tasks)


# --- the verdict ----------------------------------------------------------------------------------


def counts(root: Path, hits: Iterable[Lines]) -> list[FileCount]:
    """Every file of the rooms, with what all runs together reached of it."""
    hit: Lines = {path: set() for path in files(root)}
    for lines in hits:
        for path, numbers in lines.items():
            hit[path] |= numbers
    found = []
    for path, numbers in hit.items():
        want = lines_of((root / path).read_text())
        found.append(FileCount(path, len(want), tuple(sorted(want - numbers)), reason_of(path)))
    return found


def share(found: Iterable[FileCount]) -> float:
    """Of all their lines, how many ran; of none, all."""
    known = list(found)
    lines = sum(each.lines for each in known)
    return sum(each.run for each in known) / lines if lines else 1.0


def shares(found: Sequence[FileCount], *, wiring: bool = False) -> dict[str, float]:
    """Each room's part; `wiring` counts the files that put real adapters together, too."""
    return {
        room: share(
            each
            for each in found
            if each.room == room
            and (not each.left_out or (wiring and each.left_out.startswith("wiring")))
        )
        for room in ROOMS
    }


def _print(found: Sequence[FileCount], *, missing: bool) -> None:
    console = Console(width=110)
    table = Table("FILE", box=None)
    for heading in ("LINES", "RUN", "SHARE"):
        table.add_column(heading, justify="right")
    for each in found:
        if not each.left_out and each.lines:
            table.add_row(each.path, str(each.lines), str(each.run), f"{share([each]):.1%}")
    console.print(table)
    if missing:
        for each in found:
            if not each.left_out and each.missed:
                print(f"{each.path}: {_ranges(each.missed)}")
    print("\nLeft out:")
    for name, why in LEFT_OUT.items():
        print(f"  {name}: {why}")
    print()
    rooms = Table("ROOM", box=None)
    for heading in ("RUN", "WITH THE WIRING", f"AT LEAST {LEAST:.0%}"):
        rooms.add_column(heading, justify="right")
    with_wiring = shares(found, wiring=True)
    for room, part in shares(found).items():
        verdict = "yes" if part >= LEAST else "NO"
        rooms.add_row(ROOMS[room], f"{part:.1%}", f"{with_wiring[room]:.1%}", verdict)
    console.print(rooms)


def _as_json(found: Sequence[FileCount]) -> dict[str, object]:
    return {
        "rooms": shares(found),
        "with_wiring": shares(found, wiring=True),
        "files": [asdict(each) for each in found],
    }


def _ranges(numbers: Sequence[int]) -> str:
    """1-3, 7, 9-10"""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return ", ".join("-".join(str(end) for end in span) for span in spans)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.sim_coverage",
        description="Which lines of the service the simulation runs; exit code 1 below "
        f"{LEAST:.0%} in any room.",
        epilog="Examples:\n  python -m bench.sim_coverage\n"
        "  python -m bench.sim_coverage --seeds 40 --missing\n"
        "  python -m bench.sim_coverage --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many ({SEEDS})")
    parser.add_argument(
        "--small-seeds",
        type=int,
        default=SMALL_SEEDS,
        help="how many of each of the small worlds, that of older workers and that of machines "
        f"which are there anyway ({SMALL_SEEDS})",
    )
    parser.add_argument("--workers", type=int, default=0, help="side by side; 0: one per core")
    parser.add_argument("--missing", action="store_true", help="name the lines that never ran")
    parser.add_argument("--json", action="store_true", help="for scripts")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    said = _arguments(argv)
    if said.seeds < 1 or said.small_seeds < 0:
        told = f"--seeds {said.seeds} --small-seeds {said.small_seeds}"
        print(f"{told}: expected 1 or more, 0 or more", file=sys.stderr)
        return 2
    tasks = [_SeedTask(seed) for seed in range(said.seed, said.seed + said.seeds)]
    small = range(1, said.small_seeds + 1)
    tasks += [_SeedTask(seed, world) for world in WORLDS[1:] for seed in small]
    try:
        found = counts(ROOT, measure(tasks, said.workers or os.cpu_count() or 1))
    except RuntimeError as broken:
        print(broken, file=sys.stderr)
        return 1
    if said.json:
        print(json.dumps(_as_json(found), indent=2))
    else:
        _print(found, missing=said.missing)
    return int(min(shares(found).values()) < LEAST)


if __name__ == "__main__":
    sys.exit(main())
