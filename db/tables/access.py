"""Keys, grants, secrets and the audit log: who may call, what for, and what they did."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from core.access import Scope
from db.tables.columns import (
    any_of,
    index,
    json_column,
    metadata,
    text_column,
    time_column,
)

# Only the hash of a key's secret: who reads this table cannot call with what stands in it.
api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("key_id", sa.Text, primary_key=True),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    text_column("name"),
    text_column("user_id"),
    time_column("created_at"),
    text_column("created_by"),
    time_column("expires_at", nullable=True),
    time_column("revoked_at", nullable=True),
    time_column("last_used_at", nullable=True),
    sa.Column("scopes", ARRAY(sa.Text), nullable=False, server_default=sa.text("'{}'")),
    sa.CheckConstraint("length(hash) = 32", "hash"),
    sa.CheckConstraint(f"scopes <@ ARRAY[{any_of(Scope)[1:-1]}]", "scopes"),
)

# A role of one principal, for one tenant or (`*`) for all.
grants = sa.Table(
    "grants",
    metadata,
    sa.Column("principal", sa.Text, primary_key=True),
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("role", sa.Text, primary_key=True),
    index("ix_grants_tenant", "tenant_id"),
    sa.CheckConstraint("principal <> '' AND tenant_id <> '' AND role <> ''", "words"),
)

# Values sealed with a key that is not in the database: core/secret_store.py.
secrets = sa.Table(
    "secrets",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    text_column("key_id"),
    time_column("updated_at"),
    text_column("updated_by"),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.CheckConstraint("tenant_id <> '' AND name <> '' AND version >= 1", "words"),
)

# Who has signed in with a browser. Only the hash of the cookie's secret.
sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("session_id", sa.Text, primary_key=True),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    text_column("principal"),
    time_column("created_at"),
    time_column("expires_at"),
    time_column("last_seen_at"),
    text_column("issuer"),
    sa.Column("groups", ARRAY(sa.Text), nullable=False, server_default=sa.text("'{}'")),
    sa.Column("key_hash", sa.LargeBinary, nullable=False),
    time_column("ended_at", nullable=True),
    index("ix_sessions_principal", "principal"),
    sa.CheckConstraint("length(hash) = 32", "hash"),
)

# Append-only: a trigger lets nobody delete a row, or change more of it than its missing link.
audit_log = sa.Table(
    "audit_log",
    metadata,
    sa.Column("seq", sa.BigInteger, sa.Identity(), primary_key=True),
    time_column("at"),
    text_column("principal"),
    text_column("user_id"),
    text_column("address"),
    text_column("request_id"),
    text_column("action"),
    text_column("target"),
    text_column("tenant_id"),
    text_column("outcome"),
    json_column("detail", "{}"),
    sa.Column("number", sa.BigInteger),
    sa.Column("hash", sa.LargeBinary),
    index("uq_audit_log_number", "number", unique=True),
    index("ix_audit_log_unlinked", "seq", where="number IS NULL"),
    index("ix_audit_log_target", "target, seq"),
    index("ix_audit_log_principal", "principal, seq"),
    sa.CheckConstraint("(number IS NULL) = (hash IS NULL) AND number >= 1", "link"),
)
