"""What a submission may contain: one table that REST, Pub/Sub and the command line share.

`parse_submission()` reports every fault at once. The same table makes the OpenAPI schema,
so that the documentation cannot drift from the check.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from core.errors import BadInput, Fault
from core.job import JobSpec
from core.names import JOB_ID
from core.timers import Timers

GPU_COUNT_MAX = 64
COMMAND_BYTES_MAX = 128 * 1024
ENVIRONMENT_MAX = 256
LABELS_MAX = 64
_NAME = re.compile(r"[^\x00-\x1f\x7f]{0,128}\Z")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?\Z")
_ANY_CASE_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}\Z")
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")

Check = Callable[[object], str | None]
"""Returns what was expected, or None if the value is right."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a submission."""

    name: str
    check: Check
    schema: Mapping[str, object]
    doc: str


def parse_submission(data: object, timers: Timers, fresh_id: str) -> JobSpec:
    """The submission as a JobSpec, or BadInput with every fault. `fresh_id` is the job id of a
    caller who brings none."""
    if not isinstance(data, Mapping):
        raise BadInput([Fault("body", shown(data), "a JSON object with the fields of a job")])
    faults = [_unknown(key) for key in data if key not in FIELDS]
    for name, field in FIELDS.items():
        if name in data and (expected := field.check(data[name])) is not None:
            faults.append(Fault(name, shown(data[name]), expected))
    faults += _relations(data)
    if faults:
        raise BadInput(faults)
    return _build(data, timers, fresh_id)


