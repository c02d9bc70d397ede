"""A VM's shortest bill is stored with it, as its price is: clouds differ in it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    default = sa.text("60")
    op.add_column(
        "vms", sa.Column("billed_at_least_s", sa.Double(), server_default=default, nullable=False)
    )


def downgrade() -> None:
    op.drop_column("vms", "billed_at_least_s")
