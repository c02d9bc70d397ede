"""Each configuration that was in force."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "config_versions",
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        # Not jsonb, which forgets the order of keys: people get the document back.
        sa.Column("document", postgresql.JSON(), nullable=False),
        sa.Column("diff", postgresql.JSONB(), nullable=False, server_default=sa.text("'[]'")),
        sa.CheckConstraint("version >= 1", name="ck_config_versions_version"),
        sa.PrimaryKeyConstraint("version", name="pk_config_versions"),
    )
    op.create_index("ix_config_versions_digest", "config_versions", ["digest", "version"])


def downgrade() -> None:
    op.drop_table("config_versions")
