"""From a job file to submissions: what `zen submit -f` sends, and what `zen job check` finds."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.env_file import BadEnvFile, read_env_file
from cli.job_files.documents import STDIN, BadFile, FileFault, JobDocument
from cli.job_files.expressions import Filled, fill_in, unused
from cli.job_files.extending import read_extended
from core.errors import BadInput, Fault
from core.job_fields import FIELDS
from core.job_file_schema import FILE_KEYS
from core.submission import read_submission, unknown
from core.timers import Timers

_TIMERS = Timers()


@dataclass(frozen=True, slots=True)
class JobFile:
    """The submissions that a file stands for."""

    bodies: tuple[dict[str, Any], ...]
    matrix: bool
    """One for each combination; else there is one."""


def read_job_file(file: Path, given: Mapping[str, str]) -> JobFile:
    """BadFile with every fault of its own words: files that it extends, parameters, expressions.
    What the fields of a job may be is for the service to say."""
    document = read_extended(file)
    if _is_manifest(document):
        return JobFile((_native(document.values),), matrix=False)
    bodies = tuple(_body(document, job, file) for job in fill_in(document, given))
    if document.faults:
        raise BadFile(*document.faults)
    return JobFile(bodies, bool(document.values.get("matrix")))


def check_job_file(file: Path, given: Mapping[str, str]) -> list[FileFault]:
    """Every fault of the file, in the order of its lines. Nothing is asked of a service."""
    try:
        document = read_extended(file)
    except BadFile as bad:
        return list(bad.faults)
    if _is_manifest(document):
        return _field_faults(document, _native(document.values))
    bodies = [_body(document, job, file) for job in fill_in(document, given)]
    faults = [*document.faults, *unused(document)]
    for body in bodies:
        faults += _field_faults(document, body)
    return list(dict.fromkeys(sorted(faults)))


def _is_manifest(document: JobDocument) -> bool:
    """Whether it is a manifest of another system."""
    from core.unified_job import is_manifest

    return is_manifest(document.values)


def _native(values: dict[str, Any]) -> dict[str, Any]:
    """A manifest read as a submission, so that options can win over it."""
    from core.unified_job import native_of_manifest

    return native_of_manifest(values)


def _body(document: JobDocument, job: Filled, file: Path) -> dict[str, Any]:
    body = {key: value for key, value in job.values.items() if key != "env_file"}
    if (said := job.values.get("env_file")) is not None:
        stated = body.get("environment")
        found = _variables(document, said, file)
        body["environment"] = {**found, **stated} if isinstance(stated, dict) else found
    return body


def _variables(document: JobDocument, said: object, file: Path) -> dict[str, str]:
    if not isinstance(said, str):
        document.fault("env_file: expected the name of a file", "env_file")
        return {}
    stands_in = document.place_of("env_file").file
    base = Path() if STDIN in (str(file), stands_in) else Path(stands_in).parent
    try:
        return read_env_file(base / said)
    except (OSError, BadEnvFile) as error:
        words = getattr(error, "strerror", None) or str(error)
        document.fault(f"env_file: {said}: {words}", "env_file")
        return {}


def _field_faults(document: JobDocument, body: dict[str, Any]) -> list[FileFault]:
    try:
        read_submission(body, _TIMERS, "file")
    except BadInput as bad:
        return [_located(document, fault) for fault in bad.faults]
    return []


def _located(document: JobDocument, fault: Fault) -> FileFault:
    name = fault.field.partition(".")[0]
    if name in FIELDS:
        return FileFault(document.places.get((name,), document.top), fault.words or str(fault))
    # A misspelt key may be meant for the file, not for the job.
    if difflib.get_close_matches(name, FILE_KEYS, n=1, cutoff=0.7):
        fault = unknown("field", name, FILE_KEYS)
    return FileFault(document.keys.get((name,), document.top), fault.words or str(fault))
