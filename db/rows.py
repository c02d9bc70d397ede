"""Values of core as rows and back. Bulk writes travel as one array per column."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Generic, TypeVar, get_type_hints

import msgspec

from core.changes import CloudRequest
from core.cluster import WorkerKind
from core.health import WELL, VmHealth
from core.job import Job, JobStatus, Lease, Membership, Offer, StopReason, TimelineEntry
from core.job_fields import SPEC_FIELDS, JobField, JobSpec, types
from core.members import Member, member_spec
from core.messages import GpuReading, Progress, VmReadings
from core.queueing import class_of
from core.region_blocks import BlockKind, RegionBlock
from core.supply import DurationEstimate, Shortage, SupplyHistory, SupplyOutcome
from core.text import clean, cleaned
from core.vm import GivenUp, Vm, VmState
from core.worker_identity import ProvenKeys

T = TypeVar("T")
Row = tuple[Any, ...]


class _OwnPart(msgspec.Struct):
    """What the document of a member is read for; the rest is for sums in SQL."""

    index: int | None = None


_spec = msgspec.json.Decoder(JobSpec)
_own = msgspec.json.Decoder(_OwnPart)
_strings = msgspec.json.Decoder(tuple[str, ...])
_numbers = msgspec.json.Decoder(tuple[int, ...])
_mapping = msgspec.json.Decoder(dict[str, Any])
_readings = msgspec.json.Decoder(VmReadings | tuple[GpuReading, ...])
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
class BulkColumn(Generic[T]):
    """One column of a bulk write: its name, its type, and where its value comes from."""

    name: str
    kind: str
    value: Callable[[T], object]


@dataclass(frozen=True, slots=True)
class Shape(Generic[T]):
    """The columns of a bulk write."""

    fields: tuple[BulkColumn[T], ...]

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


_COLUMN_TYPES: Mapping[object, str] = {
    str: "text",
    str | None: "text",
    WorkerKind: "text",
    int: "int",
    int | None: "int",
    float: "float8",
    bool: "bool",
    datetime: "timestamptz",
    datetime | None: "timestamptz",
}


def plain_columns(kind: type[T], names: Iterable[str]) -> tuple[BulkColumn[T], ...]:
    """Columns that are called as the field is, and hold its value."""
    hints = get_type_hints(kind)
    return tuple(_plain(name, _COLUMN_TYPES[hints[name]]) for name in sorted(names))


def _plain(name: str, kind: str) -> BulkColumn[Any]:
    value = attrgetter(name)
    # An int would make the driver send an array of another type.
    return BulkColumn(name, kind, (lambda row: float(value(row))) if kind == "float8" else value)


def lease_part(pick: Callable[[Lease], object]) -> Callable[[Job], object]:
    """A value of the job's lease, or NULL."""
    return lambda job: None if job.lease is None else pick(job.lease)


JOB_STATE: tuple[BulkColumn[Job], ...] = (
    BulkColumn("uid", "uuid", lambda j: j.uid),
    BulkColumn("status", "text", lambda j: str(j.status)),
    BulkColumn("lease_id", "text", lease_part(lambda x: x.lease_id)),
    BulkColumn("vm_name", "text", lease_part(lambda x: x.vm_name)),
    BulkColumn("vm_uid", "uuid", lease_part(lambda x: x.vm_uid)),
    BulkColumn("lease_region", "text", lease_part(lambda x: x.region)),
    BulkColumn("lease_zone", "text", lease_part(lambda x: x.zone)),
    BulkColumn("slots", "jsonb", lease_part(lambda x: to_json(x.slots))),
    BulkColumn("reason", "text", lambda j: clean(j.reason)),
    BulkColumn(
        "stop_reason", "text", lambda j: None if j.stop_reason is None else str(j.stop_reason)
    ),
    # By its own uid a parked member is in no index of a queue.
    BulkColumn("blocked", "uuid", lambda j: j.uid if j.parked else j.blocked),
    BulkColumn("offer", "jsonb", lambda j: None if j.offer is None else to_json(j.offer)),
    BulkColumn("due_at", "timestamptz", lambda j: j.due),
    *plain_columns(
        Job,
        (
            *("cluster", "version", "attempt", "failures", "losses", "preemptions", "exit_code"),
            *("status_since", "queued_since", "deadline_at", "started_at", "ended_at"),
            *("starts_by", "retry_at", "gang_region", "holds"),
            *("attained_gpu_s", "saved_s", "saved_share"),
        ),
    ),
)


