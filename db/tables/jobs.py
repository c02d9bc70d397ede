"""Jobs: the queue, timelines, attempts and dependencies."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, UUID

from core.job import FINAL, LEASED, WAITING, JobStatus, StopReason
from core.tenants import HOLDS
from db.tables.columns import (
    any_of,
    count_column,
    flag_column,
    index,
    json_column,
    metadata,
    number_column,
    text_column,
    time_column,
)

_IN_QUEUE = "status = 'QUEUED' AND blocked IS NULL"
_NEWEST = "submitted_at DESC, uid DESC"


def _job_checks() -> list[sa.CheckConstraint]:
    leased, final = any_of(LEASED), any_of(FINAL)
    return [
        sa.CheckConstraint(f"status IN {any_of(JobStatus)}", "status"),
        # Leased states have a lease, the others have none.
        sa.CheckConstraint(f"(status IN {leased}) = (lease_id IS NOT NULL)", "lease"),
        sa.CheckConstraint(
            "num_nonnulls(lease_id, vm_name, vm_uid, lease_region, lease_zone, slots) IN (0, 6)",
            "lease_whole",
        ),
        sa.CheckConstraint(f"status NOT IN {leased} OR attempt >= 1", "lease_attempt"),
        # Final states have ended and await nothing; every other state has a deadline.
        sa.CheckConstraint(f"(status IN {final}) = (ended_at IS NOT NULL)", "ended"),
        sa.CheckConstraint(f"(status IN {final}) = (deadline_at IS NULL)", "deadline"),
        sa.CheckConstraint("status <> 'RUNNING' OR started_at IS NOT NULL", "started"),
        sa.CheckConstraint("status <> 'STOPPING' OR stop_reason IS NOT NULL", "stopping"),
        sa.CheckConstraint(f"stop_reason IN {any_of(StopReason)}", "stop_reason"),
        sa.CheckConstraint(f"status IN {any_of(WAITING)} OR why = ''", "waiting"),
        # Behind a hold there is nothing but the queue.
        sa.CheckConstraint("blocked IS NULL OR status = 'QUEUED'", "blocked"),
        sa.CheckConstraint("retry_at IS NULL OR status = 'QUEUED'", "retry"),
        sa.CheckConstraint(
            "rank >= 0 AND rank < gang_size AND holds >= 0 AND (gang IS NULL) = (gang_size = 1)",
            "gang",
        ),
        sa.CheckConstraint(
            "version >= 1 AND attempt >= 0 AND last_seq >= 0 AND failures >= 0 AND losses >= 0 "
            "AND preemptions >= 0",
            "counters",
        ),
    ]


# What the jobs of an array or a gang have in common. Jobs stay, and so do these.
specs = sa.Table(
    "specs",
    metadata,
    sa.Column("spec_id", UUID, primary_key=True),
    text_column("tenant_id"),
    sa.Column("document", JSONB, nullable=False),
)

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("uid", UUID, primary_key=True),
    text_column("tenant_id"),
    text_column("user_id"),
    text_column("job_id"),
    text_column("name"),
    text_column("cluster"),
    text_column("status"),
    sa.Column("priority", sa.Integer, nullable=False),
    json_column("labels", "{}"),
    # With a spec_id: what is its own alone; all else is in that row of `specs`.
    sa.Column("spec", JSONB, nullable=False),
    sa.Column("spec_id", UUID, sa.ForeignKey("specs.spec_id")),
    text_column("content_hash"),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("lease_id", sa.Text),
    sa.Column("vm_name", sa.Text),
    sa.Column("vm_uid", UUID),
    sa.Column("lease_region", sa.Text),
    sa.Column("lease_zone", sa.Text),
    sa.Column("slots", JSONB),
    time_column("submitted_at"),
    time_column("status_since"),
    time_column("queued_since"),
    time_column("deadline_at", nullable=True),
    time_column("started_at", nullable=True),
    time_column("ended_at", nullable=True),
    count_column("failures"),
    count_column("losses"),
    count_column("preemptions"),
    sa.Column("exit_code", sa.Integer),
    text_column("reason", default=True),
    sa.Column("stop_reason", sa.Text),
    text_column("why", default=True),
    sa.Column("progress_step", sa.Double),
    sa.Column("progress_total", sa.Double),
    sa.Column("checkpoint_step", sa.Double),
    time_column("progress_at", nullable=True),
    # The number of the newest row of its history; the next one is taken under the row's lock.
    count_column("last_seq"),
    # Of attempts that were pruned before each VM-second was attributed; job_costs has the others.
    number_column("past_cost_usd", default="0"),
    # Retention has taken the whole timeline and all attempts.
    flag_column("history_pruned", default="false"),
    sa.Column("group_id", sa.Text),
    # The hold that keeps it out of the queue: the indexes of the queue do not know it.
    sa.Column("blocked", UUID),
    # Of a gang: the job with rank 0, which is what people know.
    sa.Column("gang", UUID),
    count_column("rank"),
    sa.Column("gang_size", sa.Integer, nullable=False, server_default=sa.text("1")),
    text_column("gang_region", default=True),
    count_column("holds"),
    # The start message that is out for whichever v1 worker takes it.
    sa.Column("offer", JSONB),
    # The queue: priority class, place among the jobs of a tenant, GPU-seconds had already.
    sa.Column("tier", sa.SmallInteger, nullable=False, server_default=sa.text("1")),
    time_column("due_at", default="now()"),
    number_column("attained_gpu_s", default="0"),
    # The bound that it was told at its submission.
    time_column("starts_by", nullable=True),
    # What its checkpoints hold: seconds of its run, and the share of its work as it reported it.
    number_column("saved_s", default="0"),
    number_column("saved_share", default="0"),
    # After a failed attempt: the next one starts no sooner.
    time_column("retry_at", nullable=True),
    # The transaction that moved it last, put there by a trigger: how a cycle finds what has
    # changed.
    sa.Column("moved", sa.BigInteger),
    index("ix_jobs_moved", "moved", where="moved IS NOT NULL"),
    *_job_checks(),
    # The job id first: people often know no more than that.
    index("uq_jobs_identity", "job_id, user_id, tenant_id", unique=True),
    index("ix_jobs_queue", "cluster, priority DESC, queued_since, uid", where=_IN_QUEUE),
    index("ix_jobs_fair", "cluster, tier, tenant_id, due_at, uid", where=_IN_QUEUE),
    index("ix_jobs_fifo", "cluster, queued_since, uid", where=_IN_QUEUE),
    index("ix_jobs_holds", "tenant_id", where=f"status IN {any_of(HOLDS)}"),
    index("ix_jobs_queue_ends", "deadline_at", where="status = 'QUEUED'"),
    index("ix_jobs_vm_uid", "vm_uid", where="vm_uid IS NOT NULL"),
    index("ix_jobs_history_ends", "ended_at", where="ended_at IS NOT NULL AND NOT history_pruned"),
    index("ix_jobs_gang", "gang, rank", where="gang IS NOT NULL"),
    index("ix_jobs_blocked", "blocked, uid", where="blocked IS NOT NULL"),
    index(
        "ix_jobs_group",
        "group_id, user_id, submitted_at DESC, uid DESC",
        where="group_id IS NOT NULL",
    ),
    index(
        "ix_jobs_group_open",
        "group_id, user_id, uid",
        where="group_id IS NOT NULL AND ended_at IS NULL",
    ),
    # Lists, newest first; of a gang they show the first member.
    index("ix_jobs_newest", _NEWEST, where="rank = 0"),
    index("ix_jobs_tenant", f"tenant_id, {_NEWEST}", where="rank = 0"),
    index("ix_jobs_user", f"user_id, {_NEWEST}", where="rank = 0"),
    index("ix_jobs_cluster", f"cluster, status, {_NEWEST}", where="rank = 0"),
    # Which waits longest: of all jobs, of a tenant's.
    index("ix_jobs_waiting", "status, queued_since", where=f"status IN {any_of(WAITING)}"),
    index("ix_jobs_waiting_of", "tenant_id, queued_since", where=f"status IN {any_of(WAITING)}"),
)

# What holds wait for: the end of a job, or of all jobs of a group.
waits = sa.Table(
    "waits",
    metadata,
    sa.Column("hold", UUID, primary_key=True),
    sa.Column("needs", sa.Text, primary_key=True),
    sa.Column("job", UUID),
    sa.Column("tenant_id", sa.Text),
    sa.Column("user_id", sa.Text),
    sa.Column("group_id", sa.Text),
    sa.Column("good_only", sa.Boolean, nullable=False),
    flag_column("over", default="false"),
    # How it ended, if that is not good enough.
    sa.Column("bad", sa.Text),
    # The hold has nothing more to wait for: its jobs go, or cannot run.
    flag_column("ready", default="false"),
    sa.CheckConstraint("num_nonnulls(job, group_id) = 1", "one_thing"),
    sa.CheckConstraint("num_nonnulls(tenant_id, user_id, group_id) IN (0, 3)", "whose_group"),
    sa.CheckConstraint(f"bad IN {any_of(FINAL)}", "bad"),
    index("ix_waits_job", "job", where="job IS NOT NULL"),
    index("ix_waits_group", "group_id, user_id", where="group_id IS NOT NULL"),
    index("ix_waits_ready", "hold", where="ready"),
)

# What happened to a job: what one commit adds is one row, packed (db/timelines.py). `seq` is the
# number of the last of it.
timelines = sa.Table(
    "timelines",
    metadata,
    sa.Column("uid", UUID, sa.ForeignKey("jobs.uid", ondelete="CASCADE"), primary_key=True),
    time_column("at"),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("packed", sa.LargeBinary, nullable=False),
    sa.Column("dedup_key", sa.Text),
    sa.CheckConstraint("seq >= 1", "seq"),
    index("uq_timelines_dedup_key", "uid, dedup_key", unique=True, where="dedup_key IS NOT NULL"),
)

# The same as releases before wrote it: one row for each thing that happened.
job_events = sa.Table(
    "job_events",
    metadata,
    sa.Column("uid", UUID, sa.ForeignKey("jobs.uid", ondelete="CASCADE"), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    time_column("at"),
    text_column("event"),
    sa.Column("from_status", sa.Text),
    text_column("to_status"),
    sa.Column("attempt", sa.Integer, nullable=False),
    text_column("reason"),
    sa.Column("vm_name", sa.Text),
    sa.Column("region", sa.Text),
    json_column("data", "{}"),
    sa.Column("dedup_key", sa.Text),
    sa.CheckConstraint("seq >= 1", "seq"),
    sa.CheckConstraint(f"from_status IN {any_of(JobStatus)}", "from_status"),
    sa.CheckConstraint(f"to_status IN {any_of(JobStatus)}", "to_status"),
    index("uq_job_events_dedup_key", "uid, dedup_key", unique=True, where="dedup_key IS NOT NULL"),
)

# What a job met while it waited, folded: one row per (kind, region, reason). `key` is their hash,
# `words` are all three, packed (db/packed.py).
job_waits = sa.Table(
    "job_waits",
    metadata,
    sa.Column("uid", UUID, sa.ForeignKey("jobs.uid", ondelete="CASCADE"), primary_key=True),
    sa.Column("key", sa.BigInteger, primary_key=True, autoincrement=False),
    time_column("first_at"),
    time_column("last_at"),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("words", sa.LargeBinary, nullable=False),
    sa.CheckConstraint("count >= 0", "count"),
)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("uid", UUID, sa.ForeignKey("jobs.uid", ondelete="CASCADE"), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("lease_id", sa.Text, nullable=False),
    sa.Column("vm_uid", UUID, nullable=False),
    text_column("vm_name"),
    text_column("region"),
    text_column("zone"),
    json_column("slots", "[]"),
    number_column("usd_per_hour"),
    time_column("assigned_at"),
    time_column("started_at", nullable=True),
    time_column("ended_at", nullable=True),
    # When its newest checkpoint was reported: what came before is not lost with its VM.
    time_column("checkpoint_at", nullable=True),
    text_column("outcome", default=True),
    sa.Column("exit_code", sa.Integer),
    sa.CheckConstraint("attempt >= 1", "attempt"),
    sa.CheckConstraint("usd_per_hour >= 0", "price"),
    sa.CheckConstraint("(ended_at IS NULL) = (outcome = '')", "ended"),
    index("uq_attempts_lease_id", "lease_id", unique=True),
    index("ix_attempts_vm_uid", "vm_uid, assigned_at"),
)
