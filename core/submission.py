"""A submission: its fields one by one, and how they fit together.

`parse_submission()` reports every fault at once. The table of job fields makes the OpenAPI schema
too, so that the documentation cannot drift from the check.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from json.encoder import encode_basestring_ascii
from typing import Any

from core.errors import BadInput, Fault
from core.field_kinds import AFTER, REGIONS, sizes
from core.groups import ARRAY_MAX, parse_array
from core.job_fields import CONFIGURED, FIELDS, JOB_ID_CHARS_MAX, SPEC_FIELDS, JobSpec
from core.timers import Timers

ARRAY_LABELS_BYTES_MAX = 4_000_000
"""Of all jobs of an array together."""


Values = dict[str, Any]
"""Attributes of JobSpec that a submission sets; the others stand at their defaults."""


def parse_submission(data: object, timers: Timers, fresh_id: str) -> JobSpec:
    """The submission as a JobSpec, or BadInput with every fault. `fresh_id` is the job id of a
    caller who brings none."""
    return JobSpec(**read_submission(data, timers, fresh_id))


def read_submission(data: object, timers: Timers, fresh_id: str) -> Values:
    """The same before a JobSpec is made of it: who submits still has to be filled in."""
    if not isinstance(data, Mapping):
        raise BadInput([Fault("body", shown(data), "a JSON object with the fields of a job")])
    faults = _faults_by_field(data) + _relations(data)
    if faults:
        raise BadInput(faults)
    return _build(data, timers, fresh_id)


def _faults_by_field(data: Mapping[object, object]) -> list[Fault]:
    """Unknown fields first, then wrong values in the order of the table."""
    unknown_fields: list[Fault] = []
    wrong: dict[str, Fault] = {}
    for name, value in data.items():
        if (field := FIELDS.get(name)) is None:  # type: ignore[call-overload]  # any key may come
            unknown_fields.append(_unknown(name))
        elif field.kind and (expected := field.kind.check(value)) is not None:
            got = "something else" if field.kind.private else shown(value)
            wrong[field.name] = Fault(field.name, got, expected)
    if not wrong:
        return unknown_fields
    return unknown_fields + [wrong[name] for name in FIELDS if name in wrong]


def content_hash(spec: JobSpec) -> str:
    """Tells a repeat of a submission from another one under the same id."""
    return hash_of_values({name: getattr(spec, name) for name in _DEFAULTS})


def hash_of_values(values: Values) -> str:
    """The content hash of the JobSpec with these values."""
    texts = _FIRST_TEXTS | {
        name: f'"{name}":{_text_of(value)}'
        for name, value in values.items()
        if name in _FIRST or value != _DEFAULTS[name]
    }
    text = ",".join([texts[name] for name in sorted(texts)])
    return hashlib.sha256(f"{{{text}}}".encode()).hexdigest()


# Fields of the first version are always part of the hash. A later one leaves it as it was while it
# stands at its default: a submission that is repeated after an upgrade is still the same one.
_DEFAULTS = {field.attribute: field.default for field in SPEC_FIELDS}
_FIRST: Values = {
    name: _DEFAULTS[name]
    for name in (
        *("job_id", "user_id", "tenant_id", "name", "labels", "priority", "keep_alive"),
        *("command", "shell", "environment", "workflow", "workflow_args", "cluster", "regions"),
        *("gpu_type", "gpu_count", "gpu_memory_mb", "cpu_cores", "memory_mb"),
        *("max_runtime_s", "queue_timeout_s", "stop_grace_s", "retries"),
    )
}


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else list(value)  # type: ignore[call-overload]


# Made once: json.dumps makes a new one in each call with options.
_hashed_text = json.JSONEncoder(sort_keys=True, default=_plain, separators=(",", ":")).encode


def _text_of(value: object) -> str:
    """As the encoder has it; text, seconds and the words of a command need none."""
    if type(value) is str:
        return encode_basestring_ascii(value)
    if type(value) is float and math.isfinite(value):
        return repr(value)
    if type(value) is tuple and all(type(word) is str for word in value):
        return f"[{','.join(map(encode_basestring_ascii, value))}]"
    return _hashed_text(value)


_FIRST_TEXTS = {name: f'"{name}":{_text_of(value)}' for name, value in _FIRST.items()}
"""What is hashed of each field of the first version that a submission does not name."""


def json_schema() -> dict[str, object]:
    """The JSON schema of a submission, for OpenAPI."""
    return {
        "type": "object",
        "additionalProperties": False,
        "anyOf": [{"required": [name]} for name in ("command", "script", "image", "workflow")],
        "properties": {
            name: {**field.kind.schema, "description": field.doc}
            for name, field in FIELDS.items()
            if field.kind is not None
        },
    }


def shown(value: object) -> str:
    """A value as it may stand in an error message: bounded, one line."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"


