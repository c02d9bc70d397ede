"""CI prints how much of what people can copy is run."""

from __future__ import annotations

import pytest

from tests.examples.marks import SHOWN
from tests.examples.reading import blocks, comment_lines, help_lines, inline_commands


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each kind."""
    marks = [block.mark for block in blocks()]
    lines = [line.command for line in (*help_lines(), *comment_lines())]
    shown = sum(line in SHOWN for line in lines)
    for words in (
        f"{marks.count('run')} snippets and {len(lines) - shown} lines of help are run",
        f"{marks.count('rehearse')} snippets are rehearsed against the pretend cloud",
        f"{marks.count('show')} snippets and {shown} lines of help are shown, each with its reason",
        f"{len(inline_commands())} commands within sentences are checked by name and option",
    ):
        terminalreporter.write_line(f"examples: {words}")
