"""What a job's checkpoints hold, and when its next attempt may start."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("saved_s", "saved_share"):
        zero = sa.text("0")
        op.add_column("jobs", sa.Column(name, sa.Double(), nullable=False, server_default=zero))
    op.add_column("jobs", sa.Column("retry_at", sa.DateTime(timezone=True)))
    op.create_check_constraint(
        op.f("ck_jobs_retry"), "jobs", "retry_at IS NULL OR status = 'QUEUED'"
    )


def downgrade() -> None:
    op.drop_constraint(op.f("ck_jobs_retry"), "jobs", type_="check")
    for name in ("saved_s", "saved_share", "retry_at"):
        op.drop_column("jobs", name)
