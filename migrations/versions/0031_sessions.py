"""Sessions of browsers: who has signed in, by the hash of a cookie."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    time = sa.DateTime(timezone=True)
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.Column("expires_at", time, nullable=False),
        sa.Column("last_seen_at", time, nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column(
            "groups", postgresql.ARRAY(sa.Text()), nullable=False, server_default=sa.text("'{}'")
        ),
        sa.Column("key_hash", sa.LargeBinary(), nullable=False),
        sa.Column("ended_at", time),
        sa.CheckConstraint("length(hash) = 32", name=op.f("ck_sessions_hash")),
        sa.PrimaryKeyConstraint("session_id", name=op.f("pk_sessions")),
    )
    op.create_index("ix_sessions_principal", "sessions", ["principal"])


def downgrade() -> None:
    op.drop_table("sessions")
