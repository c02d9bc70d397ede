"""What is over can be found by its age, and a job keeps what its pruned attempts cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "jobs",
        sa.Column("past_cost_usd", sa.Double(), server_default=sa.text("0"), nullable=False),
    )
    op.add_column(
        "jobs",
        sa.Column("history_pruned", sa.Boolean(), server_default=sa.text("false"), nullable=False),
    )
    op.create_index(
        "ix_jobs_history_ends",
        "jobs",
        ["ended_at"],
        postgresql_where=sa.text("ended_at IS NOT NULL AND NOT history_pruned"),
    )
    op.create_index(
        "ix_cloud_requests_settled",
        "cloud_requests",
        ["settled_at"],
        postgresql_where=sa.text("settled_at IS NOT NULL"),
    )
    op.create_index(
        "ix_vms_gone",
        "vms",
        ["gone_at"],
        postgresql_where=sa.text("state = 'GONE' AND leases = '[]'::jsonb"),
    )
    op.create_index(
        "ix_alerts_cleared",
        "alerts",
        ["cleared_at"],
        postgresql_where=sa.text("cleared_at IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_alerts_cleared", table_name="alerts")
    op.drop_index("ix_vms_gone", table_name="vms")
    op.drop_index("ix_cloud_requests_settled", table_name="cloud_requests")
    op.drop_index("ix_jobs_history_ends", table_name="jobs")
    op.drop_column("jobs", "history_pruned")
    op.drop_column("jobs", "past_cost_usd")