NEAR_MAX = 3
"""How many names an error message offers."""


def nearest(word: str, known: Iterable[str]) -> str:
    """ "nearest: a, b" for an error message; all of them if none is near. Names that begin with the
    word come first: a100 means a100-40gb or a100-80gb rather than v100."""
    names, word = sorted(known), word[:80]
    begun = [name for name in names if word and name.startswith(word)]
    alike = difflib.get_close_matches(word, names, n=NEAR_MAX, cutoff=0.4)
    close = list(dict.fromkeys([*begun, *alike]))[:NEAR_MAX]
    return f"nearest: {', '.join(close)}" if close else f"one of: {', '.join(names)}"


def unknown(kind: str, word: str, known: Iterable[str], field: str = "") -> Fault:
    """A name that there is not: with the one that was probably meant, or all that there are."""
    names, word = sorted(known), word[:80]
    # What only lacks its end, or its beginning, is nearest: gpus_by is near gpus_by_type.
    close = [name for name in names if word and name.startswith(word)]
    close += difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    close += [name for name in names if word and word in name]
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(names) or 'none'}"
    expected = nearest(word, names) if names else f"no {kind}s"
    return Fault(field or word, f"an unknown {kind}", expected, f"unknown {kind} {word}; {hint}")


def unknown_cluster(name: str, known: Iterable[str]) -> Fault:
    """A cluster that is not configured: the one sentence for it."""
    return replace(unknown("cluster", name, known, "cluster"), got=shown(name))


# What people write because the command line's option is called so.
_OPTIONS = {
    field.option.flag[2:].replace("-", "_"): field.name
    for field in FIELDS.values()
    if field.option is not None
}


def _unknown(key: object) -> Fault:
    fault = unknown("field", str(key), FIELDS)
    meant = _OPTIONS.get(str(key))
    words = f"unknown field {key}; did you mean {meant}?"
    return replace(fault, expected=f"nearest: {meant}", words=words) if meant else fault


_RELATED = frozenset(
    {
        *("gpu_types", "regions_denied", "secrets", "google_token", "array", "after"),
        *("replicas", "shell", "script"),
    }
)
"""Without one of these, no field of a submission can contradict another."""


def _relations(data: Mapping[object, object]) -> list[Fault]:
    faults = []
    command = data.get("command")
    programs = ("workflow", "image", "script")
    if command in (None, [], "") and not any(data.get(name) for name in programs):
        faults.append(
            Fault("command", shown(command), 'a non-empty list, e.g. ["python3", "train.py"]')
        )
    elif isinstance(command, list) and command and not str(command[0]).strip():
        faults.append(Fault("command", shown(command), "a program first, not an empty word"))
    if _RELATED.isdisjoint(data):
        return faults
    faults += _contradictions(data)
    faults += _two_programs(data)
    if data.get("google_token") is True and data.get("image"):
        expected = "false: containers have no token endpoint yet; run it as a process"
        faults.append(Fault("google_token", "true", expected))
    if data.get("array") and data.get("group"):
        expected = "no group: the jobs of an array are the group of its job_id"
        faults.append(Fault("group", shown(data["group"]), expected))
    faults += _waits_for_itself(data)
    faults += _long_ids(data)
    faults += _too_many(data)
    faults += _long_labels(data)
    if data.get("shell") and isinstance(command, list) and len(command) != 1:
        faults.append(
            Fault("command", f"{len(command)} words", "one string, because shell is true")
        )
    return faults


def _two_programs(data: Mapping[object, object]) -> list[Fault]:
    """A script is the whole program of a job."""
    if not data.get("script"):
        return []
    return [
        Fault(name, shown(data[name]), "nothing beside script: it is all that runs")
        for name in ("command", "args", "workflow")
        if data.get(name)
    ]


