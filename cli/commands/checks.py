"""zen check and zen test: the same commands that a commit and the continuous integration need."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import typer

from cli.options import AsJson, command
from cli.output.printing import Answer, fitted, say
from cli.paths import ROOT
from core.clock import SystemClock

FAST_TESTS = "fast tests"
PYTEST = (sys.executable, "-m", "pytest", "-ra")
SIDE_BY_SIDE = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
"""Three at a time, since they wait more than they work; the tests of one file together, for what
they share; tests/conftest.py has the order of the files."""

PATIENT = "--timeout=3600"
"""Beside other work a test takes as long as that work."""
LEAST_PRIORITY = ("nice", "-n", "19")

Result = tuple[str, int, float]
"""Name, exit code, seconds."""


@dataclass(frozen=True, slots=True)
class CheckStep:
    """One tool and how it is called."""

    name: str
    argv: tuple[str, ...]
    aside: bool = False
    """It runs beside the others, on the processor time that they leave; its words come last."""


def _tool(name: str) -> str:
    """The tool of the environment that runs us, wherever PATH points."""
    return str(Path(sys.executable).parent / name)


def steps() -> tuple[CheckStep, ...]:
    """What `zen check` runs, in order: the quick ones first."""
    return (
        CheckStep("format", (_tool("ruff"), "format", "--check", "--quiet", ".")),
        CheckStep("lint", (_tool("ruff"), "check", "--quiet", ".")),
        CheckStep("imports", (_tool("lint-imports"),)),
        CheckStep("types", (sys.executable, "-m", "mypy")),
        CheckStep(
            FAST_TESTS,
            (sys.executable, "-m", "pytest", "-m", "not slow", "-q", "-n", "auto"),
        ),
    )


@command
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
    told = [{"name": n, "exit_code": c, "seconds": s} for n, c, s in results]
    good = f"all good in {sum(s for _, _, s in results):.1f} s"
    bad = f"check failed: {', '.join(failed)}"
    notes, text = ([bad], ()) if failed else ((), [good])
    Answer({"ok": not failed, "steps": told}, text, notes, 1 if failed else 0).print(as_json)


def run_tests(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Runs the tests, slow ones too; further words go to pytest.

    \b
    Examples:
      zen test
      zen test tests/core -q
      zen test -k stockout
    """
    if ctx.args:
        parts: tuple[CheckStep, ...] = (CheckStep("tests", (*PYTEST, *SIDE_BY_SIDE, *ctx.args)),)
    else:
        parts = parts_of_tests()
    with tempfile.TemporaryDirectory(prefix="zen-test-") as scratch:
        results = _run_parts(parts, Path(scratch), as_json)
    code = max(part.code for part in results)
    headings = ("PART", "PASSED", "FAILED", "SKIPPED", "SECONDS", "RESULT")
    rows = [part.row() for part in results]
    table = fitted(headings, rows, right="PASSED FAILED SKIPPED SECONDS", below="RESULT")
    told = {"ok": code == 0, "steps": [part.as_json() for part in results]}
    Answer(told, [table], code=code).print(as_json)


def parts_of_tests() -> tuple[CheckStep, ...]:
    """Whole stacks of processes mostly wait, on deadlines that are real: the simulation, which
    only computes, takes what they leave of the processors and is never in their way."""
    stacks = ("tests/e2e", "tests/clients", "tests/attacks")
    examples = "tests/examples"
    simulation = ("tests/sim/virtual/test_run.py", "tests/sim/virtual/test_run_can_fail.py")
    others = tuple(f"--ignore={path}" for path in (*stacks, examples, *simulation))
    return (
        CheckStep("units and adapters", (*PYTEST, *SIDE_BY_SIDE, *others)),
        CheckStep("whole stacks", (*PYTEST, *SIDE_BY_SIDE, *stacks)),
        CheckStep("examples", (*PYTEST, *SIDE_BY_SIDE, examples)),
        CheckStep("simulation", (*PYTEST, "-n", "2", PATIENT, *simulation), aside=True),
    )


@dataclass(frozen=True, slots=True)
class PartResult:
    """How a part of the tests ended. The counts are None if pytest could not even begin."""

    name: str
    code: int
    seconds: float
    counts: tuple[int, int, int] | None
    """Passed, failed (errors too), skipped."""

    def row(self) -> tuple[object, ...]:
        result = "ok" if self.code == 0 else f"FAILED (exit code {self.code})"
        return (self.name, *(self.counts or ("-", "-", "-")), f"{self.seconds:.1f}", result)

    def as_json(self) -> dict[str, object]:
        said: dict[str, object] = {
            "name": self.name,
            "exit_code": self.code,
            "seconds": self.seconds,
        }
        if self.counts is not None:
            said |= dict(zip(("passed", "failed", "skipped"), self.counts, strict=True))
        return said


def _run_parts(parts: Sequence[CheckStep], scratch: Path, as_json: bool) -> list[PartResult]:
    reports = [scratch / f"{number}.xml" for number in range(len(parts))]
    steps = [
        replace(part, argv=(*PYTEST, f"--junitxml={report}", *part.argv[len(PYTEST) :]))
        for part, report in zip(parts, reports, strict=True)
    ]
    results: dict[str, Result] = {}
    with ExitStack() as stack:
        waits = [stack.enter_context(_aside(one, scratch, as_json)) for one in steps if one.aside]
        for one in steps:
            if not one.aside:
                results[one.name] = _run(one, as_json)
        for wait in waits:
            ended = wait()
            results[ended[0]] = ended
    return [
        PartResult(*results[step.name], _counts(report))
        for step, report in zip(steps, reports, strict=True)
    ]


@contextmanager
def _aside(step: CheckStep, scratch: Path, as_json: bool) -> Iterator[Callable[[], Result]]:
    """Runs it until the end of the block at the latest; the call waits and says what it said."""
    clock = SystemClock()
    began, told = clock.monotonic(), scratch / f"{step.name}.txt"
    with told.open("wb") as out:
        process = subprocess.Popen(
            (*LEAST_PRIORITY, *step.argv), cwd=ROOT, stdout=out, stderr=subprocess.STDOUT
        )

    def wait() -> Result:
        code = process.wait()
        stream = sys.stderr if as_json else sys.stdout
        stream.write(told.read_text(encoding="utf-8", errors="replace"))
        stream.flush()
        return _told(step, code, clock.monotonic() - began, as_json)

    try:
        yield wait
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def _counts(report: Path) -> tuple[int, int, int] | None:
    """From pytest's own report; None if it wrote none, or elsewhere because it was told to."""
    try:
        suites = ElementTree.parse(report).getroot().iter("testsuite")  # noqa: S314  # our own file
        said = [
            [int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")]
            for suite in suites
        ]
    except (OSError, ElementTree.ParseError):
        return None
    tests, failures, errors, skipped = (sum(column) for column in zip(*said, strict=True))
    return tests - failures - errors - skipped, failures + errors, skipped


def _run(step: CheckStep, as_json: bool) -> Result:
    """The tool's own output goes to people; stdout stays clean when it belongs to JSON."""
    clock = SystemClock()
    began = clock.monotonic()
    output = sys.stderr.fileno() if as_json else None
    done = subprocess.run(step.argv, cwd=ROOT, stdout=output, check=False)
    return _told(step, done.returncode, clock.monotonic() - began, as_json)


def _told(step: CheckStep, code: int, took_s: float, as_json: bool) -> Result:
    if not as_json:
        say(f"{'ok    ' if code == 0 else 'FAILED'} {step.name} ({took_s:.1f} s)")
    return step.name, code, round(took_s, 2)