def content_hash(spec: JobSpec) -> str:
    """Tells a repeat of a submission from another one under the same id."""
    words = {name: getattr(spec, name) for name in JobSpec.__slots__}
    text = json.dumps(words, sort_keys=True, default=list, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def json_schema() -> dict[str, object]:
    """The JSON schema of a submission, for OpenAPI."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["command"],
        "properties": {f.name: {**f.schema, "description": f.doc} for f in FIELDS.values()},
    }


def shown(value: object) -> str:
    """A value as it may stand in an error message: bounded, one line."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"


def nearest(word: str, known: Iterable[str]) -> str:
    """ "nearest: a, b" for an error message; all of them if none is near."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.4)
    return f"nearest: {', '.join(close)}" if close else f"one of: {', '.join(names)}"


def _unknown(key: object) -> Fault:
    return Fault(str(key)[:80], "a field we do not know", nearest(str(key), FIELDS))


def _relations(data: Mapping[object, object]) -> list[Fault]:
    faults = []
    command = data.get("command")
    if command in (None, [], "") and not data.get("workflow"):
        faults.append(
            Fault("command", shown(command), 'a non-empty list, e.g. ["python3", "train.py"]')
        )
    elif isinstance(command, list) and command and not str(command[0]).strip():
        faults.append(Fault("command", shown(command), "a program first, not an empty word"))
    if data.get("image"):
        faults.append(
            Fault("image", shown(data["image"]), "no image: jobs run as processes on the VM")
        )
    if data.get("gang_scheduling"):
        faults.append(Fault("gang_scheduling", "true", "false: a job runs on one VM"))
    if data.get("shell") and isinstance(command, list) and len(command) != 1:
        faults.append(
            Fault("command", f"{len(command)} words", "one string, because shell is true")
        )
    return faults


def _build(data: Mapping[object, object], timers: Timers, fresh_id: str) -> JobSpec:
    def text(name: str, default: str = "") -> str:
        value = data.get(name)
        return default if value is None else str(value)

    def number(name: str, default: float) -> float:
        value = data.get(name)
        return float(value) if isinstance(value, int | float) else default

    def words(name: str) -> tuple[str, ...]:
        value = data.get(name)
        return tuple(str(word) for word in value) if isinstance(value, list) else ()

    def pairs(name: str) -> dict[str, str]:
        value = data.get(name)
        return {str(k): str(v) for k, v in value.items()} if isinstance(value, Mapping) else {}

    workflow_args = data.get("workflow_args")
    minutes = data.get("max_runtime_minutes")
    runtime_s = minutes * 60 if isinstance(minutes, int | float) else timers.max_runtime_s
    return JobSpec(
        job_id=text("job_id", fresh_id),
        user_id=text("user_id", "0"),
        tenant_id=text("tenant_id", "default"),
        name=text("name"),
        command=words("command") + words("args"),
        shell=bool(data.get("shell")),
        environment=pairs("environment"),
        gpu_type=text("gpu_type").lower() or None,
        gpu_count=int(number("gpu_count", 1)),
        cluster=text("cluster") or None,
        gpu_memory_mb=int(number("gpu_memory_mb", 0)),
        cpu_cores=number("cpu_cores", 0),
        memory_mb=int(number("memory_mb", 0)),
        priority=int(number("priority", 500)),
        regions=words("regions"),
        max_runtime_s=runtime_s,
        queue_timeout_s=number("queue_timeout_s", timers.queue_timeout_s),
        stop_grace_s=number("stop_grace_s", timers.stop_grace_s),
        retries=int(number("retries", 0)),
        labels=pairs("labels"),
        keep_alive=bool(data.get("keep_alive")),
        workflow=text("workflow"),
        workflow_args=dict(workflow_args) if isinstance(workflow_args, Mapping) else {},
    )


# --- checks -----------------------------------------------------------------------------


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(low: int, high: int) -> Check:
    expected = f"a whole number from {low} to {high}"

    def check(value: object) -> str | None:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return None if whole and low <= value <= high else expected  # type: ignore[operator]

    return check


def _span(low: float, high: float, unit: str) -> Check:
    expected = f"a number of {unit} from {low:g} to {high:g}"

    def check(value: object) -> str | None:
        return None if _is_number(value) and low <= value <= high else expected  # type: ignore[operator]

    return check


def _pattern(pattern: re.Pattern[str], expected: str) -> Check:
    def check(value: object) -> str | None:
        return None if isinstance(value, str) and pattern.match(value) else expected

    return check


def _flag(value: object) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _argv(value: object) -> str | None:
    expected = "a list of strings without NUL, at most 128 KiB together"
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        return expected
    if any("\0" in word for word in value):
        return expected
    size = sum(len(word.encode(errors="surrogatepass")) for word in value)
    return None if size <= COMMAND_BYTES_MAX else expected


def _slugs(value: object) -> str | None:
    right = isinstance(value, list) and all(isinstance(w, str) and _SLUG.match(w) for w in value)
    return None if right else 'a list of region names, e.g. ["us-central1"]'


def _strings(names: re.Pattern[str], most: int, what: str) -> Check:
    expected = f"an object of at most {most} {what} with string values"

    def check(value: object) -> str | None:
        right = (
            isinstance(value, Mapping)
            and len(value) <= most
            and all(isinstance(k, str) and names.match(k) for k in value)
            and all(isinstance(v, str) and "\0" not in v for v in value.values())
        )
        return None if right else expected

    return check


def _object(value: object) -> str | None:
    return None if isinstance(value, Mapping) else "an object"


def _table(fields: Iterable[Field]) -> dict[str, Field]:
    return {field.name: field for field in fields}


_ID_WORDS = "1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit"
_TEXT: Mapping[str, object] = {"type": "string"}
_LIST: Mapping[str, object] = {"type": "array", "items": {"type": "string"}}
_MAP: Mapping[str, object] = {"type": "object", "additionalProperties": {"type": "string"}}
_INT: Mapping[str, object] = {"type": "integer"}
_NUM: Mapping[str, object] = {"type": "number"}
_BOOL: Mapping[str, object] = {"type": "boolean"}

FIELDS: Mapping[str, Field] = _table(
    [
        Field("command", _argv, _LIST, "The program and its arguments; no shell unless asked."),
        Field("args", _argv, _LIST, "More arguments, put after the command."),
        Field("shell", _flag, _BOOL, "Run the one string in `command` with /bin/sh -c."),
        Field("job_id", _pattern(JOB_ID, _ID_WORDS), _TEXT, f"Your own id ({_ID_WORDS})."),
        Field("user_id", _pattern(_TENANT, _ID_WORDS), _TEXT, "Who asks; half of the identity."),
        Field("tenant_id", _pattern(_TENANT, _ID_WORDS), _TEXT, "Who pays."),
        Field("name", _pattern(_NAME, "at most 128 printable characters"), _TEXT, "For people."),
        Field("priority", _whole(0, 9999), _INT, "Higher runs earlier; 500 is normal."),
        Field("gpu_count", _whole(1, GPU_COUNT_MAX), _INT, "GPUs on one VM."),
        Field(
            "gpu_type",
            _pattern(_ANY_CASE_SLUG, "a GPU type, e.g. a100-40gb"),
            {"type": "string", "examples": ["a100-40gb", "l4"]},
            "Without it: the cheapest cluster that fits.",
        ),
        Field(
            "cluster", _pattern(_SLUG, "a cluster, e.g. 2xa100-40gb"), _TEXT, "Exactly this one."
        ),
        Field(
            "gpu_memory_mb",
            _whole(0, 1024 * 1024),
            _INT,
            "At least this much memory on each GPU.",
        ),
        Field("cpu_cores", _span(0, 1024, "cores"), _NUM, "At least this many cores on the VM."),
        Field("memory_mb", _whole(0, 16 * 1024 * 1024), _INT, "At least this much on the VM."),
        Field("regions", _slugs, _LIST, "Only these regions; empty: any."),
        Field(
            "environment", _strings(_ENV_NAME, ENVIRONMENT_MAX, "variables"), _MAP, "For the job."
        ),
        Field("labels", _strings(_LABEL, LABELS_MAX, "labels"), _MAP, "To find it again."),
        Field(
            "max_runtime_minutes",
            _span(0.01, 60 * 24 * 30, "minutes"),
            _NUM,
            "Stopped, then FAILED, after this long.",
        ),
        Field(
            "queue_timeout_s",
            _span(1, 90 * 86400, "seconds"),
            _NUM,
            "FAILED if it has not started by then.",
        ),
        Field("stop_grace_s", _span(0, 3600, "seconds"), _NUM, "From SIGTERM to SIGKILL."),
        Field("retries", _whole(0, 100), _INT, "How often a non-zero exit is tried again."),
        Field("keep_alive", _flag, _BOOL, "Keep the VM after the job (v1 workers)."),
        Field("workflow", _pattern(_NAME, "a workflow name"), _TEXT, "For v1 workers."),
        Field("workflow_args", _object, {"type": "object"}, "For v1 workers."),
        Field("image", _pattern(_NAME, "a string"), _TEXT, "Not supported: jobs are processes."),
        Field("gang_scheduling", _flag, _BOOL, "Must be false: a job runs on one VM."),
    ]
)
