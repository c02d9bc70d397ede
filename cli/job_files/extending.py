"""Files that extend others: one document of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cli.job_files.documents import STDIN, BadFile, FileFault, JobDocument, read_document
from core.job_file_schema import EXTENDS_MAX

MERGED = ("environment", "labels", "secrets", "parameters")
PROGRAM_FIELDS = ("command", "script", "args", "shell")


def read_extended(file: Path) -> JobDocument:
    """The file over the ones that it extends. BadFile for a file that is not there, a cycle, or too
    many."""
    chain = [_name(file)]
    document = read_document(file)
    made, last = document, file
    while (said := document.values.get("extends")) is not None:
        place = document.place_of("extends")
        if not isinstance(said, str) or not said:
            raise BadFile(FileFault(place, "extends: expected the name of a job file"))
        last = last.parent / said if str(last) != STDIN else Path(said)
        if _name(last) in chain:
            way = " → ".join(Path(name).name for name in (*chain, _name(last)))
            raise BadFile(FileFault(place, f"extends: a cycle: {way}"))
        chain.append(_name(last))
        if len(chain) > EXTENDS_MAX + 1:
            raise BadFile(FileFault(place, f"extends: more than {EXTENDS_MAX} files"))
        if not last.is_file():
            raise BadFile(FileFault(place, f"extends: there is no file {last}"))
        document = read_document(last)
        made = _over(made, document)
    made.values.pop("extends", None)
    return made


def _name(file: Path) -> str:
    return STDIN if str(file) == STDIN else str(file.resolve())


def _over(upper: JobDocument, lower: JobDocument) -> JobDocument:
    """What the upper one says wins."""
    values: dict[str, Any] = dict(lower.values)
    hidden: set[str] = set()
    if {"command", "script", "args"} & upper.values.keys():
        hidden = {name for name in PROGRAM_FIELDS if values.pop(name, None) is not None}
    for one, other in (("gpu_type", "gpu_types"), ("gpu_types", "gpu_type")):
        if one in upper.values and values.pop(other, None) is not None:
            hidden.add(other)
    for name, value in upper.values.items():
        below = values.get(name)
        if name in MERGED and isinstance(value, dict) and isinstance(below, dict):
            values[name] = {**below, **value}
        else:
            hidden.add(name)
            values[name] = value
    kept = {where: at for where, at in lower.places.items() if where[0] not in hidden}
    kept_keys = {where: at for where, at in lower.keys.items() if where[0] not in hidden}
    return JobDocument(
        values,
        upper.top,
        kept | upper.places,
        kept_keys | upper.keys,
        [*upper.faults, *lower.faults],
    )
