"""Run inside the image: are the packages there the ones of requirements-runtime.lock, no more?"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

LOCK = Path("/app/requirements-runtime.lock")
_PIN = re.compile(r"^([a-z0-9._-]+)==(\S+?)( ;.*)?(?: \\)?$", re.MULTILINE)


def differences(lock: str, installed: Iterable[tuple[str, str]]) -> list[str]:
    """What is there besides the lock, in another version, or missing. Pins for other platforms
    (those with a condition) may be missing."""
    pins = {_name(name): (version, bool(when)) for name, version, when in _PIN.findall(lock)}
    there = {_name(name): version for name, version in installed}
    found = [f"{name} {there[name]} is not in the lock" for name in sorted(there.keys() - pins)]
    found += [
        f"{name}: {there.get(name, 'missing')}, the lock has {version}"
        for name, (version, conditional) in sorted(pins.items())
        if there.get(name, version if conditional else None) != version
    ]
    return found


def _name(text: str) -> str:
    """As the index compares names."""
    return re.sub(r"[-_.]+", "-", text).lower()


def main() -> int:
    there = [(found.name, found.version) for found in distributions()]
    for line in (wrong := differences(LOCK.read_text(encoding="utf-8"), there)):
        print(line)
    if not wrong:
        print(f"{len(there)}, each in the lock")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
