"""Which rows have moved: each row that is read in every cycle bears the transaction that changed
it last, so that a cycle reads those alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_TABLES = ("jobs", "vms", "tenants")
# By the database itself: no writer can forget it, not even one at a prompt. Numbers of transactions
# need no lock and have no gaps that matter: whatever a snapshot does not see yet has a number that
# is not below the snapshot's own lower bound.
_FUNCTION = """
CREATE FUNCTION zen_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.moved := pg_current_xact_id()::text::bigint;
    RETURN NEW;
END $$
"""
# Heartbeats, progress and whys grow no version: they are hot, and must not touch an index. A new
# job waits in the queue, where it is found by other means.
_WHEN = {
    "jobs": ("NEW.status <> 'QUEUED'", "OLD.version IS DISTINCT FROM NEW.version"),
    "vms": ("true", "OLD.version IS DISTINCT FROM NEW.version"),
    "tenants": ("true", "OLD.* IS DISTINCT FROM NEW.*"),
}


def upgrade() -> None:
    op.execute(_FUNCTION)
    for table in _TABLES:
        op.add_column(table, sa.Column("moved", sa.BigInteger()))
        op.create_index(
            f"ix_{table}_moved", table, ["moved"], postgresql_where=sa.text("moved IS NOT NULL")
        )
        for event, when in zip(("INSERT", "UPDATE"), _WHEN[table], strict=True):
            op.execute(
                f"CREATE TRIGGER {table}_moved_{event.lower()} BEFORE {event} ON {table} "
                f"FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION zen_moved()"
            )


def downgrade() -> None:
    for table in _TABLES:
        for event in ("insert", "update"):
            op.execute(f"DROP TRIGGER {table}_moved_{event} ON {table}")
        op.drop_index(f"ix_{table}_moved", table_name=table)
        op.drop_column(table, "moved")
    op.execute("DROP FUNCTION zen_moved()")