def _contradictions(data: Mapping[object, object]) -> list[Fault]:
    faults = []
    if data.get("gpu_types") and data.get("gpu_type"):
        expected = "gpu_type or gpu_types, not both"
        faults.append(Fault("gpu_types", shown(data["gpu_types"]), expected))
    wanted, denied = data.get("regions"), data.get("regions_denied")
    if REGIONS.check(wanted) is None and REGIONS.check(denied) is None:
        both = sorted(set(wanted) & set(denied))  # type: ignore[call-overload]  # lists of str
        expected = "regions that are not in `regions` as well"
        faults += [Fault("regions_denied", shown(name), expected) for name in both]
    secrets, environment = data.get("secrets"), data.get("environment")
    if isinstance(secrets, Mapping) and isinstance(environment, Mapping):
        twice = [str(name)[:80] for name in secrets if name in environment]
        expected = "a variable that is not in `environment` as well"
        faults += [Fault("secrets", shown(name), expected) for name in twice]
    return faults


def _waits_for_itself(data: Mapping[object, object]) -> list[Fault]:
    after, own = data.get("after"), [data.get("job_id"), data.get("group")]
    if AFTER.check(after) is not None or not isinstance(after, list):
        return []
    found = [word for word in after if str(word).partition(":")[0] in own]
    expected = "jobs that were submitted before: a job cannot wait for itself or its own group"
    return [Fault("after", shown(word), expected) for word in found]


def _long_ids(data: Mapping[object, object]) -> list[Fault]:
    """The jobs of an array and the members of a gang have longer ids than what was submitted."""
    job_id, array, replicas = data.get("job_id"), data.get("array"), data.get("replicas")
    if not isinstance(job_id, str):
        return []
    end = f"-{max(parse_array(array) or (0,))}" if isinstance(array, str) else ""
    most = sizes(replicas)
    end += f".{most[1] - 1}" if most is not None and most[1] > 1 else ""
    if not end or len(job_id) + len(end) <= JOB_ID_CHARS_MAX:
        return []
    return [Fault("job_id", shown(job_id), f"room for {end} within {JOB_ID_CHARS_MAX} letters")]


def _too_many(data: Mapping[object, object]) -> list[Fault]:
    replicas, array = sizes(data.get("replicas")), data.get("array")
    if replicas is None or not isinstance(array, str):
        return []
    count = len(parse_array(array) or ())
    if count * replicas[1] <= ARRAY_MAX:
        return []
    expected = f"at most {ARRAY_MAX} in all, with {count} indexes"
    return [Fault("replicas", shown(data["replicas"]), expected)]


def _long_labels(data: Mapping[object, object]) -> list[Fault]:
    """Each job of an array has labels of its own in the index by which they are found."""
    labels, array = data.get("labels"), data.get("array")
    if not isinstance(labels, Mapping) or not isinstance(array, str):
        return []
    count = len(parse_array(array) or ())
    size = len(json.dumps(labels, default=str).encode())
    if count * size <= ARRAY_LABELS_BYTES_MAX:
        return []
    expected = f"at most {ARRAY_LABELS_BYTES_MAX // count} bytes as JSON, with {count} indexes"
    return [Fault("labels", f"{size} bytes", expected)]


def _build(data: Mapping[str, object], timers: Timers, fresh_id: str) -> Values:
    """Every value has passed its check."""
    values: dict[str, Any] = {name: getattr(timers, name) for name in CONFIGURED}
    values["job_id"] = fresh_id
    for name, value in data.items():
        field = FIELDS[name]
        if field.attribute and field.kind is not None:
            values[field.attribute] = field.kind.read(value)
    if "gpu_count" not in values and values.get("cluster", "").startswith("0x"):
        values["gpu_count"] = 0
    return values | _folded(data)


def _folded(data: Mapping[str, Any]) -> dict[str, object]:
    """What several fields of a submission make together."""
    script, command = data.get("script"), tuple(data.get("command") or ())
    least, most = sizes(data.get("replicas", 1)) or (1, 1)
    return {
        "command": (script,) if script else command + tuple(data.get("args") or ()),
        "shell": bool(data.get("shell") or script),
        "keep_entrypoint": bool(data.get("image")) and not command and not script,
        "replicas_min": least if least < most else None,
    }
