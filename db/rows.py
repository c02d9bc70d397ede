"""Values of core as rows and back. Bulk writes travel as one array per column."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from core.changes import CloudRequest
from core.health import WELL, VmHealth
from core.job import Job, JobSpec, JobStatus, Lease, Membership, Offer, StopReason, TimelineEntry
from core.messages import GpuReading, Progress
from core.queueing import class_of
from core.region_blocks import Trouble, TroubleKind
from core.supply import Experience, Outcome, Shortage, Spread
from core.text import clean, cleaned
from core.vm import Vm, VmState

T = TypeVar("T")
Row = tuple[Any, ...]

_spec = msgspec.json.Decoder(JobSpec)
_strings = msgspec.json.Decoder(tuple[str, ...])
_numbers = msgspec.json.Decoder(tuple[int, ...])
_mapping = msgspec.json.Decoder(dict[str, Any])
_readings = msgspec.json.Decoder(tuple[GpuReading, ...])
_health = msgspec.json.Decoder(VmHealth)
_offer = msgspec.json.Decoder(Offer)
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


# --- text and JSON that PostgreSQL can hold ---------------------------------------------


def to_json(value: object) -> str:
    """JSON as jsonb takes it, cleaned like text."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(cleaned(value)).decode()
    if _NUL.search(encoded):
        encoded = msgspec.json.encode(cleaned(value))
    return encoded.decode()


# --- columns ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """One column of a bulk write: its name, its type, and where its value comes from."""

    name: str
    kind: str
    value: Callable[[T], object]


@dataclass(frozen=True, slots=True)
class Shape(Generic[T]):
    """The columns of a bulk write."""

    fields: tuple[Field[T], ...]

    @property
    def names(self) -> str:
        return ", ".join(field.name for field in self.fields)

    @property
    def rows(self) -> str:
        """`unnest(…) AS x(…)`: a constant text, so that it is prepared once."""
        arrays = ", ".join(f"%b::{field.kind}[]" for field in self.fields)
        return f"unnest({arrays}) AS x({self.names})"

    def assignments(self, *skip: str) -> str:
        """`name = x.name, …` for an UPDATE."""
        names = [field.name for field in self.fields if field.name not in skip]
        return ", ".join(f"{name} = x.{name}" for name in names)

    def arrays(self, items: Sequence[T]) -> list[list[object]]:
        return [[field.value(item) for item in items] for field in self.fields]


def lease_part(pick: Callable[[Lease], object]) -> Callable[[Job], object]:
    """A value of the job's lease, or NULL."""
    return lambda job: None if job.lease is None else pick(job.lease)


