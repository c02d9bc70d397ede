"""zen check and zen test: the same commands that a commit and the continuous integration need."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cli.options import AsJson
from cli.place import ROOT
from cli.screen import emit, note, say
from core.clock import SystemClock

FAST_TESTS = "fast tests"
PYTEST = (sys.executable, "-m", "pytest", "-ra")


@dataclass(frozen=True, slots=True)
class Step:
    """One tool and how it is called."""

    name: str
    argv: tuple[str, ...]


def _tool(name: str) -> str:
    """The tool of the environment that runs us, wherever PATH points."""
    return str(Path(sys.executable).parent / name)


def steps() -> tuple[Step, ...]:
    """What `zen check` runs, in order: the quick ones first."""
    return (
        Step("format", (_tool("ruff"), "format", "--check", "--quiet", ".")),
        Step("lint", (_tool("ruff"), "check", "--quiet", ".")),
        Step("imports", (_tool("lint-imports"),)),
        Step("types", (sys.executable, "-m", "mypy")),
        Step(
            FAST_TESTS,
            (sys.executable, "-m", "pytest", "-m", "not slow", "-q", "-n", "auto"),
        ),
    )


def check(
    tests: Annotated[
        bool, typer.Option("--tests/--no-tests", help="Without: zen test runs them anyway.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Format, lint, import layers, types and fast tests: all that a commit needs.

    \b
    Examples:
      zen check
      zen check --no-tests && zen test
    """
    results = [_run(step, as_json) for step in steps() if tests or step.name != FAST_TESTS]
    failed = [name for name, code, _ in results if code != 0]
    if as_json:
        emit(
            {
                "ok": not failed,
                "steps": [{"name": n, "exit_code": c, "seconds": s} for n, c, s in results],
            }
        )
    elif failed:
        note(f"check failed: {', '.join(failed)}")
    else:
        say(f"all good in {sum(s for _, _, s in results):.1f} s")
    if failed:
        raise typer.Exit(1)


def run_tests(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Runs the tests, slow ones too; further words go to pytest.

    \b
    Examples:
      zen test
      zen test tests/core -q
      zen test -k stockout
    """
    if ctx.args:
        parts = [Step("tests", (*PYTEST, "-n", "2", "--dist", "loadfile", *ctx.args))]
    else:
        parts = list(parts_of_tests())
    results = [_run(part, as_json, announce=len(parts) > 1) for part in parts]
    codes = [code for _, code, _ in results]
    if as_json:
        steps = [{"name": n, "exit_code": c, "seconds": s} for n, c, s in results]
        emit({"ok": not any(codes), "steps": steps})
    raise typer.Exit(max(codes))


def parts_of_tests() -> tuple[Step, ...]:
    """Whole stacks of processes get the machine to themselves: their deadlines are real. The
    simulation brings its own workers, and its time is not ours."""
    stacks = "tests/e2e"
    simulation = ("tests/sim/test_simulation.py", "tests/sim/test_simulator_can_fail.py")
    others = tuple(f"--ignore={path}" for path in (stacks, *simulation))
    return (
        Step("units and adapters", (*PYTEST, "-n", "2", "--dist", "loadfile", *others)),
        Step("whole stacks", (*PYTEST, stacks)),
        Step("simulation", (*PYTEST, "-n", "2", *simulation)),
    )


def _run(step: Step, as_json: bool, *, announce: bool = True) -> tuple[str, int, float]:
    """The tool's own output goes to people; stdout stays clean when it belongs to JSON."""
    clock = SystemClock()
    began = clock.monotonic()
    output = sys.stderr.fileno() if as_json else None
    done = subprocess.run(step.argv, cwd=ROOT, stdout=output, check=False)
    took_s = round(clock.monotonic() - began, 2)
    if announce and not as_json:
        say(f"{'ok    ' if done.returncode == 0 else 'FAILED'} {step.name} ({took_s:.1f} s)")
    return step.name, done.returncode, took_s
