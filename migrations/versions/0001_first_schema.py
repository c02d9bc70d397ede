"""The first schema."""
# ruff: noqa: E501  # a constraint is easier to compare in one piece

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "alerts",
        sa.Column("alert_id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("raised_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cleared_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.CheckConstraint("count >= 1", name=op.f("ck_alerts_count")),
        sa.PrimaryKeyConstraint("alert_id", name=op.f("pk_alerts")),
    )
    op.create_index(
        "ix_alerts_newest",
        "alerts",
        [sa.literal_column("raised_at DESC"), sa.literal_column("alert_id DESC")],
        unique=False,
    )
    op.create_index(
        "uq_alerts_open",
        "alerts",
        ["kind", "subject"],
        unique=True,
        postgresql_where=sa.text("cleared_at IS NULL"),
    )
    op.create_table(
        "cloud_requests",
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("names", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.CheckConstraint("kind IN ('create', 'delete')", name=op.f("ck_cloud_requests_kind")),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_cloud_requests")),
    )
    op.create_index(
        "ix_cloud_requests_open",
        "cloud_requests",
        ["created_at", "request_id"],
        unique=False,
        postgresql_where=sa.text("settled_at IS NULL"),
    )
    op.create_table(
        "dead_letters",
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("attributes", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("message_id", name=op.f("pk_dead_letters")),
    )
    op.create_index(
        "ix_dead_letters_newest", "dead_letters", [sa.literal_column("at DESC")], unique=False
    )
    op.create_table(
        "jobs",
        sa.Column("uid", sa.UUID(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("labels", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("spec", postgresql.JSONB(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("lease_id", sa.Text(), nullable=True),
        sa.Column("vm_name", sa.Text(), nullable=True),
        sa.Column("vm_uid", sa.UUID(), nullable=True),
        sa.Column("lease_region", sa.Text(), nullable=True),
        sa.Column("lease_zone", sa.Text(), nullable=True),
        sa.Column("slots", postgresql.JSONB(), nullable=True),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("status_since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("queued_since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("losses", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("preemptions", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("progress_step", sa.Double(), nullable=True),
        sa.Column("progress_total", sa.Double(), nullable=True),
        sa.Column("checkpoint_step", sa.Double(), nullable=True),
        sa.Column("progress_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_seq", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint(
            "(status IN ('ASSIGNED', 'PREEMPTING', 'RUNNING', 'STARTING', 'STOPPING')) = (lease_id IS NOT NULL)",
            name=op.f("ck_jobs_lease"),
        ),
        sa.CheckConstraint(
            "(status IN ('CANCELLED', 'FAILED', 'SUCCEEDED')) = (deadline_at IS NULL)",
            name=op.f("ck_jobs_deadline"),
        ),
        sa.CheckConstraint(
            "(status IN ('CANCELLED', 'FAILED', 'SUCCEEDED')) = (ended_at IS NOT NULL)",
            name=op.f("ck_jobs_ended"),
        ),
        sa.CheckConstraint(
            "status <> 'RUNNING' OR started_at IS NOT NULL", name=op.f("ck_jobs_started")
        ),
        sa.CheckConstraint(
            "status <> 'STOPPING' OR stop_reason IS NOT NULL", name=op.f("ck_jobs_stopping")
        ),
        sa.CheckConstraint(
            "status IN ('ASSIGNED', 'CANCELLED', 'FAILED', 'PREEMPTING', 'PROVISIONING', 'QUEUED', 'RUNNING', 'STARTING', 'STOPPING', 'SUCCEEDED')",
            name=op.f("ck_jobs_status"),
        ),
        sa.CheckConstraint(
            "status IN ('PROVISIONING', 'QUEUED') OR why = ''",
            name=op.f("ck_jobs_waiting"),
        ),
        sa.CheckConstraint(
            "status NOT IN ('ASSIGNED', 'PREEMPTING', 'RUNNING', 'STARTING', 'STOPPING') OR attempt >= 1",
            name=op.f("ck_jobs_lease_attempt"),
        ),
        sa.CheckConstraint(
            "stop_reason IN ('max_runtime', 'user')", name=op.f("ck_jobs_stop_reason")
        ),
        sa.CheckConstraint(
            "num_nonnulls(lease_id, vm_name, vm_uid, lease_region, lease_zone, slots) IN (0, 6)",
            name=op.f("ck_jobs_lease_whole"),
        ),
        sa.CheckConstraint(
            "version >= 1 AND attempt >= 0 AND last_seq >= 0 AND failures >= 0 AND losses >= 0 AND preemptions >= 0",
            name=op.f("ck_jobs_counters"),
        ),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_jobs")),
    )
    op.create_index(
        "ix_jobs_labels",
        "jobs",
        ["labels"],
        unique=False,
        postgresql_using="gin",
        postgresql_ops={"labels": "jsonb_path_ops"},
    )
    op.create_index(
        "ix_jobs_live",
        "jobs",
        ["status", "uid"],
        unique=False,
        postgresql_where=sa.text(
            "status IN ('ASSIGNED', 'PREEMPTING', 'PROVISIONING', 'RUNNING', 'STARTING', 'STOPPING')"
        ),
    )
    op.create_index(
        "ix_jobs_newest",
        "jobs",
        [sa.literal_column("submitted_at DESC"), sa.literal_column("uid DESC")],
        unique=False,
    )
    op.create_index(
        "ix_jobs_queue",
        "jobs",
        ["cluster", sa.literal_column("priority DESC"), "queued_since", "uid"],
        unique=False,
        postgresql_where=sa.text("status = 'QUEUED'"),
    )
    op.create_index(
        "ix_jobs_queue_ends",
        "jobs",
        ["deadline_at"],
        unique=False,
        postgresql_where=sa.text("status = 'QUEUED'"),
    )
    op.create_index(
        "ix_jobs_status",
        "jobs",
        ["status", sa.literal_column("submitted_at DESC"), sa.literal_column("uid DESC")],
        unique=False,
    )
    op.create_index(
        "ix_jobs_tenant",
        "jobs",
        ["tenant_id", sa.literal_column("submitted_at DESC"), sa.literal_column("uid DESC")],
        unique=False,
    )
    op.create_index(
        "ix_jobs_vm_uid",
        "jobs",
        ["vm_uid"],
        unique=False,
        postgresql_where=sa.text("vm_uid IS NOT NULL"),
    )
    op.create_index("uq_jobs_job_id_user_id", "jobs", ["job_id", "user_id"], unique=True)
    op.create_table(
        "leader",
        sa.Column("one", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("one", name=op.f("ck_leader_one")),
        sa.CheckConstraint("term >= 1", name=op.f("ck_leader_term")),
        sa.PrimaryKeyConstraint("one", name=op.f("pk_leader")),
    )
    op.create_table(
        "outbox",
        sa.Column("outbox_id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("attributes", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("ordering_key", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("outbox_id", name=op.f("pk_outbox")),
    )
    op.create_index(
        "ix_outbox_unpublished",
        "outbox",
        ["outbox_id"],
        unique=False,
        postgresql_where=sa.text("published_at IS NULL"),
    )
    op.create_table(
        "region_status",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("target_size", sa.Integer(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("cluster", "region", name=op.f("pk_region_status")),
    )
    op.create_table(
        "troubles",
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("machine_type", sa.Text(), nullable=False),
        sa.Column("spot", sa.Boolean(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('address_space', 'missing', 'other', 'permission', 'quota', 'stockout', 'unsupported')",
            name=op.f("ck_troubles_kind"),
        ),
        sa.CheckConstraint("count >= 1", name=op.f("ck_troubles_count")),
        sa.PrimaryKeyConstraint(
            "region", "zone", "machine_type", "spot", "kind", name=op.f("pk_troubles")
        ),
    )
    op.create_table(
        "vms",
        sa.Column("uid", sa.UUID(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("boot_nonce", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("spot", sa.Boolean(), nullable=False),
        sa.Column("usd_per_hour", sa.Double(), nullable=False),
        sa.Column("leases", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state_since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("running_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ready_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("idle_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_beat_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("taken", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("readings", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.CheckConstraint("(state = 'GONE') = (gone_at IS NOT NULL)", name=op.f("ck_vms_gone")),
        sa.CheckConstraint(
            "state IN ('BOOTING', 'DELETING', 'DRAINING', 'GONE', 'READY', 'REQUESTED')",
            name=op.f("ck_vms_state"),
        ),
        sa.CheckConstraint(
            "state NOT IN ('BOOTING', 'REQUESTED') OR leases = '[]'::jsonb",
            name=op.f("ck_vms_leases"),
        ),
        sa.CheckConstraint(
            "version >= 1 AND gpus >= 0 AND usd_per_hour >= 0", name=op.f("ck_vms_counters")
        ),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_vms")),
    )
    op.create_index(
        "ix_vms_living",
        "vms",
        ["cluster", "state"],
        unique=False,
        postgresql_where=sa.text("state <> 'GONE'"),
    )
    op.create_index(
        "ix_vms_gone_with_leases",
        "vms",
        ["uid"],
        unique=False,
        postgresql_where=sa.text("state = 'GONE' AND leases <> '[]'::jsonb"),
    )
    op.create_index(
        "ix_vms_newest",
        "vms",
        [sa.literal_column("requested_at DESC"), sa.literal_column("uid DESC")],
        unique=False,
    )
    op.create_index(
        "uq_vms_living_name",
        "vms",
        ["name"],
        unique=True,
        postgresql_where=sa.text("state <> 'GONE'"),
    )
    op.create_table(
        "attempts",
        sa.Column("uid", sa.UUID(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("lease_id", sa.Text(), nullable=False),
        sa.Column("vm_uid", sa.UUID(), nullable=False),
        sa.Column("vm_name", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("slots", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("usd_per_hour", sa.Double(), nullable=False),
        sa.Column("assigned_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.CheckConstraint("(ended_at IS NULL) = (outcome = '')", name=op.f("ck_attempts_ended")),
        sa.CheckConstraint("attempt >= 1", name=op.f("ck_attempts_attempt")),
        sa.CheckConstraint("usd_per_hour >= 0", name=op.f("ck_attempts_price")),
        sa.ForeignKeyConstraint(
            ["uid"], ["jobs.uid"], name=op.f("fk_attempts_uid"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("uid", "attempt", name=op.f("pk_attempts")),
    )
    op.create_index("uq_attempts_lease_id", "attempts", ["lease_id"], unique=True)
    op.create_table(
        "job_events",
        sa.Column("uid", sa.UUID(), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("from_status", sa.Text(), nullable=True),
        sa.Column("to_status", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("vm_name", sa.Text(), nullable=True),
        sa.Column("region", sa.Text(), nullable=True),
        sa.Column("data", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("dedup_key", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "from_status IN ('ASSIGNED', 'CANCELLED', 'FAILED', 'PREEMPTING', 'PROVISIONING', 'QUEUED', 'RUNNING', 'STARTING', 'STOPPING', 'SUCCEEDED')",
            name=op.f("ck_job_events_from_status"),
        ),
        sa.CheckConstraint(
            "to_status IN ('ASSIGNED', 'CANCELLED', 'FAILED', 'PREEMPTING', 'PROVISIONING', 'QUEUED', 'RUNNING', 'STARTING', 'STOPPING', 'SUCCEEDED')",
            name=op.f("ck_job_events_to_status"),
        ),
        sa.CheckConstraint("seq >= 1", name=op.f("ck_job_events_seq")),
        sa.ForeignKeyConstraint(
            ["uid"], ["jobs.uid"], name=op.f("fk_job_events_uid"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("uid", "seq", name=op.f("pk_job_events")),
    )
    op.create_index(
        "uq_job_events_dedup_key",
        "job_events",
        ["uid", "dedup_key"],
        unique=True,
        postgresql_where=sa.text("dedup_key IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_table("job_events")
    op.drop_table("attempts")
    op.drop_table("vms")
    op.drop_table("troubles")
    op.drop_table("region_status")
    op.drop_table("outbox")
    op.drop_table("leader")
    op.drop_table("jobs")
    op.drop_table("dead_letters")
    op.drop_table("cloud_requests")
    op.drop_table("alerts")
