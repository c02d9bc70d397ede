"""What a job met while it waited: regions asked, refusals, blocks, preemption attempts, reasons."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_waits",
        sa.Column("uid", sa.UUID(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.CheckConstraint("count >= 0", name=op.f("ck_job_waits_count")),
        sa.ForeignKeyConstraint(
            ["uid"], ["jobs.uid"], name=op.f("fk_job_waits_uid"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("uid", "kind", "region", "key", name=op.f("pk_job_waits")),
    )


def downgrade() -> None:
    op.drop_table("job_waits")
