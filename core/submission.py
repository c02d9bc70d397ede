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
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from core.errors import BadInput, Fault
from core.groups import (
    AFTER_MAX,
    AFTER_WORDS,
    ARRAY_MAX,
    ARRAY_WORDS,
    parse_after,
    parse_array,
)
from core.job import JobSpec
from core.names import JOB_ID
from core.timers import Timers

GPU_COUNT_MAX = 64
REPLICAS_MAX = 1000
REPLICAS_WORDS = (
    f"a whole number from 1 to {REPLICAS_MAX}, or {{min, max}} with 1 <= min <= max <= "
    f"{REPLICAS_MAX}"
)
RESIZE_SIGNALS = ("USR1", "USR2", "none")
JOB_ID_CHARS_MAX = 63
GPU_TYPES_MAX = 16
COMMAND_BYTES_MAX = 128 * 1024
ENVIRONMENT_MAX = 256
LABELS_MAX = 64
_NAME = re.compile(r"[^\x00-\x1f\x7f]{0,128}\Z")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
# v1 workers look for a script of that name: it must not lead anywhere else.
_WORKFLOW = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,127})?\Z")
_WORKFLOW_WORDS = "1 to 128 letters, digits, '.', '_' or '-', beginning with a letter or digit"
_ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}\Z")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?\Z")
_ANY_CASE_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}\Z")
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
_DIRECTORY = re.compile(r"(?:/[^\x00-\x1f\x7f]{0,1023})?\Z")
_DIRECTORY_WORDS = "a path from the root, e.g. /app"
# As the distribution specification has it: [host[:port]/]path[:tag][@digest].
_IMAGE_PART = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{{1,5}})?/)?{_IMAGE_PART}(?:/{_IMAGE_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?\Z"
)
_IMAGE_CHARS_MAX = 512

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
    words = {k: v for k, v in words.items() if k not in _LATER or v != _LATER[k]}
    text = json.dumps(words, sort_keys=True, default=_plain, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# Fields that older versions did not know: without a value they leave the hash as it was, so that a
# submission that is repeated after an upgrade is still the same one.
_LATER: Mapping[str, object] = {
    **dict.fromkeys(("max_usd_per_hour", "spot", "deadline", "group", "array", "image")),
    **dict.fromkeys(("allow_larger", "agreed_usd_per_hour")),
    "working_dir": "",
    "keep_entrypoint": False,
    "replicas": 1,
    "replicas_min": None,
    "resize_signal": "USR1",
    "reschedulable": True,
    **dict.fromkeys(("same_zone", "replace_members"), False),
    **dict.fromkeys(("after", "gpu_types", "regions_denied"), ()),
}
"""Name → what it is when nothing was said."""


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else list(value)  # type: ignore[call-overload]


def json_schema() -> dict[str, object]:
    """The JSON schema of a submission, for OpenAPI."""
    return {
        "type": "object",
        "additionalProperties": False,
        "anyOf": [{"required": [name]} for name in ("command", "script", "image", "workflow")],
        "properties": {f.name: {**f.schema, "description": f.doc} for f in FIELDS.values()},
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


# What people write because the command line's option is called so.
_OPTIONS = {"gpus": "gpu_count", "cpus": "cpu_cores", "max_price": "max_usd_per_hour"}


def _unknown(key: object) -> Fault:
    fault = unknown("field", str(key), FIELDS)
    meant = _OPTIONS.get(str(key))
    words = f"unknown field {key}; did you mean {meant}?"
    return replace(fault, expected=f"nearest: {meant}", words=words) if meant else fault


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
    faults += _contradictions(data)
    faults += _two_programs(data)
    if data.get("array") and data.get("group"):
        expected = "no group: the jobs of an array are the group of its job_id"
        faults.append(Fault("group", shown(data["group"]), expected))
    faults += _waits_for_itself(data)
    faults += _long_ids(data)
    faults += _too_many(data)
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
    if _slugs(wanted) is None and _slugs(denied) is None:
        both = sorted(set(wanted) & set(denied))  # type: ignore[call-overload]  # lists of str
        expected = "regions that are not in `regions` as well"
        faults += [Fault("regions_denied", shown(name), expected) for name in both]
    return faults


def _waits_for_itself(data: Mapping[object, object]) -> list[Fault]:
    after, own = data.get("after"), [data.get("job_id"), data.get("group")]
    if _afters(after) is not None or not isinstance(after, list):
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


def sizes(replicas: object) -> tuple[int, int] | None:
    """(least, most) members: of a number, or of {min, max}; None if it is neither."""
    if isinstance(replicas, Mapping):
        if not {"min", "max"} >= replicas.keys() or "max" not in replicas:
            return None
        low, high = replicas.get("min", 1), replicas["max"]
    else:
        low = high = replicas
    both = (low, high)
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in both):
        return None
    return (low, high) if 1 <= low <= high <= REPLICAS_MAX else None


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
    minutes, spot = data.get("max_runtime_minutes"), data.get("spot")
    larger = data.get("allow_larger")
    runtime_s = minutes * 60 if isinstance(minutes, int | float) else timers.max_runtime_s
    least, most = sizes(data.get("replicas", 1)) or (1, 1)
    script = text("script")
    return JobSpec(
        job_id=text("job_id", fresh_id),
        user_id=text("user_id", "0"),
        tenant_id=text("tenant_id", "default"),
        name=text("name"),
        command=(script,) if script else words("command") + words("args"),
        shell=bool(data.get("shell") or script),
        environment=pairs("environment"),
        gpu_type=text("gpu_type").lower() or None,
        gpu_types=tuple(word.lower() for word in words("gpu_types")),
        gpu_count=int(number("gpu_count", 0 if text("cluster").startswith("0x") else 1)),
        cluster=text("cluster") or None,
        gpu_memory_mb=int(number("gpu_memory_mb", 0)),
        cpu_cores=number("cpu_cores", 0),
        memory_mb=int(number("memory_mb", 0)),
        priority=int(number("priority", 500)),
        regions=words("regions"),
        regions_denied=words("regions_denied"),
        max_usd_per_hour=number("max_usd_per_hour", 0.0) or None,
        spot=spot if isinstance(spot, bool) else None,
        allow_larger=larger if isinstance(larger, bool) else None,
        deadline=_moment(data.get("deadline")),
        max_runtime_s=runtime_s,
        queue_timeout_s=number("queue_timeout_s", timers.queue_timeout_s),
        stop_grace_s=number("stop_grace_s", timers.stop_grace_s),
        retries=int(number("retries", 0)),
        labels=pairs("labels"),
        keep_alive=bool(data.get("keep_alive")),
        workflow=text("workflow"),
        workflow_args=dict(workflow_args) if isinstance(workflow_args, Mapping) else {},
        group=text("group") or None,
        after=tuple(str(parse_after(word)) for word in words("after")),
        array=text("array").replace(" ", "") or None,
        replicas=most,
        replicas_min=least if least < most else None,
        resize_signal=text("resize_signal", "USR1"),
        reschedulable=data.get("reschedulable") is not False,
        same_zone=bool(data.get("same_zone")),
        replace_members=bool(data.get("replace_members")),
        image=text("image") or None,
        working_dir=text("working_dir"),
        keep_entrypoint=bool(data.get("image")) and not words("command") and not script,
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


def _script(value: object) -> str | None:
    expected = "a string without NUL, at most 128 KiB"
    if not isinstance(value, str) or "\0" in value:
        return expected
    size = len(value.encode(errors="surrogatepass"))
    return None if size <= COMMAND_BYTES_MAX else expected


def _slugs(value: object) -> str | None:
    right = isinstance(value, list) and all(isinstance(w, str) and _SLUG.match(w) for w in value)
    return None if right else 'a list of region names, e.g. ["us-central1"]'


def _replicas(value: object) -> str | None:
    return None if sizes(value) is not None else REPLICAS_WORDS


def _one_of(*known: str) -> Check:
    def check(value: object) -> str | None:
        return None if value in known else f"one of: {', '.join(known)}"

    return check


def _indexes(value: object) -> str | None:
    right = isinstance(value, str) and parse_array(value) is not None
    return None if right else ARRAY_WORDS


def _afters(value: object) -> str | None:
    if not isinstance(value, list) or len(value) > AFTER_MAX:
        return AFTER_WORDS
    found = [parse_after(word) if isinstance(word, str) else None for word in value]
    needs = {after.needs for after in found if after is not None}
    return None if len(needs) == len(value) else AFTER_WORDS


def _gpu_types(value: object) -> str | None:
    expected = 'a list of different GPU types, the preferred one first, e.g. ["h100-80gb", "l4"]'
    if not isinstance(value, list) or len(value) > GPU_TYPES_MAX:
        return expected
    if not all(isinstance(word, str) and _ANY_CASE_SLUG.match(word) for word in value):
        return expected
    return None if len({word.lower() for word in value}) == len(value) else expected


def _moment(value: object) -> datetime | None:
    """A moment with its offset from UTC, or None."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found.astimezone(UTC) if found is not None and found.tzinfo is not None else None


def _is_moment(value: object) -> str | None:
    expected = "a moment with its offset from UTC, e.g. 2026-09-01T18:00:00Z"
    return None if _moment(value) is not None else expected


def _image(value: object) -> str | None:
    expected = "an image, e.g. python:3.12 or host/path:tag"
    if value is None or value == "":
        return None  # clients that know images send one that is empty for a process
    right = isinstance(value, str) and len(value) <= _IMAGE_CHARS_MAX and _IMAGE.match(value)
    return None if right else expected


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


def _arguments(value: object) -> str | None:
    """v1 workers make options of the names: one with a blank or a quote would be two, or worse."""
    right = isinstance(value, Mapping) and all(
        isinstance(name, str) and _ARGUMENT.match(name) for name in value
    )
    return None if right else "an object whose names are letters, digits, '_', '.' or '-'"


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
        Field("script", _script, _TEXT, "Runs with /bin/sh -c, instead of a command."),
        Field("job_id", _pattern(JOB_ID, _ID_WORDS), _TEXT, f"Your own id ({_ID_WORDS})."),
        Field("user_id", _pattern(_TENANT, _ID_WORDS), _TEXT, "Who asks; half of the identity."),
        Field("tenant_id", _pattern(_TENANT, _ID_WORDS), _TEXT, "Who pays."),
        Field("name", _pattern(_NAME, "at most 128 printable characters"), _TEXT, "For people."),
        Field("priority", _whole(0, 9999), _INT, "Higher runs earlier; 500 is normal."),
        Field(
            "gpu_count",
            _whole(0, GPU_COUNT_MAX),
            _INT,
            "GPUs on one VM; 0: on a VM without GPUs, of a CPU cluster.",
        ),
        Field(
            "gpu_type",
            _pattern(_ANY_CASE_SLUG, "a GPU type, e.g. a100-40gb"),
            {"type": "string", "examples": ["a100-40gb", "l4"]},
            "Without it: the cheapest cluster that fits.",
        ),
        Field(
            "gpu_types",
            _gpu_types,
            {
                "type": "array",
                "items": {"type": "string"},
                "examples": [["h100-80gb", "a100-80gb"]],
            },
            "Several that will do, the preferred one first: the next one is taken when there is "
            "none of those before it to be had.",
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
        Field("regions_denied", _slugs, _LIST, "Never in these regions."),
        Field(
            "max_usd_per_hour",
            _span(0.001, 100_000, "USD per hour"),
            _NUM,
            "The VM may cost at most this much; dearer ones are not asked for.",
        ),
        Field(
            "spot",
            _flag,
            _BOOL,
            "true: on spot VMs, which are cheaper and which Google may take back, as long as the "
            "deadline allows; false: never. Without it: the tenant's default, else never.",
        ),
        Field(
            "allow_larger",
            _flag,
            _BOOL,
            "true: a VM with more GPUs than asked for (or with GPUs, for a job without) may be "
            "taken if no other fits; all of it is paid for. Without it: the tenant's default, "
            "else the job is refused and the nearest fit offered.",
        ),
        Field(
            "deadline",
            _is_moment,
            {"type": "string", "format": "date-time", "examples": ["2026-09-01T18:00:00Z"]},
            "When the result is wanted: as it comes near, price counts less.",
        ),
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
        Field(
            "array",
            _indexes,
            {"type": "string", "examples": ["1-1000", "1,5,9", "0-90:10"]},
            "One job for each index, as the group of the job id: job `ID-INDEX` with "
            "ZEN_ARRAY_ID and ZEN_ARRAY_INDEX in its environment.",
        ),
        Field("group", _pattern(JOB_ID, _ID_WORDS), _TEXT, "To watch and stop several as one."),
        Field(
            "after",
            _afters,
            {"type": "array", "items": {"type": "string"}, "examples": [["prepare:ok"]]},
            "Starts after these jobs (or all jobs of these groups) ended: `ID` or `ID:ok` well, "
            "`ID:any` in any way.",
        ),
        Field(
            "replicas",
            _replicas,
            {
                "oneOf": [
                    {"type": "integer", "minimum": 1, "maximum": REPLICAS_MAX},
                    {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["max"],
                        "properties": {
                            "min": {"type": "integer", "minimum": 1, "default": 1},
                            "max": {"type": "integer", "maximum": REPLICAS_MAX},
                        },
                    },
                ],
                "examples": [4, {"min": 2, "max": 8}],
            },
            "On so many VMs at once, all or none, in one region: a gang. Each has its RANK. "
            "With `min` and `max` it is elastic: it starts with `min`, grows while there is room, "
            "and shrinks when others need it.",
        ),
        Field(
            "resize_signal",
            _one_of(*RESIZE_SIGNALS),
            {"type": "string", "enum": list(RESIZE_SIGNALS)},
            "Sent to those processes of an elastic job that catch it, when its size has changed.",
        ),
        Field(
            "reschedulable",
            _flag,
            _BOOL,
            "false: never asked to yield to others, and FAILED if its VM is lost.",
        ),
        Field("same_zone", _flag, _BOOL, "The VMs of a gang are in one zone."),
        Field(
            "replace_members",
            _flag,
            _BOOL,
            "A gang goes on when it loses a VM other than the first, and gets another one.",
        ),
        Field("keep_alive", _flag, _BOOL, "Keep the VM after the job (v1 workers)."),
        Field("workflow", _pattern(_WORKFLOW, _WORKFLOW_WORDS), _TEXT, "For v1 workers."),
        Field("workflow_args", _arguments, {"type": "object"}, "For v1 workers."),
        Field(
            "image",
            _image,
            {"type": "string", "examples": ["python:3.12", "registry.example/team/train:v3"]},
            "Runs in a container of this image; without it: as a process. `command` replaces the "
            "image's entrypoint; `args` alone are given to it. `cpu_cores` and `memory_mb` are "
            "limits there.",
        ),
        Field(
            "working_dir",
            _pattern(_DIRECTORY, _DIRECTORY_WORDS),
            _TEXT,
            "Where the container starts; without it: as the image says. A process starts there in "
            "static pools alone; without it: in a directory of its own.",
        ),
        Field("gang_scheduling", _flag, _BOOL, "All GPUs or none, as always; see `replicas`."),
    ]
)
