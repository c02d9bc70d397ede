"""Skips are honest."""

from __future__ import annotations

import pytest

from tests import skips


def test_skip_is_founded_only_if_its_tool_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the tool, and the tool is not here."""
    monkeypatch.setattr(skips, "TOOLS", {"there": lambda: True, "absent": lambda: False})
    assert skips.why_unfounded("needs absent: not installed") == ""
    assert skips.why_unfounded("needs there: not installed") == "there is here"
    assert "form" in skips.why_unfounded("too slow")
    assert "does not know" in skips.why_unfounded("needs luck: none left")
