"""Floors of a cluster from the checked document: hours at which more VMs are kept warm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from config.document import Document, KeyPath
from config.schema import VM_MAX_HIGHEST
from core.floors import Floor, parse_clock, parse_days
from core.submission import shown

_WORDS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "days": (parse_days, "days of the week, e.g. mon-fri or sat,sun"),
    "from": (parse_clock, 'a time of day in quotes, e.g. "08:00"'),
    "to": (parse_clock, 'a time of day in quotes, e.g. "18:00"'),
    "timezone": (lambda word: _is_zone(word) or None, "a time zone, e.g. Europe/Berlin"),
}
_KEYS = (*_WORDS, "vm_min")


def build_floors(document: Document, path: KeyPath, given: Mapping[str, Any]) -> tuple[Floor, ...]:
    """Every floor that is right; what is not is noted in the document."""
    found = [
        _floor(document, (*path, "floors", str(number)), floor, given.get("vm_max"))
        for number, floor in enumerate(given.get("floors", ()))
    ]
    return tuple(floor for floor in found if floor is not None)


def _floor(
    document: Document, path: KeyPath, given: Mapping[str, Any], vm_max: int | None
) -> Floor | None:
    before = len(document.faults)
    for word in given:
        if word not in _KEYS:
            document.unknown_key((*path, str(word)), _KEYS)
    read: dict[str, Any] = {}
    for word, (parse, expected) in _WORDS.items():
        value = given.get(word, "UTC" if word == "timezone" else None)
        read[word] = parse(value) if isinstance(value, str) else None
        if read[word] is None:
            document.fault((*path, word), shown(value), expected)
    vm_min, most = given.get("vm_min"), VM_MAX_HIGHEST if vm_max is None else vm_max
    if not isinstance(vm_min, int) or isinstance(vm_min, bool) or not 0 <= vm_min <= most:
        document.fault((*path, "vm_min"), shown(vm_min), f"a whole number from 0 to {most}")
    if len(document.faults) > before:
        return None
    zone = given.get("timezone", "UTC")
    return Floor(read["days"], read["from"], read["to"], zone, int(given["vm_min"]))


def _is_zone(word: str) -> bool:
    try:
        ZoneInfo(word)
    except (KeyError, ValueError, OSError):
        return False
    return True
