"""Whether a command printed what the document says, apart from what differs each time."""

from __future__ import annotations

import re
from collections.abc import Sequence

_VOLATILE = (
    (re.compile(r"\bj-[a-z0-9]{10}\b"), "JOB"),
    (re.compile(r"-vm-[a-z0-9]{4}\b"), "-vm-NAME"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?\b"), "DATE"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:\.\d+)?\b"), "TIME"),
    (
        re.compile(r"\b(?:us|europe|asia|me|northamerica|southamerica|australia)-[a-z]+\d\b"),
        "REGION",
    ),
    (re.compile(r"\b\d+(?:\.\d+)?(?:s|m|h|d)\b(?:\d+s)?"), "SPAN"),
    (re.compile(r"\$\d+(?:\.\d+)?"), "USD"),
    (re.compile(r"\b\d+\.\d+%|\b\d+%"), "SHARE"),
)
ELLIPSIS = "…"


def plain(line: str) -> str:
    """A line without what differs from run to run."""
    line = line.replace("./zen", "zen")  # hints name it as it can be called where they are read
    for pattern, word in _VOLATILE:
        line = pattern.sub(word, line)
    return " ".join(re.sub(r"(?<=\s)[a-z0-9]{4}(?=\s)", "NAME", line).split())


def difference(said: Sequence[str], printed: str) -> str:
    """Why what was printed is not what the document says; empty if it is. A line `…` stands for
    any number of lines, and `…` within a line for any words. Lines of progress ("zen: …") may be
    left out of a document."""
    wanted = {plain(line) for line in said}
    rest = [plain(line) for line in printed.splitlines()]
    rest = [line for line in rest if not line.startswith("zen: ") or line in wanted]
    anywhere = False
    for line in (plain(line) for line in said):
        if line == ELLIPSIS:
            anywhere = True
            continue
        pattern = re.compile(".*".join(map(re.escape, line.split(ELLIPSIS))) + r"\Z")
        index = next((n for n, real in enumerate(rest) if pattern.match(real)), None)
        if index is None or (index and not anywhere):
            got = rest[0] if rest else "nothing"
            return f"expected {line!r}, printed {got!r}"
        rest, anywhere = rest[index + 1 :], False
    return "" if anywhere or not any(rest) else f"printed more: {rest[0]!r}"


def ids_in(lines: Sequence[str]) -> list[str]:
    """Job ids, in order, each once."""
    return list(dict.fromkeys(re.findall(r"\bj-[a-z0-9]{10}\b", "\n".join(lines))))
