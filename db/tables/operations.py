"""Tenants, costs, forecasts, messages, the leader, alerts and the configuration."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSON, UUID
from sqlalchemy.schema import SchemaItem

from core.cost import CostKind
from db.tables.columns import (
    any_of,
    flag_column,
    index,
    json_column,
    metadata,
    number_column,
    text_column,
    time_column,
)


def _cost_columns() -> list[SchemaItem]:
    """What was spent on one kind of VM time."""
    return [
        number_column("vm_seconds"),
        number_column("gpu_seconds"),
        number_column("usd"),
        sa.CheckConstraint(f"kind IN {any_of(CostKind)}", "kind"),
        sa.CheckConstraint("vm_seconds >= 0 AND gpu_seconds >= 0 AND usd >= 0", "amounts"),
    ]


# What a tenant may have, and what it has used: GPU-seconds of ended attempts, decayed up to
# `usage_at`. Everybody who ever submitted has a row.
tenants = sa.Table(
    "tenants",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("weight", sa.Double, nullable=False, server_default=sa.text("1")),
    sa.Column("priority_max", sa.Integer, nullable=False, server_default=sa.text("9999")),
    flag_column("may_preempt", default="true"),
    flag_column("preemptible", default="true"),
    json_column("quota", "{}"),
    sa.Column("version", sa.Integer, nullable=False, server_default=sa.text("1")),
    number_column("usage_gpu_s", default="0"),
    time_column("usage_at", nullable=True),
    text_column("name", default=True),
    flag_column("deleted", default="false"),
    json_column("consent", "{}"),
    sa.Column("moved", sa.BigInteger),
    index("ix_tenants_moved", "moved", where="moved IS NOT NULL"),
    sa.CheckConstraint("weight > 0", "weight"),
    sa.CheckConstraint("priority_max >= 0 AND version >= 1 AND usage_gpu_s >= 0", "amounts"),
)

# What billed VM time was spent on, by day (UTC). Reports read this and the VMs that live, never
# the history; it stays when VMs and attempts are pruned. An empty tenant: nobody's.
cost_daily = sa.Table(
    "cost_daily",
    metadata,
    sa.Column("day", sa.Date, primary_key=True),
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.Text, primary_key=True),
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("region", sa.Text, primary_key=True),
    sa.Column("spot", sa.Boolean, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    *_cost_columns(),
)

# The same for each job: the part of it that is a job's.
job_costs = sa.Table(
    "job_costs",
    metadata,
    sa.Column("uid", UUID, sa.ForeignKey("jobs.uid", ondelete="CASCADE"), primary_key=True),
    sa.Column("day", sa.Date, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    *_cost_columns(),
    index("ix_job_costs_day", "day"),
)

# When waiting jobs are expected to start: all that is said about a cluster's queue, replaced as a
# whole every few seconds. The loop never reads it.
forecasts = sa.Table(
    "forecasts",
    metadata,
    sa.Column("cluster", sa.Text, primary_key=True),
    time_column("computed_at"),
    sa.Column("document", JSON, nullable=False),
)

outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("outbox_id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    text_column("topic"),
    sa.Column("body", sa.LargeBinary, nullable=False),
    json_column("attributes", "{}"),
    text_column("ordering_key", default=True),
    time_column("published_at", nullable=True),
    index("ix_outbox_unpublished", "outbox_id", where="published_at IS NULL"),
)

leader = sa.Table(
    "leader",
    metadata,
    sa.Column("one", sa.Boolean, primary_key=True, server_default=sa.text("true")),
    text_column("holder"),
    sa.Column("term", sa.BigInteger, nullable=False),
    time_column("expires_at"),
    sa.Column("session_term", sa.BigInteger),
    sa.CheckConstraint("one", "one"),
    sa.CheckConstraint("term >= 1", "term"),
)

alerts = sa.Table(
    "alerts",
    metadata,
    sa.Column("alert_id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    text_column("kind"),
    text_column("subject"),
    text_column("severity"),
    text_column("message"),
    time_column("raised_at"),
    time_column("last_seen_at"),
    time_column("cleared_at", nullable=True),
    sa.Column("count", sa.Integer, nullable=False),
    sa.CheckConstraint("count >= 1", "count"),
    index("uq_alerts_open", "kind, subject", unique=True, where="cleared_at IS NULL"),
    index("ix_alerts_cleared", "cleared_at", where="cleared_at IS NOT NULL"),
    index("ix_alerts_newest", "raised_at DESC, alert_id DESC"),
)

dead_letters = sa.Table(
    "dead_letters",
    metadata,
    sa.Column("message_id", sa.Text, primary_key=True),
    text_column("source"),
    sa.Column("body", sa.LargeBinary, nullable=False),
    json_column("attributes", "{}"),
    text_column("reason"),
    time_column("at"),
    text_column("ordering_key", default=True),
    time_column("replayed_at", nullable=True),
    index("ix_dead_letters_newest", "at DESC"),
    index("ix_dead_letters_source", "source, at DESC"),
)

config_versions = sa.Table(
    "config_versions",
    metadata,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    time_column("at"),
    text_column("author"),
    text_column("source"),
    text_column("digest"),
    # Not jsonb, which forgets the order of keys: people get the document back.
    sa.Column("document", JSON, nullable=False),
    json_column("diff", "[]"),
    sa.Column("rollback_of", sa.Integer),
    sa.CheckConstraint("version >= 1", "version"),
    index("ix_config_versions_digest", "digest, version"),
)

# What each file of a replica said when it was last considered.
config_files = sa.Table(
    "config_files",
    metadata,
    sa.Column("host", sa.Text, primary_key=True),
    sa.Column("path", sa.Text, primary_key=True),
    text_column("digest"),
    time_column("at", default="clock_timestamp()"),
)
