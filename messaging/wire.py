"""JSON objects as they stand on the wire, and the one way in and out of bytes.

Decoding ignores fields that it does not know: older and newer workers live side by side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from core.job_fields import SPEC_FIELDS, JobField, WorkerSpec, types
from core.submission import shown
from messaging.errors import BadMessage

HEARTBEAT_BYTES_MAX = 256 * 1024
TOKEN_CHARS_MAX = 4096
SUBMISSION_BYTES_MAX = 1024 * 1024
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
"""Pub/Sub takes 10 MB for a whole request; the rest is for attributes and framing."""

FIRST_WORDS = frozenset(
    {
        *("job_id", "user_id", "tenant_id", "name", "workflow", "args", "gpu_type", "num_gpus"),
        *("keep_alive", "env", "command", "shell", "stop_grace_s", "max_runtime_s"),
        "resize_signal",
    }
)
"""Of a job: what every start message has, whatever its value. `resize_signal` goes with a size."""

Id = Annotated[str, Meta(min_length=1, max_length=255)]
Small = Annotated[str, Meta(max_length=255)]
# Bounds are those of the columns these numbers are stored in.
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
BigCount = Annotated[int, Meta(ge=0, le=2**63 - 1)]
ExitCode = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Seconds = Annotated[float, Meta(ge=0)]


class WireProgress(Struct):
    """`progress{step,total}`."""

    step: float
    total: float | None = None


class WireCheckpoint(Struct):
    """`checkpoint{step}`."""

    step: float


class WireGpu(Struct, omit_defaults=True):
    """One of `gpus[…]`."""

    index: Count
    util: float = 0.0
    temp_c: float = 0.0
    mem_used_mb: float = 0.0
    ecc_errors: BigCount = 0
    fault: str = ""


class WireHeartbeat(Struct, omit_defaults=True):
    """A heartbeat, v1 and v2 in one: v1 sends the first four and, on notes, the last two."""

    status: Id
    vm_name: Id
    job_id: Id | None = None
    user_id: Id | None = None
    attempt: Count | None = None
    lease_id: Small | None = None
    seq: BigCount = 0
    instance_id: Small = ""
    boot_nonce: Small = ""
    zone: Small = ""
    address: Small = ""
    exit_code: ExitCode | None = None
    reason: str = ""
    progress: WireProgress | None = None
    checkpoint: WireCheckpoint | None = None
    gpus: Annotated[list[WireGpu], Meta(max_length=64)] = []
    timestamp: str | int | float | None = None
    elapsed_time_s: str | int | float | None = None
    keys: Small = ""
    """The public keys of this boot, in base64url: Ed25519, then X25519."""
    identity_token: Annotated[str, Meta(max_length=TOKEN_CHARS_MAX)] = ""


class WireCanary(Struct):
    """The leader's own message on the heartbeat topic."""

    term: BigCount
    seq: BigCount


class WirePeer(Struct):
    """A member of an elastic job."""

    rank: Count
    address: str


class WireSize(Struct):
    """How large an elastic job is."""

    generation: BigCount
    min: Count
    max: Count
    members: list[WirePeer]


class WireToken(Struct):
    """An access token; only in messages that are sealed."""

    value: str
    ends_at: float
    account: str = ""


class WireTokens(Struct):
    """New tokens for one attempt, or the request for them."""

    job_id: Id
    attempt: Count
    lease_id: Id
    user_id: Id = "0"
    tenant_id: Id = "default"
    rank: Count = 0
    tokens: dict[str, WireToken] = {}


class WireStart(Struct):
    """A start for one v2 VM, without the job's own fields: those are WireSpec."""

    attempt: Count
    lease_id: Id
    slots: list[Count]
    cluster: Small
    region: Small
    rank: Count = 0
    world_size: Count = 1
    leader_address: str = ""
    resume: bool = False
    barrier: bool = False
    size: WireSize | None = None
    user_draw: Count = 0
    secret_values: dict[str, str] = {}
    tokens: dict[str, WireToken] = {}
    spec_version: Count = 2


class WireSecrets(Struct):
    """Of a start: whose secrets it needs."""

    tenant_id: Id = "default"
    secrets: dict[str, str] = {}


