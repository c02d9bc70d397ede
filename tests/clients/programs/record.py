"""What docs/internals/compatibility.md says about each program: written from what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cli.paths import ROOT

if TYPE_CHECKING:
    from tests.clients.programs.frame import ClientProgram
    from tests.clients.programs.verify import Verified

TARGET = ROOT / "docs" / "internals" / "compatibility.md"
BEGIN = "<!-- written by: zen clients verify --write -->"
END = "<!-- end of what zen clients verify wrote -->"


def write_results(results: Sequence[Verified]) -> Path:
    """Replaces the sections of the programs that were run; the others stay as they were."""
    from tests.clients.programs.known import PROGRAMS

    text = TARGET.read_text(encoding="utf-8")
    TARGET.write_text(merged(text, PROGRAMS, results), encoding="utf-8")
    return TARGET


def merged(text: str, programs: Sequence[ClientProgram], results: Sequence[Verified]) -> str:
    """The document with new results; pure."""
    head, begin, rest = text.partition(BEGIN)
    if not begin:
        head, rest = f"{text.rstrip()}\n\n", f"\n{END}\n"
    before, _, tail = rest.partition(END)
    known = _sections(before)
    known |= {result.name: _lines(result) for result in results}
    parts = [
        f"### {program.name}\n\n{known[program.name]}\n{_differences(program)}"
        for program in programs
        if program.name in known
    ]
    return f"{head}{BEGIN}\n\n{''.join(parts)}{END}{tail}"


def _sections(text: str) -> dict[str, str]:
    """Program → what was recorded about it, without the differences."""
    found = {}
    for part in text.split("### ")[1:]:
        name, _, body = part.partition("\n")
        found[name.strip()] = body.partition("What remains different:")[0].strip() + "\n"
    return found


def _lines(result: Verified) -> str:
    others = [check for check in result.checks if check.outcome != "passed"]
    total = len(result.checks)
    lines = [f"Commit `{result.commit}`: {total - len(others)} of {total} checks passed."]
    lines += [""] if others else []
    lines += [f"* {check.outcome}: `{check.name}`: {check.words}" for check in others]
    return "\n".join(lines) + "\n"


def _differences(program: ClientProgram) -> str:
    if not program.differences:
        return ""
    rows = "".join(f"* {words}\n" for words in program.differences)
    return f"What remains different:\n\n{rows}\n"
