"""What one configuration says differently from another, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from config.keys import WILD, Key
from config.schema import TREE, Section

LINES_MAX = 200


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """One line for each key that differs, in the order of the reference; `+` and `-` for names that
    came and went. Both are outlines (`config.load.outline`). Bounded."""
    lines = list(_section(TREE, before, after, ""))
    if len(lines) > LINES_MAX:
        lines = [*lines[:LINES_MAX], f"… and {len(lines) - LINES_MAX} more"]
    return tuple(lines)


def _section(
    section: Section, before: Mapping[str, Any], after: Mapping[str, Any], at: str
) -> Iterator[str]:
    if section.any_name is not None:
        own = section.children.keys() - {WILD}
        old, new = ({k: v for k, v in side.items() if k not in own} for side in (before, after))
        yield from _names(section.any_name, old, new, at)
    for word, child in section.children.items():
        if word == WILD:
            continue
        path = f"{at}.{word}" if at else word
        if isinstance(child, Section):
            yield from _section(child, before.get(word) or {}, after.get(word) or {}, path)
        else:
            yield from _key(child, before.get(word), after.get(word), path)


def _names(
    inner: Section | Key, before: Mapping[str, Any], after: Mapping[str, Any], at: str
) -> Iterator[str]:
    for name in dict.fromkeys([*before, *after]):
        path = f"{at}.{name}"
        if name not in before:
            yield f"+ {path}{_summary(at, after[name]) or _said(inner, after[name])}"
        elif name not in after:
            yield f"- {path}{_said(inner, before[name])}"
        elif isinstance(inner, Section):
            yield from _section(inner, before[name], after[name], path)
        else:
            yield from _key(inner, before[name], after[name], path)


def _summary(at: str, given: Any) -> str:
    """A new cluster is a guarantee about money: its size belongs on the line that names it."""
    if at != "clusters":
        return ""
    regions = ", ".join(given.get("regions", {}))
    return f" ({given.get('machine_type')}, at most {given.get('vm_max')} VMs in {regions})"


def _said(inner: Section | Key, value: object) -> str:
    """What a name that came or went says, if it is one value: which roles a group has, for one."""
    return f": {_shown(value)}" if isinstance(inner, Key) and not inner.secret else ""


def _key(key: Key, before: object, after: object, path: str) -> Iterator[str]:
    if before == after:
        return
    if key.secret:
        yield f"{path}: changed (hidden)"
    else:
        yield f"{path}: {_shown(before)} → {_shown(after)}"


def _shown(value: object) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, list):
        return f"[{', '.join(_shown(item) for item in value)}]"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items())
    return str(value)
