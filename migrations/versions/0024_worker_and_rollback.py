"""Two facts get columns of their own: which worker a VM has, and which version a rollback restored.

Both were read out of other columns until now: a boot nonce of "v1", and the words of `source`.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "vms", sa.Column("worker", sa.Text(), server_default=sa.text("'v2'"), nullable=False)
    )
    op.execute("UPDATE vms SET worker = 'v1' WHERE boot_nonce = 'v1'")
    op.create_check_constraint(op.f("ck_vms_worker"), "vms", "worker IN ('v1', 'v2')")
    op.add_column("config_versions", sa.Column("rollback_of", sa.Integer()))
    op.execute(
        r"UPDATE config_versions SET rollback_of = substring(source FROM '\d+$')::int "
        r"WHERE source ~ '^rollback to version \d{1,9}$'"
    )


def downgrade() -> None:
    op.drop_column("config_versions", "rollback_of")
    op.drop_column("vms", "worker")
