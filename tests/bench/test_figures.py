"""Figures that benches tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.figures import VARIABLE, KeptFigures, tell, told


def test_figures_go_to_the_file_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a file nothing is told; the last word counts."""
    file = tmp_path / "figures"
    tell(a=1)
    assert told(file) == {}
    monkeypatch.setenv(VARIABLE, str(file))
    tell(a=1, b=2)
    tell(a=3)
    assert told(file) == {"a": 3, "b": 2}


def test_kept_figures_outlast_the_run(tmp_path: Path) -> None:
    """What was told is there for the next one; why nothing was told is not."""
    file = tmp_path / "kept.json"
    first = KeptFigures(file)
    first.put("bench.x", {"a": 1.5})
    first.put("bench.y", "no bench")
    again = KeptFigures(file)
    assert again.get("bench.x") == {"a": 1.5}
    assert again.get("bench.y") is None
    assert KeptFigures(None).get("bench.x") is None
