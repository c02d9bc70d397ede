"""Keys, grants and the audit log: who may call, what for, and what they did."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    time = sa.DateTime(timezone=True)
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", time),
        sa.Column("revoked_at", time),
        sa.Column("last_used_at", time),
        sa.Column(
            "scopes", postgresql.ARRAY(sa.Text()), nullable=False, server_default=sa.text("'{}'")
        ),
        sa.CheckConstraint("length(hash) = 32", name=op.f("ck_api_keys_hash")),
        sa.CheckConstraint(
            "scopes <@ ARRAY['on-behalf-of', 'read-only']", name=op.f("ck_api_keys_scopes")
        ),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_api_keys")),
    )
    op.create_table(
        "grants",
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "principal <> '' AND tenant_id <> '' AND role <> ''", name=op.f("ck_grants_words")
        ),
        sa.PrimaryKeyConstraint("principal", "tenant_id", "role", name=op.f("pk_grants")),
    )
    op.create_index("ix_grants_tenant", "grants", ["tenant_id"])
    _create_audit_log()


def _create_audit_log() -> None:
    words = ("principal", "user_id", "address", "request_id", "action", "target", "tenant_id")
    op.create_table(
        "audit_log",
        sa.Column("seq", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in (*words, "outcome")),
        sa.Column("detail", postgresql.JSONB(), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("number", sa.BigInteger()),
        sa.Column("hash", sa.LargeBinary()),
        sa.CheckConstraint(
            "(number IS NULL) = (hash IS NULL) AND number >= 1", name=op.f("ck_audit_log_link")
        ),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_audit_log")),
    )
    op.create_index("uq_audit_log_number", "audit_log", ["number"], unique=True)
    unlinked = sa.text("number IS NULL")
    op.create_index("ix_audit_log_unlinked", "audit_log", ["seq"], postgresql_where=unlinked)
    for name in ("target", "principal"):
        op.create_index(f"ix_audit_log_{name}", "audit_log", [name, "seq"])
    op.execute(_APPEND_ONLY)
    op.execute(
        "CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE ON audit_log "
        "FOR EACH ROW EXECUTE FUNCTION audit_log_append_only()"
    )
    op.execute(
        "CREATE TRIGGER audit_log_not_emptied BEFORE TRUNCATE ON audit_log "
        "FOR EACH STATEMENT EXECUTE FUNCTION audit_log_append_only()"
    )


# Only the missing link may come later.
_APPEND_ONLY = """
CREATE FUNCTION audit_log_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF OLD.number IS NULL AND (OLD.seq, OLD.at, OLD.principal, OLD.user_id, OLD.address,
                OLD.request_id, OLD.action, OLD.target, OLD.tenant_id, OLD.outcome, OLD.detail)
            IS NOT DISTINCT FROM (NEW.seq, NEW.at, NEW.principal, NEW.user_id, NEW.address,
                NEW.request_id, NEW.action, NEW.target, NEW.tenant_id, NEW.outcome, NEW.detail)
        THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only';
END $$
"""


def downgrade() -> None:
    op.drop_table("audit_log")
    op.execute("DROP FUNCTION audit_log_append_only()")
    op.drop_table("grants")
    op.drop_table("api_keys")
