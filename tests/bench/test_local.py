"""Benches leave nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench import local
from bench.local import ENDING, ended, scratch, undisturbed


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_the_work_and_its_directory(number: signal.Signals) -> None:
    """Ctrl-C and a polite kill alike; the handlers that were there come back."""
    before, seen = signal.getsignal(number), list[Path]()

    def work() -> None:
        with scratch("zen-test-") as directory:
            (directory / "file").touch()
            seen.append(directory)
            signal.raise_signal(number)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert not seen[0].exists()
    assert signal.getsignal(number) is before


def test_what_was_started_is_stopped_undisturbed() -> None:
    """Ctrl-C, pressed again, does not end the cleaning up."""
    with undisturbed():
        for number in ENDING:
            signal.raise_signal(number)


def test_a_process_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing of a bench runs on."""
    monkeypatch.setattr(local, "END_S", 0.01)
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    assert ended(process) == -signal.SIGKILL
