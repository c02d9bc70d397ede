"""The one table: what is not measured has no figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.all import Machine, cells, measure, page_of
from bench.figures import KeptFigures
from bench.rows import ROWS, RUNS, BenchPeer, BenchRow, BenchRun

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
RUN = BenchRun("bench.x", ("--big",), ("--small",))
PEER = BenchRun("bench.peer")
ROW = BenchRow("P9", "a time", "ms", 150, 90, False, RUN, "x_ms")
SLURM = BenchPeer("Slurm", PEER, "y_ms", "ms")
OURS = (BenchPeer("ours", RUN, "x_ms", "ms"),)
RATIO = BenchRow("P3", "÷ a peer's", "×", 0.08, None, False, RUN, "x_ms", SLURM, OURS)


def test_a_figure_stands_beside_its_bound_and_its_command() -> None:
    """Figure, others, bound, ratio, verdict, command."""
    assert cells(ROW, {RUN: {"x_ms": 75.0}}, quick=False) == (
        *("P9", "a time", "75.0 ms", "", "≤ 150 / 90", "0.50", "stretch"),
        "bench.x --big",
    )
    assert cells(ROW, {RUN: {"x_ms": 300.0}}, quick=True)[5:] == (
        *("2.00", "MISSED"),
        "bench.x --small",
    )


def test_a_ratio_shows_what_it_is_made_of() -> None:
    """The figure is divided by the peer's; both are shown."""
    found = cells(RATIO, {RUN: {"x_ms": 5.0}, PEER: {"y_ms": 100.0}}, quick=True)
    assert found[2:4] == ("0.05 ×", "Slurm 100 ms, ours 5.00 ms")
    assert found[4:] == ("≤ 0.08", "0.62", "must", "bench.x --small ÷ bench.peer")


def test_what_was_not_measured_is_said() -> None:
    """No bench, a bench that failed, a figure of another size, a peer that is not installed."""
    assert cells(ROW, {RUN: "not within 120 s"}, quick=True)[2:7] == (
        *("not within 120 s", "", "≤ 150 / 90", "", "–"),
    )
    assert cells(ROW, {RUN: {"y": 1.0}}, quick=True)[2] == "not at this size"
    missing = "not installed: apt-get install slurm-wlm"
    alone = cells(RATIO, {RUN: {"x_ms": 5.0}, PEER: missing}, quick=True)
    assert alone[2:4] == (f"Slurm: {missing}", f"Slurm: {missing}, ours 5.00 ms")
    assert alone[6] == "–"
    bare = BenchRow("P8", "a time", "s", 6)
    assert cells(bare, {}, quick=True) == ("P8", "a time", "no bench", "", "≤ 6", "", "–", "")


def test_what_is_kept_is_not_measured_again(tmp_path: Path) -> None:
    """A file with the figures of all benches makes the table without starting one."""
    file = tmp_path / "figures.json"
    first = KeptFigures(file)
    for number, run in enumerate(RUNS):
        first.put(run.title(quick=True), {"x": float(number)})
    found = measure(ROWS, quick=True, kept=KeptFigures(file))
    assert found == {run: {"x": float(number)} for number, run in enumerate(RUNS)}


def test_a_bench_that_does_not_exist_is_said(tmp_path: Path) -> None:
    """Its rows stay, without a figure; what failed is not taken for kept."""
    kept = KeptFigures(tmp_path / "figures.json")
    run = BenchRun("bench.none_of_this_name")
    row = BenchRow("P0", "a time", "ms", 1, None, False, run, "x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.all.RUNS", (run,))
        found = measure([row], quick=True, kept=kept)
    assert found == {run: "no bench"}
    assert kept.get(run.title(quick=True)) is None


def test_the_page_has_every_row_with_its_bound() -> None:
    """docs/performance.md is what --markdown prints, with other figures."""
    lines = page_of(ROWS, dict.fromkeys(RUNS, "–"), True, Machine(2, 0.0)).splitlines()
    wanted = [line.split(" | ")[i] for line in lines if line.startswith("| ") for i in (0, 1, 4)]
    shown = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line.split(" | ")[i] for line in shown if line.startswith("| ") for i in (0, 1, 4)] == (
        wanted
    )
