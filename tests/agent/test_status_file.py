"""What the agent makes of a job's status file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.held_directory import HeldDirectory
from agent.status_file import READ_MAX, Status, StatusTail, _newer
from core.messages import Progress


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "status.jsonl"


def tail_of(file: Path) -> StatusTail:
    return StatusTail(HeldDirectory.of(file.parent), file.name)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ('{"step": 3}', Status(Progress(3, None), None)),
        ('{"step": 3, "total": 9.5}', Status(Progress(3, 9.5), None)),
        ('{"checkpoint": 7}', Status(None, 7)),
        ('{"step": 3, "checkpoint": true}', Status(Progress(3), 3)),
        ('{"step": 3, "checkpoint": false}', Status(Progress(3), None)),
        ('{"checkpoint": {"step": 5}}', Status(None, 5)),
    ],
)
def test_good_lines(file: Path, line: str, status: Status) -> None:
    """Each form of a line says what it means."""
    file.write_text(line + "\n")
    assert tail_of(file).look() == status


@pytest.mark.parametrize(
    "line",
    ["", "[]", "{", '{"step": "3"}', '{"step": NaN}', '{"step": true}', "\x00", "[" * 100_000,
     '{"step": 1' + "0" * 400 + "}"],
)  # fmt: skip
def test_bad_lines_are_passed_over(file: Path, line: str) -> None:
    """A line that says nothing usable does not hide its neighbours."""
    file.write_text(f'{{"step": 1}}\n{line}\n{{"checkpoint": 1}}\n')
    tail = tail_of(file)
    looks = [tail.look() for _ in range(4)]
    assert Progress(1) in [look.progress for look in looks]
    assert 1 in [look.checkpoint_step for look in looks]


def test_only_news(file: Path) -> None:
    """A second look tells only what came since, and a half line waits for its end."""
    tail = tail_of(file)
    assert tail.look() == Status()
    file.write_text('{"step": 1}\n{"st')
    assert tail.look().progress == Progress(1)
    assert tail.look() == Status()
    with file.open("a") as opened:
        opened.write('ep": 2}\n')
    assert tail.look().progress == Progress(2)


def test_rewritten_file_is_read_anew(file: Path) -> None:
    """A job that truncates its file is still understood."""
    tail = tail_of(file)
    file.write_text('{"step": 1}\n{"step": 2}\n')
    tail.look()
    file.write_text('{"step": 9}\n')
    assert tail.look().progress == Progress(9)


def test_endless_line_takes_no_memory(file: Path) -> None:
    """A line without end is dropped as it comes; the next proper line counts."""
    tail = tail_of(file)
    file.write_bytes(b"x" * (5 * READ_MAX) + b'\n{"step": 4}\n')
    looks = [tail.look() for _ in range(7)]
    assert len(tail._lines._rest) <= READ_MAX
    assert looks[-1].progress == Progress(4) or looks[-2].progress == Progress(4)


@given(st.binary(max_size=200))
def test_no_line_raises(line: bytes) -> None:
    """Whatever bytes a job writes, the agent lives."""
    assert isinstance(_newer(Status(), line), Status)
