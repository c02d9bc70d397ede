"""The one table: what is not measured has no figure."""

from __future__ import annotations

from bench.all import cells
from bench.rows import BenchRow, BenchRun

RUN = BenchRun("bench.x", ("--big",), ("--small",))
ROW = BenchRow("P9", "a time", "ms", 150, 90, False, RUN, "x_ms")


def test_a_figure_stands_beside_its_bound_and_its_command() -> None:
    """Figure, bound, ratio, verdict, command."""
    assert cells(ROW, {RUN: {"x_ms": 75.0}}, quick=False) == (
        *("P9", "a time", "75.0 ms", "≤ 150 / 90", "0.50", "stretch"),
        "bench.x --big",
    )
    assert cells(ROW, {RUN: {"x_ms": 300.0}}, quick=True)[4:] == (
        *("2.00", "MISSED"),
        "bench.x --small",
    )


def test_what_was_not_measured_is_said() -> None:
    """No bench, a bench that failed, a figure that this machine cannot give."""
    assert cells(ROW, {RUN: "not within 120 s"}, quick=True)[2:6] == (
        *("not within 120 s", "≤ 150 / 90", "", "–"),
    )
    assert cells(ROW, {RUN: {"y": 1.0}}, quick=True)[2] == "not measured here"
    peer = BenchRun("bench.peer")
    ratio = BenchRow("P3", "÷ a peer's", "×", 0.08, None, False, RUN, "x_ms", peer)
    assert cells(ratio, {RUN: {"x_ms": 5.0}, peer: {"x_ms": 100.0}}, quick=True)[2:] == (
        *("0.05 ×", "≤ 0.08", "0.62", "must", "bench.x --small ÷ bench.peer"),
    )
    assert cells(ratio, {RUN: {"x_ms": 5.0}, peer: "not installed"}, quick=True)[5] == "–"
    bare = BenchRow("P8", "a time", "s", 6)
    assert cells(bare, {}, quick=True) == ("P8", "a time", "no bench", "≤ 6", "", "–", "")
