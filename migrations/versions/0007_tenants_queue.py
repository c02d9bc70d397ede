"""Tenants, and a queue in the order of their shares."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_QUEUED = "status = 'QUEUED'"
_HOLDS = "status IN ('ASSIGNED', 'PREEMPTING', 'PROVISIONING', 'RUNNING', 'STARTING', 'STOPPING')"
# A default of its own for each column, so that replicas of the version before can go on writing.
_PLACES = """
UPDATE jobs SET due_at = queued_since, tier = CASE WHEN priority >= 2000 THEN 3
    WHEN priority >= 1000 THEN 2 WHEN priority >= 500 THEN 1 ELSE 0 END
WHERE status IN ('QUEUED', 'PROVISIONING')
"""
_TENANTS = """
INSERT INTO tenants (tenant_id) SELECT 'default' UNION SELECT DISTINCT tenant_id FROM jobs
"""


def upgrade() -> None:
    op.add_column(
        "jobs", sa.Column("tier", sa.SmallInteger(), server_default=sa.text("1"), nullable=False)
    )
    op.add_column(
        "jobs",
        sa.Column(
            "due_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
    )
    op.add_column(
        "jobs",
        sa.Column("attained_gpu_s", sa.Double(), server_default=sa.text("0"), nullable=False),
    )
    op.execute(_PLACES)
    queued = sa.text(_QUEUED)
    fair = ["cluster", "tier", "tenant_id", "due_at", "uid"]
    op.create_index("ix_jobs_fair", "jobs", fair, postgresql_where=queued)
    fifo = ["cluster", "queued_since", "uid"]
    op.create_index("ix_jobs_fifo", "jobs", fifo, postgresql_where=queued)
    # The same rows under the key that is asked for: one index instead of two.
    op.drop_index("ix_jobs_live", table_name="jobs")
    op.create_index("ix_jobs_holds", "jobs", ["tenant_id"], postgresql_where=sa.text(_HOLDS))
    op.create_table(
        "tenants",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("weight", sa.Double(), server_default=sa.text("1"), nullable=False),
        sa.Column("priority_max", sa.Integer(), server_default=sa.text("9999"), nullable=False),
        sa.Column("may_preempt", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("preemptible", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column(
            "quota",
            sa.dialects.postgresql.JSONB(),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("usage_gpu_s", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("usage_at", sa.DateTime(timezone=True)),
        sa.Column("name", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.CheckConstraint("weight > 0", name=op.f("ck_tenants_weight")),
        sa.CheckConstraint(
            "priority_max >= 0 AND version >= 1 AND usage_gpu_s >= 0",
            name=op.f("ck_tenants_amounts"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", name=op.f("pk_tenants")),
    )
    op.execute(_TENANTS)


def downgrade() -> None:
    op.drop_table("tenants")
    op.drop_index("ix_jobs_holds", table_name="jobs")
    op.create_index("ix_jobs_live", "jobs", ["status", "uid"], postgresql_where=sa.text(_HOLDS))
    op.drop_index("ix_jobs_fifo", table_name="jobs")
    op.drop_index("ix_jobs_fair", table_name="jobs")
    op.drop_column("jobs", "attained_gpu_s")
    op.drop_column("jobs", "due_at")
    op.drop_column("jobs", "tier")
