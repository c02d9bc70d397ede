"""A configuration as it was written, with the place each value came from.

YAML is read node by node, so that a fault can name its line, and so that a key that stands
twice is noticed: PyYAML's own loader silently keeps the last one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from core.errors import Fault
from core.submission import shown, unknown

SIZE_MAX = 1024 * 1024
DEPTH_MAX = 12
NODES_MAX = 50_000

KeyPath = tuple[str, ...]
_Quick: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def dotted(path: KeyPath) -> str:
    return ".".join(path) or "the document"


@dataclass(slots=True)
class Document:
    """Nested plain values, and where they came from (`zen.yaml:12`, `overlay`, a variable)."""

    source: str
    values: dict[str, object] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def copy(self) -> Document:
        """Another one that can be changed on its own."""
        return Document(
            self.source, copy.deepcopy(self.values), dict(self.origins), list(self.faults)
        )

    def where(self, path: KeyPath) -> str:
        """The place of a key, or of the nearest section around it."""
        for length in range(len(path), -1, -1):
            if (origin := self.origins.get(path[:length])) is not None:
                return origin
        return self.source

    def fault(self, path: KeyPath, got: str, expected: str) -> None:
        """Note one thing that is wrong."""
        self.faults.append(Fault(f"{self.where(path)}: {dotted(path)}", got, expected))

    def unknown_key(self, path: KeyPath, known: Iterable[str]) -> None:
        """Note a key that there is not, with the one that was probably meant."""
        self.faults.append(
            unknown("key", str(path[-1]), known, f"{self.where(path)}: {dotted(path)}")
        )

    def put(self, path: KeyPath, value: object, origin: str) -> None:
        """Set one value over whatever stands there, making the sections on the way."""
        at = self.values
        for word in path[:-1]:
            inner = at.get(word)
            if not isinstance(inner, dict):
                inner = {}
                at[word] = inner
            at = inner
        at[path[-1]] = value
        self._forget(path)
        self.origins[path] = origin

    def overlay(self, over: Mapping[str, object], at: KeyPath = ()) -> None:
        """Merge a nested mapping over this one. None takes a key away, anything else that is
        not a mapping on both sides replaces."""
        for word, value in over.items():
            path = (*at, str(word))
            present = self._at(path)
            if value is None:
                self._remove(path)
            elif isinstance(value, Mapping) and isinstance(present, dict):
                self.overlay(value, path)
            else:
                self.put(path, _plain(value), "overlay")

    def _at(self, path: KeyPath) -> object:
        value: object = self.values
        for word in path:
            if not isinstance(value, dict):
                return None
            value = value.get(word)
        return value

    def _remove(self, path: KeyPath) -> None:
        parent = self._at(path[:-1])
        if isinstance(parent, dict) and parent.pop(path[-1], None) is not None:
            self._forget(path)

    def _forget(self, path: KeyPath) -> None:
        stale = [known for known in self.origins if known[: len(path)] == path]
        for known in stale:
            del self.origins[known]


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def read_yaml(path: Path) -> Document:
    """The file as a Document. What cannot be read at all is a fault in it, not an exception."""
    try:
        with path.open("rb") as opened:
            return read_bytes(opened.read(SIZE_MAX + 1), str(path))
    except OSError as error:
        document = Document(str(path))
        document.fault((), f"{error.strerror or error}", "a file that can be read")
        return document


def read_bytes(raw: bytes, source: str) -> Document:
    """The same for content that was read already."""
    document = Document(source)
    if len(raw) > SIZE_MAX:
        document.fault((), f"a file of more than {SIZE_MAX} bytes", f"at most {SIZE_MAX} bytes")
        return document
    try:
        parse_yaml(raw.decode(), document)
    except UnicodeDecodeError as error:
        document.fault((), f"bytes that are not UTF-8 at {error.start}", "UTF-8 text")
    return document


def parse_yaml(text: str, document: Document) -> None:
    """Fill the document from YAML text."""
    try:
        loader, node = _compose(text)
        if node is not None:
            _Reader(loader, document).read_top(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        why = error.problem or error.context or "something else"
        got = f"YAML that breaks here ({why})"
        document.faults.append(Fault(f"{document.source}{line}", got, "one valid YAML document"))
    except yaml.YAMLError as error:
        got = " ".join(str(error).split())
        document.faults.append(Fault(document.source, got, "one valid YAML document"))


def _compose(text: str) -> tuple[Any, yaml.Node | None]:
    """By libyaml if it is there: an edit of a big file must not hold up the loop that reads it.
    Faults are found again by PyYAML's own parser, whose words say more."""
    try:
        quick = _Quick(text)
        return quick, quick.get_single_node()
    except yaml.YAMLError:
        loader = yaml.SafeLoader(text)
        return loader, loader.get_single_node()


class _Reader:
    """Turns nodes into plain values. Bounded, since aliases can make a small file endless."""

    def __init__(self, loader: Any, document: Document) -> None:
        self._loader = loader
        self._document = document
        self._nodes = 0

    def read_top(self, node: yaml.Node) -> None:
        if not isinstance(node, yaml.MappingNode):
            value = self._read(node, ())
            self._document.fault((), shown(value), "a mapping of configuration keys")
            return
        value = self._read(node, ())
        assert isinstance(value, dict)
        self._document.values = value

    def _read(self, node: yaml.Node, path: KeyPath) -> object:
        self._nodes += 1
        if len(path) > DEPTH_MAX or self._nodes > NODES_MAX:
            raise yaml.constructor.ConstructorError(
                problem=f"more than {DEPTH_MAX} levels or {NODES_MAX} values",
                problem_mark=node.start_mark,
            )
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._read(item, (*path, str(i))) for i, item in enumerate(node.value)]
        try:
            return self._loader.construct_object(node)
        except ValueError as error:  # looks like a date or a number, and is none (2026-13-45)
            raise yaml.constructor.ConstructorError(
                problem=f"{node.value!r} ({error})", problem_mark=node.start_mark
            ) from error

    def _read_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            name = key_node.value if isinstance(key_node, yaml.ScalarNode) else "(a structure)"
            inner = (*path, name)
            if name in values:
                first = self._document.where(inner)
                got = f"the key a second time (first: {first})"
                place = f"{self._document.source}:{line}: {dotted(inner)}"
                self._document.faults.append(Fault(place, got, "each key once"))
                continue
            self._document.origins[inner] = f"{self._document.source}:{line}"
            values[name] = self._read(value_node, inner)
        return values
