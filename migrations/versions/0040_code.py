"""Code of jobs: directories that tenants have sent, their chunks, and the packs that hold them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "code_packs",
        *_named("tenant_id", "pack_id"),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        _stored(),
        sa.PrimaryKeyConstraint("tenant_id", "pack_id", name=op.f("pk_code_packs")),
    )
    op.create_table(
        "code_chunks",
        *_named("tenant_id"),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        *_named("pack_id"),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            "length(sha256) = 32 AND number >= 0", name=op.f("ck_code_chunks_words")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "sha256", name=op.f("pk_code_chunks")),
    )
    op.create_table(
        "code_trees",
        *_named("tenant_id", "tree_id"),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("used_at", moment, nullable=False),
        _stored(),
        sa.PrimaryKeyConstraint("tenant_id", "tree_id", name=op.f("pk_code_trees")),
    )
    op.create_table(
        "code_tree_packs",
        *_named("tenant_id", "tree_id", "pack_id"),
        sa.PrimaryKeyConstraint("tenant_id", "tree_id", "pack_id", name=op.f("pk_code_tree_packs")),
    )
    op.create_index("ix_code_chunks_pack", "code_chunks", ["tenant_id", "pack_id"])
    op.create_index("ix_code_trees_used", "code_trees", ["used_at"])
    op.create_index("ix_code_tree_packs_pack", "code_tree_packs", ["tenant_id", "pack_id"])


def downgrade() -> None:
    for table in ("code_tree_packs", "code_trees", "code_chunks", "code_packs"):
        op.drop_table(table)


def _named(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=False) for name in names]


def _stored() -> sa.Column[bool]:
    return sa.Column("stored", sa.Boolean(), server_default=sa.text("false"), nullable=False)
