"""The public keys of each VM's worker, and the highest sequence number heard of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    zero = sa.text("0")
    op.add_column("vms", sa.Column("worker_keys", sa.Text()))
    op.add_column(
        "vms", sa.Column("heard_seq", sa.BigInteger(), server_default=zero, nullable=False)
    )


def downgrade() -> None:
    op.drop_column("vms", "heard_seq")
    op.drop_column("vms", "worker_keys")
