"""Code of jobs: which directories tenants have sent, and in which packs their chunks lie. The bytes
are in the store."""

from __future__ import annotations

import sqlalchemy as sa

from db.tables.columns import flag_column, index, metadata, text_column, time_column

# One object of the store. Not stored: it is being written, or is on its way out.
code_packs = sa.Table(
    "code_packs",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("pack_id", sa.Text, primary_key=True),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    time_column("created_at"),
    flag_column("stored", default="false"),
)

code_chunks = sa.Table(
    "code_chunks",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("sha256", sa.LargeBinary, primary_key=True),
    text_column("pack_id"),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("bytes", sa.Integer, nullable=False),
    index("ix_code_chunks_pack", "tenant_id, pack_id"),
    sa.CheckConstraint("length(sha256) = 32 AND number >= 0", "words"),
)

code_trees = sa.Table(
    "code_trees",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("tree_id", sa.Text, primary_key=True),
    sa.Column("files", sa.Integer, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    time_column("created_at"),
    time_column("used_at"),
    flag_column("stored", default="false"),
    index("ix_code_trees_used", "used_at"),
)

# A pack stays for as long as a tree has chunks in it.
code_tree_packs = sa.Table(
    "code_tree_packs",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("tree_id", sa.Text, primary_key=True),
    sa.Column("pack_id", sa.Text, primary_key=True),
    index("ix_code_tree_packs_pack", "tenant_id, pack_id"),
)
