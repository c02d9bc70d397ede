"""`${{ }}` in job files: parameters, matrices, and the jobs that they make."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cli.job_files.documents import FileFault, JobDocument, Where, leaves
from core.job_fields import FIELDS
from core.job_file_schema import MATRIX_MAX, PARAMETER_NAME, PARAMETERS_MAX
from core.submission import nearest

_EXPRESSION = re.compile(r"\$(\$?)\{\{(.*?)\}\}")
_REFERENCE = re.compile(rf"(?:(params|matrix)\.)?({PARAMETER_NAME})\Z")
_NAME = re.compile(rf"{PARAMETER_NAME}\Z")
_TYPED_INSIDE = ("replicas", "workflow_args")
Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Filled:
    """One job of a file, with its place in the matrix."""

    values: dict[str, Any]
    index: int
    combination: Mapping[str, Scalar]


def fill_in(document: JobDocument, given: Mapping[str, str]) -> list[Filled]:
    """The jobs of the file, without expressions. Faults are added to the document's."""
    parameters = _parameters(document, given)
    matrix = _matrix(document)
    fields = {k: v for k, v in document.values.items() if k not in ("parameters", "matrix")}
    names = list(matrix)
    combinations = itertools.product(*matrix.values())
    jobs = []
    for index, values in enumerate(combinations):
        combination = dict(zip(names, values, strict=True))
        known = {"params": parameters, "matrix": combination}
        filler = _Filler(document, known)
        jobs.append(Filled(filler.fill(fields, ()), index, combination))
        if filler.failed:
            break  # the next ones have the same faults
    return jobs


def _parameters(document: JobDocument, given: Mapping[str, str]) -> dict[str, Scalar]:
    stated = document.values.get("parameters", {})
    if not _is_named(stated):
        document.fault("parameters: expected names with their defaults", "parameters")
        return {}
    if len(stated) > PARAMETERS_MAX:
        document.fault(f"parameters: more than {PARAMETERS_MAX}", "parameters")
    found: dict[str, Scalar] = {}
    for name, default in stated.items():
        if isinstance(default, dict | list):
            document.fault(f"parameters.{name}: expected one value", "parameters", name)
        elif name in given:
            _take(document, found, name, default, given[name])
        elif default is None:
            words = f"parameter {name} has no default: say it with -p {name}=VALUE"
            document.fault(words, "parameters", name)
        else:
            found[name] = default
    for name in given.keys() - stated.keys():
        known = nearest(name, stated) if stated else "the file declares none"
        document.faults.append(FileFault(document.top, f"-p {name}: no such parameter; {known}"))
    return found


def _take(
    document: JobDocument, found: dict[str, Scalar], name: str, default: object, word: str
) -> None:
    """A given value has the type of the default."""
    try:
        found[name] = _typed(default, word)
    except ValueError:
        expected = {bool: "true or false", int: "a whole number"}.get(type(default), "a number")
        words = f"-p {name}: got {word!r}, expected {expected}, as its default is"
        document.fault(words, "parameters", name)


def _typed(default: object, word: str) -> Scalar:
    if isinstance(default, bool):
        if word.lower() not in ("true", "false"):
            raise ValueError
        return word.lower() == "true"
    if isinstance(default, int):
        return int(word)
    if isinstance(default, float):
        number = float(word)
        if not math.isfinite(number):
            raise ValueError
        return number
    return word


def _matrix(document: JobDocument) -> dict[str, list[Scalar]]:
    """Name → values; without a matrix the one empty combination."""
    stated = document.values.get("matrix", {})
    right = _is_named(stated) and all(
        isinstance(values, list) and values and all(isinstance(value, Scalar) for value in values)
        for values in stated.values()
    )
    if not right:
        document.fault("matrix: expected names, each with a list of values", "matrix")
        return {}
    count = math.prod(len(values) for values in stated.values())
    if count > MATRIX_MAX:
        document.fault(f"matrix: {count} combinations, expected at most {MATRIX_MAX}", "matrix")
        return {name: values[:1] for name, values in stated.items()}
    if stated and "array" in document.values:
        document.fault("array: not beside matrix: each combination is a job", "array")
    return dict(stated)


def _is_named(stated: object) -> bool:
    return isinstance(stated, dict) and all(_NAME.match(str(name)) for name in stated)


class _Filler:
    """Puts values in the place of expressions."""

    def __init__(self, document: JobDocument, known: Mapping[str, Mapping[str, Scalar]]) -> None:
        self._document, self._known = document, known
        self.failed = False

    def fill(self, value: Any, where: Where) -> Any:
        if isinstance(value, dict):
            return {key: self.fill(inner, (*where, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.fill(inner, (*where, n)) for n, inner in enumerate(value)]
        return self._text(value, where) if isinstance(value, str) else value

    def _text(self, text: str, where: Where) -> Any:
        if "${{" not in text:
            return text
        alone = _EXPRESSION.fullmatch(text.strip())
        if alone is not None and not alone[1] and not _wants_text(where):
            return self._value(alone[2], where)
        return _EXPRESSION.sub(lambda one: self._inserted(one, where), text)

    def _inserted(self, one: re.Match[str], where: Where) -> str:
        if one[1]:  # $${{ … }} stands for itself
            return one[0][1:]
        found = self._value(one[2], where)
        return str(found).lower() if isinstance(found, bool) else str(found)

    def _value(self, said: str, where: Where) -> Scalar:
        match = _REFERENCE.match(said.strip())
        if match is None:
            self._fail(f"${{{{{said}}}}}: expected the name of a parameter, or matrix.NAME", where)
            return ""
        room = match[1] or "params"
        known = self._known[room]
        if match[2] not in known:
            if match[2] in (self._document.values.get("parameters") or {}):
                self.failed = True  # its own fault says why it has no value
                return ""
            names = [*self._known["params"], *(f"matrix.{n}" for n in self._known["matrix"])]
            hint = nearest(match[2], names) if names else "the file declares none"
            self._fail(f"${{{{{said}}}}}: no such parameter; {hint}", where)
            return ""
        return known[match[2]]

    def _fail(self, words: str, where: Where) -> None:
        self.failed = True
        self._document.fault(words, *where)


def _wants_text(where: Where) -> bool:
    """Whether numbers are texts there: a word of the command, a variable, a label, a name."""
    name = str(where[0])
    if len(where) > 1:
        return name not in _TYPED_INSIDE
    kind = FIELDS[name].kind if name in FIELDS else None
    return kind is not None and kind.schema.get("type") == "string"


def unused(document: JobDocument) -> Iterator[FileFault]:
    """Names of a matrix that nothing uses: all its jobs would be the same."""
    texts = [text for _, text in leaves(document.values) if isinstance(text, str)]
    said = " ".join(one[2] for text in texts for one in _EXPRESSION.finditer(text))
    for name in document.values.get("matrix") or {}:
        if not re.search(rf"\bmatrix\.{re.escape(str(name))}\b", said):
            words = f"matrix.{name}: nothing in the file uses ${{{{ matrix.{name} }}}}"
            yield FileFault(document.place_of("matrix", name), words)
