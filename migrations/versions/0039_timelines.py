"""Histories of jobs in a third of their room: what one commit adds is one row, packed. Rows of
before stay where they are and are read with the others, until retention takes them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "timelines",
        sa.Column("uid", sa.UUID(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.Column("dedup_key", sa.Text(), nullable=True),
        sa.CheckConstraint("seq >= 1", name=op.f("ck_timelines_seq")),
        sa.ForeignKeyConstraint(
            ["uid"], ["jobs.uid"], name=op.f("fk_timelines_uid"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("uid", "seq", name=op.f("pk_timelines")),
    )
    op.create_index(
        "uq_timelines_dedup_key",
        "timelines",
        ["uid", "dedup_key"],
        unique=True,
        postgresql_where=sa.text("dedup_key IS NOT NULL"),
    )
    op.execute("ALTER TABLE timelines ENABLE ROW LEVEL SECURITY")
    op.execute("CREATE POLICY everyone ON timelines USING (true) WITH CHECK (true)")


def downgrade() -> None:
    """The histories that are only here are lost."""
    op.drop_table("timelines")
