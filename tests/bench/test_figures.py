"""Figures that benches tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.figures import VARIABLE, tell, told


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
