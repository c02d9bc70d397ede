"""For whom a VM was asked for: boot, idle and hedge time is that job's and its tenant's.

VMs from before have no cause: their boot and idle time stays nobody's, as it was billed so far.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("vms", sa.Column("caused_by", sa.UUID()))
    op.add_column(
        "vms", sa.Column("idle_max_s", sa.Double(), server_default=sa.text("0"), nullable=False)
    )
    op.add_column("vms", sa.Column("leaving_since", sa.DateTime(timezone=True)))
    op.create_index(
        "ix_vms_caused_by", "vms", ["caused_by"], postgresql_where=sa.text("NOT settled")
    )


def downgrade() -> None:
    op.drop_index("ix_vms_caused_by", table_name="vms")
    op.drop_column("vms", "leaving_since")
    op.drop_column("vms", "idle_max_s")
    op.drop_column("vms", "caused_by")