def _spec_column(field: JobField) -> BulkColumn[Job]:
    """A field of the submission that has a column beside its place in the document."""
    kind, value = _COLUMN_TYPES.get(types()[field.attribute]), attrgetter(field.attribute)
    if kind is None:
        return BulkColumn(field.column, "jsonb", lambda j: to_json(value(j.spec)))
    return BulkColumn(field.column, kind, lambda j: value(j.spec))


JOB_BIRTH: tuple[BulkColumn[Job], ...] = (
    *(_spec_column(field) for field in SPEC_FIELDS if field.column),
    BulkColumn("gang", "uuid", lambda j: j.gang and j.gang.uid),
    BulkColumn("rank", "int", lambda j: j.gang.rank if j.gang else 0),
    BulkColumn("gang_size", "int", lambda j: j.gang.size if j.gang else 1),
    BulkColumn("tier", "int", lambda j: int(class_of(j.spec.priority))),
    BulkColumn("submitted_at", "timestamptz", lambda j: j.submitted_at),
)
_VM_OWN: tuple[BulkColumn[Vm], ...] = (
    BulkColumn("uid", "uuid", lambda v: v.uid),
    BulkColumn("caused_by", "uuid", lambda v: v.caused_by),
    BulkColumn("state", "text", lambda v: str(v.state)),
    BulkColumn("given_up", "text", lambda v: v.given_up and str(v.given_up)),
    BulkColumn("boot_nonce", "text", lambda v: clean(v.boot_nonce)),
    BulkColumn("worker_keys", "text", lambda v: v.worker_keys and v.worker_keys.text),
    BulkColumn("heard_seq", "bigint", lambda v: v.heard_seq),
    BulkColumn("reason", "text", lambda v: clean(v.reason)),
    BulkColumn("address", "text", lambda v: clean(v.address)),
    BulkColumn("leases", "jsonb", lambda v: to_json(v.leases)),
    BulkColumn("health", "jsonb", lambda v: "{}" if v.health == WELL else to_json(v.health)),
)
"""Fields of a VM that are not stored as they are."""
VM: Shape[Vm] = Shape(
    _VM_OWN + plain_columns(Vm, get_type_hints(Vm).keys() - {own.name for own in _VM_OWN})
)


# --- what a SELECT must list, and how its row becomes a value ---------------------------

JOB_SELECT = (
    "j.uid::text, j.spec::text, j.cluster, j.status, j.version, j.submitted_at, j.status_since, "
    "j.queued_since, j.deadline_at, j.attempt, j.lease_id, j.vm_name, j.vm_uid::text, "
    "j.lease_region, j.lease_zone, j.slots::text, j.started_at, j.ended_at, j.failures, "
    "j.losses, j.preemptions, j.exit_code, j.reason, j.stop_reason, j.attained_gpu_s, "
    "j.due_at, j.blocked::text, j.gang::text, j.rank, j.gang_size, j.gang_region, j.holds, "
    "j.offer::text, j.starts_by, j.saved_s, j.saved_share, j.retry_at, j.spec_id::text"
)
JOB_WIDTH = 38
STATUS = 3
SPEC_ID = 37
"""The place of the id of what a member shares with others."""


def spec_of(document: str) -> JobSpec:
    """A stored submission."""
    return _spec.decode(document)


