"""Why a VM was given up gets a column of its own: until now the words of its reason said so."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("vms", sa.Column("given_up", sa.Text()))
    op.execute(
        "UPDATE vms SET given_up = 'unclaimed' WHERE state IN ('DRAINING', 'DELETING') "
        "AND reason = 'the VM did not claim the job in time'"
    )
    kinds = "'not_yielded', 'unclaimed', 'unreachable', 'unstarted'"
    op.create_check_constraint(op.f("ck_vms_given_up"), "vms", f"given_up IN ({kinds})")


def downgrade() -> None:
    op.drop_column("vms", "given_up")
