"""The benchmark's figures for people, for scripts and for the documentation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from bench.capacity_verdict import METRICS, CapacityVerdict, Suite
from bench.replay.suites import WORDS
from bench.study import StudyCheck

DEAR_MUST = 1.01


@dataclass(frozen=True, slots=True)
class Dear:
    """Our dollars with a dear zone in the list, over those without."""

    suite: str
    value: float


@dataclass(frozen=True, slots=True)
class Report:
    """All that a run found."""

    rotations: int
    seed: int
    vm_max: int
    sources: tuple[str, ...]
    suites: tuple[Suite, ...]
    verdicts: tuple[CapacityVerdict, ...]
    checks: tuple[StudyCheck, ...]
    dear: tuple[Dear, ...]


# --- printing ----------------------------------------------------------------------------

_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("wait s", "wait_mean_s", ".0f"),
    ("p50", "wait_p50_s", ".0f"),
    ("p95", "wait_p95_s", ".0f"),
    ("$/useful h", "usd_per_useful_hour", ".3f"),
    ("$ wasted", "usd_wasted", ".0f"),
    ("never-ran h", "never_ran_h", ".1f"),
    ("req ÷ used", "requested_per_used", ".3f"),
    ("inflation", "inflation", ".3f"),
    ("req/job", "requests_per_job", ".2f"),
    ("asks/job", "creates_per_job", ".2f"),
    ("req/start", "requests_per_start", ".2f"),
    ("calls", "calls", ".0f"),
    ("jobs/h", "jobs_per_hour", ".1f"),
    ("VMs", "vms_most", ".0f"),
)
_WITH_INTERVAL = ("wait_mean_s", "usd_per_useful_hour")


def suite_table(suite: Suite, vm_max: int) -> Table:
    table = Table(title=f"{suite.name} (vm_max {vm_max})", title_justify="left")
    table.add_column("policy")
    for heading, _, _ in _COLUMNS:
        table.add_column(heading, justify="right")
    for policy in suite.runs:
        table.add_row(WORDS[policy], *_cells(suite, policy))
    return table


def _cells(suite: Suite, policy: str) -> Iterator[str]:
    for _, metric, form in _COLUMNS:
        found = suite.estimate(policy, metric)
        interval = metric in _WITH_INTERVAL and not math.isnan(found.half)
        yield f"{found.mean:{form}}" + (f" ±{found.half:{form}}" if interval else "")


def verdict_table(verdicts: Sequence[CapacityVerdict]) -> Table:
    table = Table(title="Targets", title_justify="left")
    for heading in ("target", "suite", "value", "must", "stretch", "reached"):
        table.add_column(heading, justify="left" if heading in ("target", "suite") else "right")
    for v in verdicts:
        table.add_row(
            v.target, v.suite, f"{v.value:.3f}", f"≤ {v.must:g}", f"≤ {v.stretch:g}", v.words
        )
    return table


def check_table(checks: Sequence[StudyCheck]) -> Table:
    table = Table(title="Are the rivals what a study of these traces found?", title_justify="left")
    for heading in ("suite", "ratio", "here", "study", "off", "within 15 %"):
        table.add_column(heading, justify="left" if heading in ("suite", "ratio") else "right")
    for c in checks:
        here, study, off = f"{c.here:.3f}", f"{c.study:.3f}", f"{100 * c.off:+.1f} %"
        table.add_row(c.suite, c.what, here, study, off, "yes" if c.valid else "NO")
    return table


def print_report(report: Report) -> None:
    console = Console(width=180)
    for line in report.sources:
        console.print(line, highlight=False)
    console.print(f"means of {report.rotations} rotations, seed {report.seed}", highlight=False)
    for suite in report.suites:
        console.print(suite_table(suite, report.vm_max))
    if report.verdicts:
        console.print(verdict_table(report.verdicts))
    for dear in report.dear:
        word = "reached" if dear.value <= DEAR_MUST else "MISSED"
        text = (
            f"with the dear zone, {dear.suite}: dollars × {dear.value:.4f} (≤ {DEAR_MUST}) {word}"
        )
        console.print(text, highlight=False)
    if report.checks:
        console.print(check_table(report.checks))


def as_json(report: Report) -> dict[str, object]:
    return {
        "rotations": report.rotations,
        "seed": report.seed,
        "vm_max": report.vm_max,
        "sources": list(report.sources),
        "suites": [
            {
                "name": suite.name,
                "jobs": suite.jobs,
                "boot_s": suite.boot_s,
                "spot": suite.spot,
                "policies": {
                    policy: {metric: _pair(suite, policy, metric) for metric in METRICS}
                    for policy in suite.runs
                },
            }
            for suite in report.suites
        ],
        "targets": [asdict(v) | {"reached": v.words} for v in report.verdicts],
        "dear": [asdict(d) | {"must": DEAR_MUST} for d in report.dear],
        "validity": [asdict(c) | {"off": c.off, "valid": c.valid} for c in report.checks],
    }


def _pair(suite: Suite, policy: str, metric: str) -> dict[str, float | None]:
    found = suite.estimate(policy, metric)
    return {"mean": found.mean, "half": None if math.isnan(found.half) else found.half}


# --- for the documentation ---------------------------------------------------------------


def as_markdown(report: Report) -> str:
    """The same tables as text for a page."""
    return "\n".join(_markdown(report)) + "\n"


def _markdown(report: Report) -> Iterator[str]:
    yield f"Means of {report.rotations} rotations, seed {report.seed}, `vm_max` {report.vm_max}."
    yield from (f"- {line}" for line in report.sources)
    for suite in report.suites:
        yield from ("", f"**{suite.name}**", "")
        yield from _rows(["policy", *(heading for heading, _, _ in _COLUMNS)])
        for policy in suite.runs:
            name = WORDS[policy]
            yield _row([f"**{name}**" if policy == "ours" else name, *_cells(suite, policy)])
    if report.verdicts:
        yield ""
        yield from _rows(["target", "suite", "value", "must", "stretch", "reached"])
        for v in report.verdicts:
            cells = [f"{v.value:.3f}", f"≤ {v.must:g}", f"≤ {v.stretch:g}"]
            yield _row([v.target, v.suite, *cells, v.words])
        for d in report.dear:
            word = "must" if d.value <= DEAR_MUST else "MISSED"
            cells = [f"{d.value:.4f}", f"≤ {DEAR_MUST:g}", ""]
            yield _row(["$/h with ÷ without the dear zone", d.suite, *cells, word])
    if report.checks:
        yield ""
        yield from _rows(["suite", "ratio", "here", "study", "off"])
        for c in report.checks:
            yield _row(
                [c.suite, c.what, f"{c.here:.3f}", f"{c.study:.3f}", f"{100 * c.off:+.1f} %"]
            )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rows(headings: Sequence[str]) -> tuple[str, str]:
    return _row(headings), "|" + "---|" * len(headings)
