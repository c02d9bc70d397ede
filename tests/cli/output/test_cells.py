"""Text with colours: its width, its parts, its bytes."""

from __future__ import annotations

import pytest

from cli.output.cells import Cell, drawn_lines, shows_colours, width_of


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("日本", 4), ("é", 1), ("e\u0301", 1)])
def test_width_is_that_of_the_terminal(text: str, width: int) -> None:
    """Letters of Asian scripts take two columns, accents of their own none."""
    assert width_of(text) == Cell(text).width == width


def test_cells_are_joined_and_cut_with_their_styles() -> None:
    """No part loses its colour, wherever the line is cut."""
    line = Cell.joined(Cell("RUNNING", "bold green"), " 2/4", "  ")
    first, rest = line.cut(3)
    assert first == Cell("RUN", "bold green")
    assert rest.plain == "NING 2/4  "
    assert line.stripped().plain == "RUNNING 2/4"
    assert hash(line.cut(99)[0]) == hash(line)
    assert line.cut(-1)[0].plain == ""


def test_colours_are_drawn_only_where_they_are_seen() -> None:
    """A file and another program get the words alone."""
    lines = [Cell.joined(Cell("a", "bold red"), "b"), Cell("c")]
    assert drawn_lines(lines, colours=True) == "\x1b[1;31ma\x1b[0mb\nc\n"
    assert drawn_lines(lines, colours=False) == "ab\nc\n"


@pytest.mark.parametrize(
    ("terminal", "environment", "expected"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {}, True),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {}, False),
        (False, {"FORCE_COLOR": "1"}, True),
    ],
)
def test_who_wants_colours(terminal: bool, environment: dict[str, str], expected: bool) -> None:
    """A terminal, unless NO_COLOR or its kind says otherwise."""
    assert shows_colours(terminal, environment) is expected
