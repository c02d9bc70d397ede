"""A container's first process, reached without its runtime."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.containers.first_process import FirstProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as program:
        yield program
        program.kill()


def _group(program: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{program.pid}/cgroup").read_text(encoding="utf-8")


def test_halted_one_cannot_end(program: subprocess.Popen[bytes]) -> None:
    """Halted means that it has stopped, not that it was asked to; later it goes on."""
    first = FirstProcess()
    first.remember(program.pid, _group(program))
    assert first.halt()
    program.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.1)
    assert not first.has_ended()
    assert first.send(signal.SIGCONT)
    assert program.wait(10) == -signal.SIGTERM


def test_ended_one(program: subprocess.Popen[bytes]) -> None:
    """What has ended is neither halted nor signalled, also before somebody has waited for it."""
    first = FirstProcess()
    first.remember(program.pid, _group(program))
    first.kill_all()
    stat = Path(f"/proc/{program.pid}/stat")
    while ") Z " not in stat.read_text():
        assert program.returncode is None
    assert first.has_ended()
    assert not first.halt()
    program.wait()
    assert first.has_ended()
    assert not first.send(0)


def test_another_ones_process_is_left_alone(program: subprocess.Popen[bytes]) -> None:
    """A runtime elsewhere counts its processes otherwise: a number alone is not believed."""
    first = FirstProcess()
    first.remember(program.pid, "0123456789abcdef")
    assert not first.known
    first.kill_all()
    assert not first.halt()
    assert not first.has_ended(), "nothing is known of it"
    assert program.poll() is None
