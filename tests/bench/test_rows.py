"""Rows of the one table: bounds, verdicts, and benches that tell what the rows read."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from bench.rows import ROWS, RUNS, BenchPeer, BenchRow, BenchRun

LEAST = BenchRow("P1", "a ratio", "×", 0.65, 0.85, at_least=True)
MOST = BenchRow("P9", "a time", "ms", 150, 90)
READ = sorted(
    {(row.run.module, row.told) for row in ROWS if row.run is not None}
    | {(peer.run.module, peer.told) for row in ROWS for peer in row.peers}
)


@pytest.mark.parametrize(
    ("row", "value", "verdict"),
    [
        (LEAST, 0.9, "stretch"),
        (LEAST, 0.7, "must"),
        (LEAST, 0.6, "MISSED"),
        (MOST, 90, "stretch"),
        (MOST, 120, "must"),
        (MOST, 151, "MISSED"),
        (BenchRow("P3", "shown", "ms", None), 5, "shown"),
    ],
)
def test_verdicts(row: BenchRow, value: float, verdict: str) -> None:
    """A bound holds from its own side; without one the figure is shown alone."""
    assert row.verdict(value) == verdict


def test_rows_are_whole() -> None:
    """A row that names a bench names its figure; bounds are in order; no name stands twice."""
    for row in ROWS:
        assert (row.run is None) == (row.told == ""), row
        if row.must is not None and row.stretch is not None:
            assert (row.stretch > row.must) == row.at_least, row
    assert len({(row.id, row.what) for row in ROWS}) == len(ROWS)
    assert MOST.bounds() == "≤ 150 / 90"
    assert LEAST.bounds() == "≥ 0.65 / 0.85"


def test_every_run_has_its_turn() -> None:
    """Each command that a row reads is in the order of measuring, once."""
    assert {run for row in ROWS for run in row.runs} == set(RUNS)
    assert len(set(RUNS)) == len(RUNS)
    assert len({run.title(quick=True) for run in RUNS}) == len(RUNS)


@pytest.mark.parametrize(("module", "name"), READ)
def test_a_bench_tells_what_a_row_reads(module: str, name: str) -> None:
    """By the bench's own list of names; a bench that does not exist yet tells nothing."""
    if importlib.util.find_spec(module) is not None:
        told = getattr(importlib.import_module(module), "TOLD", (name,))
        assert name in told


def test_a_row_reads_its_own_run_and_those_beside_it() -> None:
    """What is divided makes the figure; what stands beside it does not."""
    own, peer, other = (BenchRun(f"bench.{name}") for name in "abc")
    slurm, ceiling = BenchPeer("Slurm", peer, "x", "ms"), BenchPeer("ceiling", other, "x", "ms")
    row = BenchRow("P3", "÷", "×", 1, None, False, own, "x", slurm, (ceiling,))
    assert row.divided == (own, peer)
    assert row.runs == (own, peer, other)
    assert row.peers == (slurm, ceiling)
