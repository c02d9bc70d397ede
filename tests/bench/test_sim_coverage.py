"""How the lines are counted that the simulation runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.sim_coverage import (
    LEFT_OUT,
    ROOT,
    FileCount,
    Tracer,
    counts,
    files,
    lines_of,
    main,
    reason_of,
    shares,
)

SOURCE = '''"""Words."""
from typing import Protocol


class Port(Protocol):
    def ask(self) -> int: ...


def half(number: int) -> int:
    """Words are no lines."""
    if number % 2:
        raise ValueError(
            "odd",
        )
    # nor is this
    return number // 2
'''


@pytest.fixture
def house(tmp_path: Path) -> Path:
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "half.py").write_text(SOURCE)
    (tmp_path / "scheduler" / "app.py").write_text("x = 1\n")
    return tmp_path


def test_lines_are_those_that_the_compiler_made_something_of() -> None:
    """Comments, empty lines and docstrings of functions are none; nor are `...` and what is never
    to be reached."""
    assert lines_of(SOURCE) == {1, 2, 5, 9, 11, 12, 13, 16}
    closed = "match x:\n    case 1:\n        y = 1\n    case _:\n        assert_never(x)\n"
    assert lines_of(closed) == {1, 2, 3, 4}


def test_lines_that_run_are_found_and_the_others_named(house: Path) -> None:
    """A call that goes well leaves the error's lines."""
    tracer, path = Tracer(house), house / "scheduler" / "half.py"
    scope: dict[str, object] = {"__name__": "half"}
    sys.settrace(tracer)
    try:
        exec(compile(SOURCE, str(path), "exec"), scope)  # noqa: S102  # as an import would
        assert scope["half"](4) == 2  # type: ignore[operator]
    finally:
        sys.settrace(None)
    found = {each.path: each for each in counts(house, [tracer.hit])}
    assert found["scheduler/half.py"].missed == (12, 13)
    assert not found["scheduler/half.py"].left_out
    assert found["scheduler/app.py"].missed == (1,)
    assert "wiring" in found["scheduler/app.py"].left_out


def test_rooms_are_judged_without_what_is_left_out() -> None:
    """The wiring is counted where it is asked for, the rest never."""
    found = [
        FileCount("scheduler/a.py", 10, (1,), ""),
        FileCount("scheduler/app.py", 10, tuple(range(10)), "wiring: of real parts"),
        FileCount("scheduler/api/b.py", 80, tuple(range(80)), "the doors"),
    ]
    assert shares(found)["scheduler"] == pytest.approx(0.9)
    assert shares(found, wiring=True)["scheduler"] == pytest.approx(0.45)


def test_what_is_left_out_exists_and_says_why() -> None:
    """A file that is renamed counts again."""
    for name, why in LEFT_OUT.items():
        assert (ROOT / name).exists(), name
        assert why
    assert {reason_of(path) for path in files(ROOT)} == {"", *LEFT_OUT.values()}


def test_nothing_to_run_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Instead of a table of zeros."""
    assert main(["--seeds", "0"]) == 2
    assert "--seeds 0" in capsys.readouterr().err