JOB_STATE: tuple[Field[Job], ...] = (
    Field("uid", "uuid", lambda j: j.uid),
    Field("cluster", "text", lambda j: j.cluster),
    Field("status", "text", lambda j: str(j.status)),
    Field("version", "int", lambda j: j.version),
    Field("attempt", "int", lambda j: j.attempt),
    Field("lease_id", "text", lease_part(lambda x: x.lease_id)),
    Field("vm_name", "text", lease_part(lambda x: x.vm_name)),
    Field("vm_uid", "uuid", lease_part(lambda x: x.vm_uid)),
    Field("lease_region", "text", lease_part(lambda x: x.region)),
    Field("lease_zone", "text", lease_part(lambda x: x.zone)),
    Field("slots", "jsonb", lease_part(lambda x: to_json(x.slots))),
    Field("status_since", "timestamptz", lambda j: j.status_since),
    Field("queued_since", "timestamptz", lambda j: j.queued_since),
    Field("deadline_at", "timestamptz", lambda j: j.deadline_at),
    Field("started_at", "timestamptz", lambda j: j.started_at),
    Field("ended_at", "timestamptz", lambda j: j.ended_at),
    Field("failures", "int", lambda j: j.failures),
    Field("losses", "int", lambda j: j.losses),
    Field("preemptions", "int", lambda j: j.preemptions),
    Field("exit_code", "int", lambda j: j.exit_code),
    Field("reason", "text", lambda j: clean(j.reason)),
    Field("stop_reason", "text", lambda j: None if j.stop_reason is None else str(j.stop_reason)),
    Field("blocked", "uuid", lambda j: j.blocked),
    Field("gang_region", "text", lambda j: j.gang_region),
    Field("holds", "int", lambda j: j.holds),
    Field("offer", "jsonb", lambda j: None if j.offer is None else to_json(j.offer)),
    Field("attained_gpu_s", "float8", lambda j: float(j.attained_gpu_s)),
    Field("due_at", "timestamptz", lambda j: j.due),
    Field("starts_by", "timestamptz", lambda j: j.starts_by),
    Field("saved_s", "float8", lambda j: float(j.saved_s)),
    Field("saved_share", "float8", lambda j: float(j.saved_share)),
    Field("retry_at", "timestamptz", lambda j: j.retry_at),
)
JOB_BIRTH: tuple[Field[Job], ...] = (
    Field("tenant_id", "text", lambda j: j.spec.tenant_id),
    Field("user_id", "text", lambda j: j.spec.user_id),
    Field("job_id", "text", lambda j: j.spec.job_id),
    Field("name", "text", lambda j: j.spec.name),
    Field("priority", "int", lambda j: j.spec.priority),
    Field("group_id", "text", lambda j: j.spec.group),
    Field("gang", "uuid", lambda j: j.gang and j.gang.uid),
    Field("rank", "int", lambda j: j.gang.rank if j.gang else 0),
    Field("gang_size", "int", lambda j: j.gang.size if j.gang else 1),
    Field("tier", "int", lambda j: int(class_of(j.spec.priority))),
    Field("labels", "jsonb", lambda j: to_json(j.spec.labels)),
    Field("spec", "jsonb", lambda j: to_json(j.spec)),
    Field("submitted_at", "timestamptz", lambda j: j.submitted_at),
)
VM: Shape[Vm] = Shape(
    (
        Field("uid", "uuid", lambda v: v.uid),
        Field("name", "text", lambda v: v.name),
        Field("cluster", "text", lambda v: v.cluster),
        Field("region", "text", lambda v: v.region),
        Field("state", "text", lambda v: str(v.state)),
        Field("version", "int", lambda v: v.version),
        Field("request_id", "text", lambda v: v.request_id),
        Field("gpus", "int", lambda v: v.gpus),
        Field("spot", "bool", lambda v: v.spot),
        Field("usd_per_hour", "float8", lambda v: float(v.usd_per_hour)),
        Field("requested_at", "timestamptz", lambda v: v.requested_at),
        Field("state_since", "timestamptz", lambda v: v.state_since),
        Field("zone", "text", lambda v: v.zone),
        Field("instance_id", "text", lambda v: v.instance_id),
        Field("boot_nonce", "text", lambda v: clean(v.boot_nonce)),
        Field("leases", "jsonb", lambda v: to_json(v.leases)),
        Field("running_since", "timestamptz", lambda v: v.running_since),
        Field("ready_at", "timestamptz", lambda v: v.ready_at),
        Field("idle_since", "timestamptz", lambda v: v.idle_since),
        Field("last_beat_at", "timestamptz", lambda v: v.last_beat_at),
        Field("stopped_at", "timestamptz", lambda v: v.stopped_at),
        Field("refused", "boolean", lambda v: v.refused),
        Field("gone_at", "timestamptz", lambda v: v.gone_at),
        Field("taken", "bool", lambda v: v.taken),
        Field("reason", "text", lambda v: clean(v.reason)),
        Field("address", "text", lambda v: clean(v.address)),
        Field("health", "jsonb", lambda v: "{}" if v.health == WELL else to_json(v.health)),
        Field("kept_until", "timestamptz", lambda v: v.kept_until),
        Field("together", "text", lambda v: v.together),
        Field("ends_at", "timestamptz", lambda v: v.ends_at),
        Field("caused_by", "uuid", lambda v: v.caused_by),
        Field("idle_max_s", "float8", lambda v: float(v.idle_max_s)),
        Field("leaving_since", "timestamptz", lambda v: v.leaving_since),
    )
)


# --- what a SELECT must list, and how its row becomes a value ---------------------------

JOB_SELECT = (
    "j.uid::text, j.spec::text, j.cluster, j.status, j.version, j.submitted_at, j.status_since, "
    "j.queued_since, j.deadline_at, j.attempt, j.lease_id, j.vm_name, j.vm_uid::text, "
    "j.lease_region, j.lease_zone, j.slots::text, j.started_at, j.ended_at, j.failures, "
    "j.losses, j.preemptions, j.exit_code, j.reason, j.stop_reason, j.attained_gpu_s, "
    "j.due_at, j.blocked::text, j.gang::text, j.rank, j.gang_size, j.gang_region, j.holds, "
    "j.offer::text, j.starts_by, j.saved_s, j.saved_share, j.retry_at"
)
JOB_WIDTH = 37


