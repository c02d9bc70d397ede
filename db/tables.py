"""The schema. Its CHECK constraints are made from core's tables, so a state that the machine
forbids cannot be stored, whoever writes it. Queries are raw SQL elsewhere in db/."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB, UUID

from core.cost import CostKind
from core.job import FINAL, LEASED, WAITING, JobStatus, StopReason
from core.region_blocks import TroubleKind
from core.supply import Outcome
from core.tenants import HOLDS
from core.vm import VmState

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


def _array(name: str, of: Integer | DateTime) -> Column[object]:
    return Column(name, ARRAY(of), nullable=False, server_default=text("'{}'"))


def _count(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=text("0"))


def _number(name: str) -> Column[float]:
    return Column(name, Double, nullable=False)


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
        # Behind a hold there is nothing but the queue.
        CheckConstraint("blocked IS NULL OR status = 'QUEUED'", "blocked"),
        CheckConstraint("retry_at IS NULL OR status = 'QUEUED'", "retry"),
        CheckConstraint(
            "rank >= 0 AND rank < gang_size AND holds >= 0 AND (gang IS NULL) = (gang_size = 1)",
            "gang",
        ),
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
    # Of attempts that were pruned before each VM-second was attributed; job_costs has the others.
    Column("past_cost_usd", Double, nullable=False, server_default=text("0")),
    # Retention has taken the whole timeline and all attempts.
    Column("history_pruned", Boolean, nullable=False, server_default=text("false")),
    Column("group_id", Text),
    # The hold that keeps it out of the queue: the indexes of the queue do not know it.
    Column("blocked", UUID),
    # Of a gang: the job with rank 0, which is what people know.
    Column("gang", UUID),
    _count("rank"),
    Column("gang_size", Integer, nullable=False, server_default=text("1")),
    _text("gang_region", default=True),
    _count("holds"),
    # The start message that is out for whichever v1 worker takes it.
    Column("offer", JSONB),
    # The queue: priority class, place among the jobs of a tenant, GPU-seconds had already.
    Column("tier", SmallInteger, nullable=False, server_default=text("1")),
    Column("due_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    Column("attained_gpu_s", Double, nullable=False, server_default=text("0")),
    # The bound that it was told at its submission.
    Column("starts_by", DateTime(timezone=True)),
    # What its checkpoints hold: seconds of its run, and the share of its work as it reported it.
    Column("saved_s", Double, nullable=False, server_default=text("0")),
    Column("saved_share", Double, nullable=False, server_default=text("0")),
    # After a failed attempt: the next one starts no sooner.
    Column("retry_at", DateTime(timezone=True)),
    # The transaction that moved it last, put there by a trigger: how a turn finds what has changed.
    Column("moved", BigInteger),
    Index("ix_jobs_moved", "moved", postgresql_where=text("moved IS NOT NULL")),
    *_job_checks(),
    # The job id first: people often know no more than that.
    Index("uq_jobs_job_id_user_id", "job_id", "user_id", unique=True),
    Index(
        "ix_jobs_queue",
        "cluster",
        text("priority DESC"),
        "queued_since",
        "uid",
        postgresql_where=text("status = 'QUEUED' AND blocked IS NULL"),
    ),
    Index(
        "ix_jobs_fair",
        "cluster",
        "tier",
        "tenant_id",
        "due_at",
        "uid",
        postgresql_where=text("status = 'QUEUED' AND blocked IS NULL"),
    ),
    Index(
        "ix_jobs_fifo",
        "cluster",
        "queued_since",
        "uid",
        postgresql_where=text("status = 'QUEUED' AND blocked IS NULL"),
    ),
    Index(
        "ix_jobs_holds",
        "tenant_id",
        postgresql_where=text(f"status IN {_any_of(HOLDS)}"),
    ),
    Index("ix_jobs_queue_ends", "deadline_at", postgresql_where=text("status = 'QUEUED'")),
    Index("ix_jobs_vm_uid", "vm_uid", postgresql_where=text("vm_uid IS NOT NULL")),
    Index(
        "ix_jobs_history_ends",
        "ended_at",
        postgresql_where=text("ended_at IS NOT NULL AND NOT history_pruned"),
    ),
    Index("ix_jobs_gang", "gang", "rank", postgresql_where=text("gang IS NOT NULL")),
    Index("ix_jobs_blocked", "blocked", "uid", postgresql_where=text("blocked IS NOT NULL")),
    Index(
        "ix_jobs_group",
        "group_id",
        "user_id",
        text("submitted_at DESC"),
        text("uid DESC"),
        postgresql_where=text("group_id IS NOT NULL"),
    ),
    Index(
        "ix_jobs_group_open",
        "group_id",
        "user_id",
        "uid",
        postgresql_where=text("group_id IS NOT NULL AND ended_at IS NULL"),
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

# What a tenant may have, and what it has used: GPU-seconds of ended attempts, decayed up to
# `usage_at`. Everybody who ever submitted has a row.
tenants = Table(
    "tenants",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("weight", Double, nullable=False, server_default=text("1")),
    Column("priority_max", Integer, nullable=False, server_default=text("9999")),
    Column("may_preempt", Boolean, nullable=False, server_default=text("true")),
    Column("preemptible", Boolean, nullable=False, server_default=text("true")),
    _json("quota", "{}"),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Column("usage_gpu_s", Double, nullable=False, server_default=text("0")),
    _time("usage_at", nullable=True),
    _text("name", default=True),
    Column("deleted", Boolean, nullable=False, server_default=text("false")),
    _json("consent", "{}"),
    Column("moved", BigInteger),
    Index("ix_tenants_moved", "moved", postgresql_where=text("moved IS NOT NULL")),
    CheckConstraint("weight > 0", "weight"),
    CheckConstraint("priority_max >= 0 AND version >= 1 AND usage_gpu_s >= 0", "amounts"),
)

# What holds wait for: the end of a job, or of all jobs of a group.
waits = Table(
    "waits",
    metadata,
    Column("hold", UUID, primary_key=True),
    Column("needs", Text, primary_key=True),
    Column("job", UUID),
    Column("user_id", Text),
    Column("group_id", Text),
    Column("good_only", Boolean, nullable=False),
    Column("over", Boolean, nullable=False, server_default=text("false")),
    # How it ended, if that is not good enough.
    Column("bad", Text),
    # The hold has nothing more to wait for: its jobs go, or cannot run.
    Column("ready", Boolean, nullable=False, server_default=text("false")),
    CheckConstraint("num_nonnulls(job, group_id) = 1", "one_thing"),
    CheckConstraint("(group_id IS NULL) = (user_id IS NULL)", "whose_group"),
    CheckConstraint(f"bad IN {_any_of(FINAL)}", "bad"),
    Index("ix_waits_job", "job", postgresql_where=text("job IS NOT NULL")),
    Index("ix_waits_group", "group_id", "user_id", postgresql_where=text("group_id IS NOT NULL")),
    Index("ix_waits_ready", "hold", postgresql_where=text("ready")),
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

# What a job met while it waited, folded: one row per (kind, region, reason).
job_waits = Table(
    "job_waits",
    metadata,
    Column("uid", UUID, ForeignKey("jobs.uid", ondelete="CASCADE"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("region", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    _text("reason"),
    _time("first_at"),
    _time("last_at"),
    Column("count", Integer, nullable=False),
    CheckConstraint("count >= 0", "count"),
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
    # When its newest checkpoint was reported: what came before is not lost with its VM.
    _time("checkpoint_at", nullable=True),
    _text("outcome", default=True),
    Column("exit_code", Integer),
    CheckConstraint("attempt >= 1", "attempt"),
    CheckConstraint("usd_per_hour >= 0", "price"),
    CheckConstraint("(ended_at IS NULL) = (outcome = '')", "ended"),
    Index("uq_attempts_lease_id", "lease_id", unique=True),
    Index("ix_attempts_vm_uid", "vm_uid", "assigned_at"),
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
    _time("stopped_at", nullable=True),
    _time("gone_at", nullable=True),
    Column("refused", Boolean, nullable=False, server_default=text("false")),
    Column("taken", Boolean, nullable=False, server_default=text("false")),
    _text("reason", default=True),
    _text("address", default=True),
    _json("readings", "[]"),
    _json("health", "{}"),
    _time("kept_until", nullable=True),
    _text("together", default=True),
    _time("ends_at", nullable=True),
    # The job whose wait made the service ask for it; boot, idle and hedge time is its tenant's.
    Column("caused_by", UUID),
    Column("idle_max_s", Double, nullable=False, server_default=text("0")),
    _time("leaving_since", nullable=True),
    # Its bill up to here is in cost_daily and job_costs; `settled`: all of it is.
    _time("settled_until", nullable=True),
    Column("settled", Boolean, nullable=False, server_default=text("false")),
    Column("moved", BigInteger),
    Index("ix_vms_moved", "moved", postgresql_where=text("moved IS NOT NULL")),
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
    Index("ix_vms_unsettled", "uid", postgresql_where=text("NOT settled")),
    Index("ix_vms_caused_by", "caused_by", postgresql_where=text("NOT settled")),
)

# What billed VM time was spent on, by day (UTC). Reports read this and the VMs that live, never
# the history; it stays when VMs and attempts are pruned. An empty tenant: nobody's.
cost_daily = Table(
    "cost_daily",
    metadata,
    Column("day", Date, primary_key=True),
    Column("tenant_id", Text, primary_key=True),
    Column("user_id", Text, primary_key=True),
    Column("cluster", Text, primary_key=True),
    Column("region", Text, primary_key=True),
    Column("spot", Boolean, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("vm_seconds", Double, nullable=False),
    Column("gpu_seconds", Double, nullable=False),
    Column("usd", Double, nullable=False),
    CheckConstraint(f"kind IN {_any_of(CostKind)}", "kind"),
    CheckConstraint("vm_seconds >= 0 AND gpu_seconds >= 0 AND usd >= 0", "amounts"),
)

# The same for each job: the part of it that is a job's.
job_costs = Table(
    "job_costs",
    metadata,
    Column("uid", UUID, ForeignKey("jobs.uid", ondelete="CASCADE"), primary_key=True),
    Column("day", Date, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("vm_seconds", Double, nullable=False),
    Column("gpu_seconds", Double, nullable=False),
    Column("usd", Double, nullable=False),
    CheckConstraint(f"kind IN {_any_of(CostKind)}", "kind"),
    CheckConstraint("vm_seconds >= 0 AND gpu_seconds >= 0 AND usd >= 0", "amounts"),
    Index("ix_job_costs_day", "day"),
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
    _text("together", default=True),
    Column("run_s", Double, nullable=False, server_default=text("0")),
    CheckConstraint("kind IN ('create', 'delete', 'queue', 'unqueue')", "kind"),
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

experience = Table(
    "experience",
    metadata,
    Column("region", Text, primary_key=True),
    Column("zone", Text, primary_key=True),
    Column("machine_type", Text, primary_key=True),
    Column("spot", Boolean, primary_key=True),
    _time("updated_at"),
    _number("hits"),
    _number("misses"),
    Column("last", Text),
    _time("last_at", nullable=True),
    _number("deliveries"),
    _number("delivery_log_mean"),
    _number("delivery_log_var"),
    _number("boots"),
    _number("boot_log_mean"),
    _number("boot_log_var"),
    _number("room"),
    _number("preempted"),
    _number("vm_hours"),
    _array("short_kept", Integer()),
    _array("short_at", DateTime(timezone=True)),
    CheckConstraint(f"last IN {_any_of(Outcome)}", "last"),
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

# When waiting jobs are expected to start: all that is said about a cluster's queue, replaced as a
# whole every few seconds. The loop never reads it.
forecasts = Table(
    "forecasts",
    metadata,
    Column("cluster", Text, primary_key=True),
    _time("computed_at"),
    Column("document", JSON, nullable=False),
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

config_versions = Table(
    "config_versions",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    _time("at"),
    _text("author"),
    _text("source"),
    _text("digest"),
    # Not jsonb, which forgets the order of keys: people get the document back.
    Column("document", JSON, nullable=False),
    _json("diff", "[]"),
    CheckConstraint("version >= 1", "version"),
    Index("ix_config_versions_digest", "digest", "version"),
)

# What each file of a replica said when it was last considered.
config_files = Table(
    "config_files",
    metadata,
    Column("host", Text, primary_key=True),
    Column("path", Text, primary_key=True),
    _text("digest"),
    Column(
        "at",
        DateTime(timezone=True),
        nullable=False,
        server_default=text("clock_timestamp()"),
    ),
)