def _spec_type(field: JobField) -> object:
    """Ids are never empty; numbers have the bounds of all numbers on the wire."""
    kind = types()[field.attribute]
    return Id if field.name.endswith("_id") else {int: Count, float: Seconds}.get(kind, kind)


_WORKER_FIELDS = tuple(field for field in SPEC_FIELDS if field.wire)
WireSpec = msgspec.defstruct(
    "WireSpec",
    [
        (field.wire, _spec_type(field))
        if field.name == "job_id"
        else (field.wire, _spec_type(field), field.default)
        for field in _WORKER_FIELDS
    ],
)
"""What a start for one v2 VM says about the job, in the words of the table of job fields."""


def spec_from_bytes(data: bytes) -> WorkerSpec:
    body = from_bytes(data, WireSpec)
    return WorkerSpec(**{f.attribute: getattr(body, f.wire) for f in _WORKER_FIELDS})


def spec_words(spec: WorkerSpec) -> dict[str, object]:
    """Every field of the job that a start message has, under its name there, the oldest first.
    Workers ignore what they do not know."""
    words: dict[str, object] = {}
    for field in _WORKER_FIELDS:
        value = getattr(spec, field.attribute)
        sent = value != field.default if field.sent is None else field.sent(spec)
        if sent or field.wire in FIRST_WORDS:
            words[field.wire] = value
    return words


class WireOrder(Struct):
    """Stop, continue and go, for one attempt."""

    job_id: Id
    attempt: Count
    lease_id: Id
    user_id: Id = "0"
    grace_s: Seconds = 60.0
    reason: str = ""
    answers: Count = 0


class WireResize(Struct):
    """A new size, for one attempt."""

    job_id: Id
    attempt: Count
    lease_id: Id
    size: WireSize
    user_id: Id = "0"


class WireV1Order(Struct):
    """A start or a stop for v1 workers; the lease rides along with a start."""

    job_id: Id
    action: str = "start"
    lease_id: Small = ""


class WireDrain(Struct):
    """Drain, for the whole VM."""

    reason: str = ""


T = TypeVar("T")
_encoder = msgspec.json.Encoder(order=None)
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`")
_AT = re.compile(r"(?P<what>.*) - at `(?:\$\.?|key in \$\.?)(?P<field>.*)`\Z", re.DOTALL)
# In valid JSON this is a NUL and nothing else: an escaped backslash before it is skipped.
# PostgreSQL stores it in neither text nor jsonb, so it would stop a whole batch there.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def to_bytes(what: str, body: Mapping[str, object] | Struct) -> bytes:
    """Compact UTF-8 JSON in the order of the keys."""
    try:
        data = _encoder.encode(body)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise BadMessage(f"{what}: cannot be written as JSON ({error})") from error
    _check_size(what, data, MESSAGE_BYTES_MAX)
    return data


def from_bytes(data: bytes, kind: type[T], size_max: int = MESSAGE_BYTES_MAX) -> T:
    """The JSON as `kind`, or BadMessage with the field in it."""
    _check_size("body", data, size_max)
    try:
        value = msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise BadMessage(_explain(str(error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadMessage(f"body: got {_peek(data)}, expected JSON in UTF-8 ({error})") from error
    except RecursionError as error:
        raise BadMessage("body: got JSON nested too deep, expected a flat object") from error
    if b"u0000" in data and _NUL.search(data):
        raise BadMessage("body: got a NUL character (\\u0000), expected text without it")
    return value


def attribute(attributes: Mapping[str, str], name: str) -> str:
    """An attribute that must be there."""
    value = attributes.get(name, "")
    if not value:
        raise BadMessage(f"attributes.{name}: got nothing, expected a value")
    return value


def _check_size(what: str, data: bytes, size_max: int) -> None:
    if len(data) > size_max:
        raise BadMessage(f"{what}: got {len(data)} bytes, expected at most {size_max}")


def _explain(text: str) -> str:
    at = _AT.match(text)
    what, where = (at["what"], at["field"]) if at else (text, "")
    if missing := _MISSING.match(what):
        path = f"{where}.{missing['field']}" if where else missing["field"]
        return f"{path}: got nothing, expected a value"
    return f"{where or 'body'}: {what}"


def _peek(data: bytes) -> str:
    return shown(data[:60].decode(errors="replace")) if data else "nothing"