def job_of(row: Row) -> Job:
    """The first JOB_WIDTH values of the row, in the order of JOB_SELECT."""
    lease = None
    if row[10] is not None:
        lease = Lease(row[10], row[11], row[12], row[13], row[14], _numbers.decode(row[15]))
    return Job(
        uid=row[0],
        spec=_spec.decode(row[1]),
        cluster=row[2],
        status=JobStatus(row[3]),
        version=row[4],
        submitted_at=row[5],
        status_since=row[6],
        queued_since=row[7],
        deadline_at=row[8],
        attempt=row[9],
        lease=lease,
        started_at=row[16],
        ended_at=row[17],
        failures=row[18],
        losses=row[19],
        preemptions=row[20],
        exit_code=row[21],
        reason=row[22],
        stop_reason=None if row[23] is None else StopReason(row[23]),
        attained_gpu_s=row[24],
        due_at=row[25],
        blocked=row[26],
        gang=None if row[27] is None else Membership(*row[27:30]),
        gang_region=row[30],
        holds=row[31],
        offer=None if row[32] is None else _offer.decode(row[32]),
        starts_by=row[33],
        saved_s=row[34],
        saved_share=row[35],
        retry_at=row[36],
    )


VM_SELECT = ", ".join(
    f"v.{field.name}::text" if field.kind in ("uuid", "jsonb") else f"v.{field.name}"
    for field in VM.fields
)
_VM_NAMES = tuple(field.name for field in VM.fields)
VM_WIDTH = len(_VM_NAMES)


def vm_of(row: Row) -> Vm:
    """The first VM_WIDTH values of the row, in the order of VM_SELECT."""
    values = dict(zip(_VM_NAMES, row, strict=False))
    values["state"] = VmState(values["state"])
    values["leases"] = _strings.decode(values["leases"])
    values["health"] = WELL if values["health"] == "{}" else _health.decode(values["health"])
    return Vm(**values)


TROUBLE_SELECT = "region, zone, machine_type, spot, kind, since, last_seen, until, count, message"


_KINDS = {str(kind): kind for kind in TroubleKind}


def trouble_of(row: Row) -> Trouble:
    values = list(row)
    # A newer replica may know more kinds: to us they block, whatever they are.
    values[4] = _KINDS.get(row[4], TroubleKind.OTHER)
    return Trouble(*values)


_PLACE = ("region", "zone", "machine_type", "spot")
_SEEN = (
    *("updated_at", "hits", "misses", "last", "last_at"),
    *("deliveries", "delivery_log_mean", "delivery_log_var"),
    *("boots", "boot_log_mean", "boot_log_var"),
    *("room", "preempted", "vm_hours", "short_kept", "short_at"),
)
EXPERIENCE_SELECT = ", ".join(_PLACE + _SEEN)
EXPERIENCE_WIDTH = len(_PLACE + _SEEN)
EXPERIENCE_UPDATE = ", ".join(f"{name} = excluded.{name}" for name in _SEEN)


def experience_row(seen: Experience) -> Row:
    """In the order of EXPERIENCE_SELECT."""
    last = None if seen.last is None else str(seen.last)
    counts = (seen.updated_at, seen.hits, seen.misses, last, seen.last_at)
    spans = [(s.weight, s.log_mean, s.log_var) for s in (seen.delivery, seen.boot)]
    short = ([s.kept for s in seen.shortages], [s.at for s in seen.shortages])
    rest = (seen.room, seen.preempted, seen.vm_hours, *short)
    return (*seen.place, *counts, *spans[0], *spans[1], *rest)


def experience_of(row: Row) -> Experience:
    values = list(row)
    values[7] = None if row[7] is None else Outcome(row[7])
    values[18:20] = [tuple(map(Shortage, row[18], row[19]))]
    values[9:15] = [Spread(*row[9:12]), Spread(*row[12:15])]
    return Experience(*values)


REQUEST_SELECT = (
    "request_id, kind, cluster, region, names::text, reason, created_at, settled_at, outcome, "
    "together, run_s"
)


def request_of(row: Row) -> CloudRequest:
    values = list(row)
    values[4] = _strings.decode(row[4])
    return CloudRequest(*values)


ENTRY_SELECT = (
    "at, event, from_status, to_status, attempt, reason, vm_name, region, data::text, dedup_key"
)


def entry_of(row: Row) -> TimelineEntry:
    return TimelineEntry(
        at=row[0],
        event=row[1],
        from_status=None if row[2] is None else JobStatus(row[2]),
        to_status=JobStatus(row[3]),
        attempt=row[4],
        reason=row[5],
        vm_name=row[6],
        region=row[7],
        data=mapping_of(row[8]),
        dedup_key=row[9],
    )


def mapping_of(encoded: str) -> dict[str, Any]:
    return _mapping.decode(encoded)


def numbers_of(encoded: str) -> tuple[int, ...]:
    return _numbers.decode(encoded)


def readings_of(encoded: str) -> tuple[GpuReading, ...]:
    return _readings.decode(encoded)


def progress_of(step: float | None, total: float | None) -> Progress | None:
    return None if step is None else Progress(step, total)
