"""zen whatif as people see it: how far it is."""

from __future__ import annotations

import pytest

from cli.commands import whatif


@pytest.mark.parametrize("replays", [1, 6, 10, 360])
def test_progress_without_a_terminal(capsys: pytest.CaptureFixture[str], replays: int) -> None:
    """Some lines on stderr, ten at most, and the last one says that all are done."""
    for done in range(1, replays + 1):
        whatif._progress(done, replays)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == min(replays, whatif.PROGRESS_LINES)
    assert lines[-1] == f"zen: {replays} of {replays} replays"
