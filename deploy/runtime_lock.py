"""The part of requirements.lock that the service needs, for the image: no packages of tests and
checks.

Run it after requirements.lock has changed: `python3 deploy/runtime_lock.py`. The comments that uv
writes beside each pin say which package wanted it; what only the group `dev` wanted is left out.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
RUNTIME_LOCK = ROOT / "requirements-runtime.lock"
HEAD = """\
# What the service needs, without the packages of tests and checks: a part of requirements.lock,
# made by `python3 deploy/runtime_lock.py`.
"""
SERVICE = "pipeline-zen-jobs-scheduler (pyproject.toml)"
"""As uv names what the project itself depends on; what a group wants has `:group` after it."""
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)
_WANTED_BY = re.compile(r"^    #   (.+)$|^    # via (.+)$", re.MULTILINE)


def runtime_part(lock: str) -> str:
    """The pins, with their hashes, that the project itself wants, and what these want."""
    entries = _entries(lock)
    wanted_by = {name: _wanted_by(text) for name, text in entries.items()}
    needed: set[str] = set()
    while fresh := {
        name
        for name, askers in wanted_by.items()
        if name not in needed and (SERVICE in askers or askers & needed)
    }:
        needed |= fresh
    return HEAD + "".join(_without_comments(entries[name]) for name in sorted(needed))


def _entries(lock: str) -> dict[str, str]:
    """Name of each package → its pin, hashes and comments."""
    starts = [*_PIN.finditer(lock)]
    ends = [*(found.start() for found in starts[1:]), len(lock)]
    return {found[1]: lock[found.start() : end] for found, end in zip(starts, ends, strict=True)}


def _wanted_by(entry: str) -> set[str]:
    return {(found[1] or found[2]).strip() for found in _WANTED_BY.finditer(entry)}


def _without_comments(entry: str) -> str:
    """Who wanted it stands in requirements.lock."""
    lines = [line for line in entry.splitlines() if not line.lstrip().startswith("#")]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    RUNTIME_LOCK.write_text(runtime_part(LOCK.read_text(encoding="utf-8")), encoding="utf-8")