# A look at a table: calling the class costs a tenth of a row, and a new leader reads all of them.
_JOB_STATUSES = {str(status): status for status in JobStatus}
_VM_STATES = {str(state): state for state in VmState}


def job_of(row: Row, shared: Mapping[str, JobSpec]) -> Job:
    """The first JOB_WIDTH values of the row, in the order of JOB_SELECT. `shared` has what they
    refer to; SharedSpecs.jobs() reads it."""
    lease = None
    if row[10] is not None:
        lease = Lease(row[10], row[11], row[12], row[13], row[14], _numbers.decode(row[15]))
    gang = None if row[27] is None else Membership(*row[27:30])
    if row[SPEC_ID] is None:
        spec = _spec.decode(row[1])
    else:
        member = Member(_own.decode(row[1]).index, row[28])
        spec = member_spec(shared[row[SPEC_ID]], member)
    return Job(
        uid=row[0],
        spec=spec,
        cluster=row[2],
        status=_JOB_STATUSES[row[3]],
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
        blocked=row[26] if gang is None or gang.rank < spec.least else None,
        gang=gang,
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
    values["state"] = _VM_STATES[values["state"]]
    values["given_up"] = values["given_up"] and GivenUp(values["given_up"])
    values["worker_keys"] = values["worker_keys"] and ProvenKeys.parse(values["worker_keys"])
    values["leases"] = _strings.decode(values["leases"])
    values["health"] = WELL if values["health"] == "{}" else _health.decode(values["health"])
    return Vm(**values)


REGION_BLOCK_SELECT = (
    "region, zone, machine_type, spot, kind, since, last_seen, until, count, message"
)


_KINDS = {str(kind): kind for kind in BlockKind}


def block_of(row: Row) -> RegionBlock:
    values = list(row)
    # A newer replica may know more kinds: to us they block, whatever they are.
    values[4] = _KINDS.get(row[4], BlockKind.OTHER)
    return RegionBlock(*values)


_PLACE = ("region", "zone", "machine_type", "spot")
_SEEN = (
    *("updated_at", "hits", "misses", "last", "last_at"),
    *("deliveries", "delivery_log_mean", "delivery_log_var"),
    *("boots", "boot_log_mean", "boot_log_var"),
    *("room", "preempted", "vm_hours", "short_kept", "short_at"),
)
SUPPLY_HISTORY_SELECT = ", ".join(_PLACE + _SEEN)
SUPPLY_HISTORY_WIDTH = len(_PLACE + _SEEN)
SUPPLY_HISTORY_UPDATE = ", ".join(f"{name} = excluded.{name}" for name in _SEEN)


def supply_row(seen: SupplyHistory) -> Row:
    """In the order of SUPPLY_HISTORY_SELECT."""
    last = None if seen.last is None else str(seen.last)
    counts = (seen.updated_at, seen.hits, seen.misses, last, seen.last_at)
    spans = [(s.weight, s.log_mean, s.log_var) for s in (seen.delivery, seen.boot)]
    short = ([s.kept for s in seen.shortages], [s.at for s in seen.shortages])
    rest = (seen.room, seen.preempted, seen.vm_hours, *short)
    return (*seen.place, *counts, *spans[0], *spans[1], *rest)


def supply_of(row: Row) -> SupplyHistory:
    values = list(row)
    values[7] = None if row[7] is None else SupplyOutcome(row[7])
    values[18:20] = [tuple(map(Shortage, row[18], row[19]))]
    values[9:15] = [DurationEstimate(*row[9:12]), DurationEstimate(*row[12:15])]
    return SupplyHistory(*values)


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
        to_status=_JOB_STATUSES[row[3]],
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


def readings_of(encoded: str) -> VmReadings:
    """A list is of an earlier release: the readings of the GPUs alone."""
    found = _readings.decode(encoded)
    return found if isinstance(found, VmReadings) else VmReadings(found)


def progress_of(step: float | None, total: float | None) -> Progress | None:
    return None if step is None else Progress(step, total)
