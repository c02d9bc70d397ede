"""VMs that are asked for together: which request they belong to, and that request itself."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_NEVER_ASKED = "DELETE FROM cloud_requests WHERE kind IN ('queue', 'unqueue')"


def upgrade() -> None:
    empty = sa.text("''")
    for table in ("vms", "cloud_requests"):
        op.add_column(table, sa.Column("together", sa.Text(), nullable=False, server_default=empty))
    op.add_column("vms", sa.Column("ends_at", sa.DateTime(timezone=True)))
    op.add_column(
        "cloud_requests",
        sa.Column("run_s", sa.Double(), nullable=False, server_default=sa.text("0")),
    )
    _kinds("create", "delete", "queue", "unqueue")


def downgrade() -> None:
    op.execute(_NEVER_ASKED)
    _kinds("create", "delete")
    op.drop_column("cloud_requests", "run_s")
    op.drop_column("vms", "ends_at")
    for table in ("cloud_requests", "vms"):
        op.drop_column(table, "together")


def _kinds(*kinds: str) -> None:
    words = ", ".join(f"'{kind}'" for kind in kinds)
    op.drop_constraint(op.f("ck_cloud_requests_kind"), "cloud_requests", type_="check")
    op.create_check_constraint(
        op.f("ck_cloud_requests_kind"), "cloud_requests", f"kind IN ({words})"
    )
