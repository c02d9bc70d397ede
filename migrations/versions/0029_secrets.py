"""Tenants' secrets, sealed with a key that is not in the database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "secrets",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_by", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint(
            "tenant_id <> '' AND name <> '' AND version >= 1", name=op.f("ck_secrets_words")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "name", name=op.f("pk_secrets")),
    )


def downgrade() -> None:
    op.drop_table("secrets")
