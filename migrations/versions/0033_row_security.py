"""Row-level security: what a caller's queries see is bound to the caller's tenants. The rights of
the roles, and the policy that binds the API, come with `db/roles.py` after each upgrade."""

from __future__ import annotations

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

_TABLES = (
    *("jobs", "specs", "cost_daily", "job_events", "job_waits", "attempts", "job_costs"),
    "waits",
)


def upgrade() -> None:
    for table in _TABLES:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY everyone ON {table} USING (true) WITH CHECK (true)")


def downgrade() -> None:
    for table in _TABLES:
        op.execute(f"DROP POLICY IF EXISTS tenants ON {table}")
        op.execute(f"DROP POLICY everyone ON {table}")
        op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
