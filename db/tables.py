"""The schema. Its CHECK constraints are made from core's tables, so a state that the machine
forbids cannot be stored, whoever writes it. Queries are raw SQL elsewhere in db/."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID

from core.capacity import TroubleKind, VmState
from core.job import FINAL, LEASED, WAITING, JobStatus, StopReason

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _any_of(values: Iterable[str]) -> str:
    """Sorted, so that the same set always makes the same text."""
    return "(" + ", ".join(f"'{value}'" for value in sorted(str(v) for v in values)) + ")"


def _time(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


def _text(name: str, *, default: bool = False) -> Column[str]:
    return Column(name, Text, nullable=False, server_default=text("''") if default else None)


def _json(name: str, empty: str) -> Column[object]:
    return Column(name, JSONB, nullable=False, server_default=text(f"'{empty}'"))


def _count(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=text("0"))


def _job_checks() -> list[CheckConstraint]:
    leased, final = _any_of(LEASED), _any_of(FINAL)
    return [
        CheckConstraint(f"status IN {_any_of(JobStatus)}", "status"),
        # Leased states have a lease, the others have none.
        CheckConstraint(f"(status IN {leased}) = (lease_id IS NOT NULL)", "lease"),
        CheckConstraint(
            "num_nonnulls(lease_id, vm_name, vm_uid, lease_region, lease_zone, slots) IN (0, 6)",
            "lease_whole",
        ),
        CheckConstraint(f"status NOT IN {leased} OR attempt >= 1", "lease_attempt"),
        # Final states have ended and await nothing; every other state has a deadline.
        CheckConstraint(f"(status IN {final}) = (ended_at IS NOT NULL)", "ended"),
        CheckConstraint(f"(status IN {final}) = (deadline_at IS NULL)", "deadline"),
        CheckConstraint("status <> 'RUNNING' OR started_at IS NOT NULL", "started"),
        CheckConstraint("status <> 'STOPPING' OR stop_reason IS NOT NULL", "stopping"),
        CheckConstraint(f"stop_reason IN {_any_of(StopReason)}", "stop_reason"),
        CheckConstraint(f"status IN {_any_of(WAITING)} OR why = ''", "waiting"),
        CheckConstraint(
            "version >= 1 AND attempt >= 0 AND last_seq >= 0 AND failures >= 0 AND losses >= 0 "
            "AND preemptions >= 0",
            "counters",
        ),
    ]


jobs = Table(
    "jobs",
    metadata,
    Column("uid", UUID, primary_key=True),
    _text("tenant_id"),
    _text("user_id"),
    _text("job_id"),
    _text("name"),
    _text("cluster"),
    _text("status"),
    Column("priority", Integer, nullable=False),
    _json("labels", "{}"),
    Column("spec", JSONB, nullable=False),
    _text("content_hash"),
    Column("version", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("lease_id", Text),
    Column("vm_name", Text),
    Column("vm_uid", UUID),
    Column("lease_region", Text),
    Column("lease_zone", Text),
    Column("slots", JSONB),
    _time("submitted_at"),
    _time("status_since"),
    _time("queued_since"),
    _time("deadline_at", nullable=True),
    _time("started_at", nullable=True),
    _time("ended_at", nullable=True),
    _count("failures"),
    _count("losses"),
    _count("preemptions"),
    Column("exit_code", Integer),
    _text("reason", default=True),
    Column("stop_reason", Text),
    _text("why", default=True),
    Column("progress_step", Double),
    Column("progress_total", Double),
    Column("checkpoint_step", Double),
    _time("progress_at", nullable=True),
    # The number of the newest row of its history; the next one is taken under the row's lock.
    _count("last_seq"),
    # Of attempts that retention took away.
    Column("past_cost_usd", Double, nullable=False, server_default=text("0")),
    # Retention has taken the whole timeline and all attempts.
    Column("history_pruned", Boolean, nullable=False, server_default=text("false")),
    *_job_checks(),
    # The job id first: people often know no more than that.
    Index("uq_jobs_job_id_user_id", "job_id", "user_id", unique=True),
    Index(
        "ix_jobs_queue",
        "cluster",
        text("priority DESC"),
        "queued_since",
        "uid",
        postgresql_where=text("status = 'QUEUED'"),
    ),
    Index("ix_jobs_queue_ends", "deadline_at", postgresql_where=text("status = 'QUEUED'")),
    Index(
        "ix_jobs_live",
        "status",
        "uid",
        postgresql_where=text(f"status IN {_any_of([*LEASED, JobStatus.PROVISIONING])}"),
    ),
    Index("ix_jobs_vm_uid", "vm_uid", postgresql_where=text("vm_uid IS NOT NULL")),
    Index(
        "ix_jobs_history_ends",
        "ended_at",
        postgresql_where=text("ended_at IS NOT NULL AND NOT history_pruned"),
    ),
    Index("ix_jobs_newest", text("submitted_at DESC"), text("uid DESC")),
    Index("ix_jobs_tenant", "tenant_id", text("submitted_at DESC"), text("uid DESC")),
    Index("ix_jobs_status", "status", text("submitted_at DESC"), text("uid DESC")),
    Index(
        "ix_jobs_labels",
        "labels",
        postgresql_using="gin",
        postgresql_ops={"labels": "jsonb_path_ops"},
    ),
)

job_events = Table(
    "job_events",
    metadata,
    Column("uid", UUID, ForeignKey("jobs.uid", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    _time("at"),
    _text("event"),
    Column("from_status", Text),
    _text("to_status"),
    Column("attempt", Integer, nullable=False),
    _text("reason"),
    Column("vm_name", Text),
    Column("region", Text),
    _json("data", "{}"),
    Column("dedup_key", Text),
    CheckConstraint("seq >= 1", "seq"),
    CheckConstraint(f"from_status IN {_any_of(JobStatus)}", "from_status"),
    CheckConstraint(f"to_status IN {_any_of(JobStatus)}", "to_status"),
    Index(
        "uq_job_events_dedup_key",
        "uid",
        "dedup_key",
        unique=True,
        postgresql_where=text("dedup_key IS NOT NULL"),
    ),
)

attempts = Table(
    "attempts",
    metadata,
    Column("uid", UUID, ForeignKey("jobs.uid", ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("lease_id", Text, nullable=False),
    Column("vm_uid", UUID, nullable=False),
    _text("vm_name"),
    _text("region"),
    _text("zone"),
    _json("slots", "[]"),
    Column("usd_per_hour", Double, nullable=False),
    _time("assigned_at"),
    _time("started_at", nullable=True),
    _time("ended_at", nullable=True),
    _text("outcome", default=True),
    Column("exit_code", Integer),
    CheckConstraint("attempt >= 1", "attempt"),
    CheckConstraint("usd_per_hour >= 0", "price"),
    CheckConstraint("(ended_at IS NULL) = (outcome = '')", "ended"),
    Index("uq_attempts_lease_id", "lease_id", unique=True),
)

vms = Table(
    "vms",
    metadata,
    Column("uid", UUID, primary_key=True),
    _text("name"),
    _text("cluster"),
    _text("region"),
    _text("zone", default=True),
    _text("state"),
    Column("version", Integer, nullable=False),
    _text("request_id"),
    _text("instance_id", default=True),
    _text("boot_nonce", default=True),
    Column("gpus", Integer, nullable=False),
    Column("spot", Boolean, nullable=False),
    Column("usd_per_hour", Double, nullable=False),
    _json("leases", "[]"),
    _time("requested_at"),
    _time("state_since"),
    _time("running_since", nullable=True),
    _time("ready_at", nullable=True),
    _time("idle_since", nullable=True),
    _time("last_beat_at", nullable=True),
    _time("gone_at", nullable=True),
    Column("taken", Boolean, nullable=False, server_default=text("false")),
    _text("reason", default=True),
    _json("readings", "[]"),
    CheckConstraint(f"state IN {_any_of(VmState)}", "state"),
    CheckConstraint("(state = 'GONE') = (gone_at IS NOT NULL)", "gone"),
    # Only a READY VM takes work, and nothing leads back to before READY.
    CheckConstraint("state NOT IN ('BOOTING', 'REQUESTED') OR leases = '[]'::jsonb", "leases"),
    CheckConstraint("version >= 1 AND gpus >= 0 AND usd_per_hour >= 0", "counters"),
    Index("uq_vms_living_name", "name", unique=True, postgresql_where=text("state <> 'GONE'")),
    Index("ix_vms_living", "cluster", "state", postgresql_where=text("state <> 'GONE'")),
    Index(
        "ix_vms_gone_with_leases",
        "uid",
        postgresql_where=text("state = 'GONE' AND leases <> '[]'::jsonb"),
    ),
    Index(
        "ix_vms_gone",
        "gone_at",
        postgresql_where=text("state = 'GONE' AND leases = '[]'::jsonb"),
    ),
    Index("ix_vms_newest", text("requested_at DESC"), text("uid DESC")),
)

cloud_requests = Table(
    "cloud_requests",
    metadata,
    Column("request_id", Text, primary_key=True),
    _text("kind"),
    _text("cluster"),
    _text("region"),
    _json("names", "[]"),
    _text("reason"),
    _time("created_at"),
    _time("settled_at", nullable=True),
    _text("outcome", default=True),
    CheckConstraint("kind IN ('create', 'delete')", "kind"),
    Index(
        "ix_cloud_requests_open",
        "created_at",
        "request_id",
        postgresql_where=text("settled_at IS NULL"),
    ),
    Index(
        "ix_cloud_requests_settled",
        "settled_at",
        postgresql_where=text("settled_at IS NOT NULL"),
    ),
)

troubles = Table(
    "troubles",
    metadata,
    Column("region", Text, primary_key=True),
    Column("zone", Text, primary_key=True),
    Column("machine_type", Text, primary_key=True),
    Column("spot", Boolean, primary_key=True),
    Column("kind", Text, primary_key=True),
    _time("since"),
    _time("last_seen"),
    _time("until"),
    Column("count", Integer, nullable=False),
    _text("message"),
    CheckConstraint(f"kind IN {_any_of(TroubleKind)}", "kind"),
    CheckConstraint("count >= 1", "count"),
)

region_status = Table(
    "region_status",
    metadata,
    Column("cluster", Text, primary_key=True),
    Column("region", Text, primary_key=True),
    Column("target_size", Integer, nullable=False),
    _text("why"),
    _time("observed_at", nullable=True),
)

outbox = Table(
    "outbox",
    metadata,
    Column("outbox_id", BigInteger, Identity(always=True), primary_key=True),
    _text("topic"),
    Column("body", LargeBinary, nullable=False),
    _json("attributes", "{}"),
    _text("ordering_key", default=True),
    _time("published_at", nullable=True),
    Index("ix_outbox_unpublished", "outbox_id", postgresql_where=text("published_at IS NULL")),
)

leader = Table(
    "leader",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true")),
    _text("holder"),
    Column("term", BigInteger, nullable=False),
    _time("expires_at"),
    CheckConstraint("one", "one"),
    CheckConstraint("term >= 1", "term"),
)

alerts = Table(
    "alerts",
    metadata,
    Column("alert_id", BigInteger, Identity(always=True), primary_key=True),
    _text("kind"),
    _text("subject"),
    _text("severity"),
    _text("message"),
    _time("raised_at"),
    _time("last_seen_at"),
    _time("cleared_at", nullable=True),
    Column("count", Integer, nullable=False),
    CheckConstraint("count >= 1", "count"),
    Index(
        "uq_alerts_open",
        "kind",
        "subject",
        unique=True,
        postgresql_where=text("cleared_at IS NULL"),
    ),
    Index("ix_alerts_cleared", "cleared_at", postgresql_where=text("cleared_at IS NOT NULL")),
    Index("ix_alerts_newest", text("raised_at DESC"), text("alert_id DESC")),
)

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("message_id", Text, primary_key=True),
    _text("source"),
    Column("body", LargeBinary, nullable=False),
    _json("attributes", "{}"),
    _text("reason"),
    _time("at"),
    _text("ordering_key", default=True),
    _time("replayed_at", nullable=True),
    Index("ix_dead_letters_newest", text("at DESC")),
)
