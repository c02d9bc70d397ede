"""A job file as it is written: its values, and the line and column of each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from core.errors import ZenError

FILE_BYTES_MAX = 1024 * 1024
NODES_MAX = 50_000
DEPTH_MAX = 40
STDIN = "-"
Where = tuple[object, ...]
"""Keys and indexes from the top of the file."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something stands in a file; lines and columns count from 1."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True, order=True)
class FileFault:
    """One thing that is wrong with a job file."""

    place: Place
    words: str

    def __str__(self) -> str:
        return f"{self.place}: {self.words}"


class BadFile(ZenError):
    """The job file cannot be used; fix it. Has every fault that was found."""

    code = "bad_file"

    def __init__(self, *faults: FileFault) -> None:
        assert faults, "a file without a fault is not bad"
        self.faults = tuple(dict.fromkeys(sorted(faults)))
        super().__init__("\n".join(map(str, self.faults)))


@dataclass(slots=True)
class JobDocument:
    """The values of one file. What a file that it extends says has that file's places."""

    values: dict[str, Any]
    top: Place
    places: dict[Where, Place] = field(default_factory=dict)
    """Of values."""
    keys: dict[Where, Place] = field(default_factory=dict)
    """Of the keys of mappings."""
    faults: list[FileFault] = field(default_factory=list)

    def place_of(self, *where: object) -> Place:
        """Of the value, else of what is around it."""
        for end in range(len(where), 0, -1):
            if (found := self.places.get(where[:end])) is not None:
                return found
        return self.top

    def fault(self, words: str, *where: object) -> None:
        self.faults.append(FileFault(self.place_of(*where), words))


def read_document(file: Path) -> JobDocument:
    """A YAML or JSON file (JSON is YAML too). BadFile if it holds no mapping."""
    import yaml

    name, text = str(file), _text(file)
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            listed = isinstance(node, yaml.SequenceNode)
            got = "nothing" if node is None else "a list" if listed else "one value"
            expected = "the fields of one job, e.g. command: [hostname]"
            raise BadFile(FileFault(Place(name), f"got {got}, expected {expected}"))
        document = JobDocument({}, Place(name, 1, 1))
        document.values = _Builder(loader, name, document).mapping(node, ())
    except yaml.YAMLError as error:
        raise BadFile(_not_yaml(error, name)) from error
    except RecursionError:
        raise BadFile(FileFault(Place(name), "nested too deeply")) from None
    finally:
        loader.dispose()
    return document


def _text(file: Path) -> str:
    name = str(file)
    try:
        if name == STDIN:
            text = sys.stdin.read(FILE_BYTES_MAX + 1)
        else:
            with file.open(encoding="utf-8") as opened:
                text = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadFile(FileFault(Place(name), error.strerror or "cannot be read")) from error
    except UnicodeDecodeError as error:
        raise BadFile(FileFault(Place(name), "not UTF-8 text")) from error
    if len(text) > FILE_BYTES_MAX:
        raise BadFile(FileFault(Place(name), f"more than {FILE_BYTES_MAX} characters"))
    return text


def _not_yaml(error: Exception, name: str) -> FileFault:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it cannot be read"
    place = Place(name, mark.line + 1, mark.column + 1) if mark else Place(name)
    return FileFault(place, f"not YAML: {problem}")


class _Builder:
    """Values of nodes; what an alias repeats is counted again, so that a small file stays small."""

    def __init__(self, loader: Any, name: str, document: JobDocument) -> None:
        self._loader, self._name, self._document = loader, name, document
        self._nodes = 0

    def mapping(self, node: Any, where: Where) -> dict[str, Any]:
        self._refuse_repeats(node)
        self._loader.flatten_mapping(node)  # what << brings comes first: the mapping's own keys win
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(self._loader.construct_object(key_node, deep=True))
            self._document.keys[*where, key] = self._place(key_node)
            found[key] = self.value(value_node, (*where, key))
        return found

    def _refuse_repeats(self, node: Any) -> None:
        first: dict[str, int] = {}
        for key_node, _ in node.value:
            key, place = str(key_node.value), self._place(key_node)
            if first.setdefault(key, place.line) != place.line:
                words = f"{key} stands here a second time; the first is in line {first[key]}"
                self._document.faults.append(FileFault(place, words))

    def value(self, node: Any, where: Where) -> Any:
        self._nodes += 1
        if self._nodes > NODES_MAX or len(where) > DEPTH_MAX:
            raise BadFile(FileFault(self._place(node), "too much is nested or repeated here"))
        self._document.places[where] = self._place(node)
        if node.id == "mapping":
            return self.mapping(node, where)
        if node.id == "sequence":
            return [self.value(one, (*where, n)) for n, one in enumerate(node.value)]
        made = self._loader.construct_object(node, deep=True)
        # YAML knows moments and days, JSON does not.
        if isinstance(made, datetime):
            return made.isoformat()
        return str(node.value) if isinstance(made, date | bytes) else made

    def _place(self, node: Any) -> Place:
        mark = node.start_mark
        return Place(self._name, mark.line + 1, mark.column + 1)


def leaves(value: Any, where: Where = ()) -> Iterator[tuple[Where, Any]]:
    """Everything in a value that holds no other."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*where, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, (*where, number))
    else:
        yield where, value
