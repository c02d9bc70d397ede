"""Dead letters can be sent again: when that was done, and the place they keep in their order."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "dead_letters",
        sa.Column("ordering_key", sa.Text(), server_default=sa.text("''"), nullable=False),
    )
    op.add_column(
        "dead_letters", sa.Column("replayed_at", sa.DateTime(timezone=True), nullable=True)
    )


def downgrade() -> None:
    op.drop_column("dead_letters", "replayed_at")
    op.drop_column("dead_letters", "ordering_key")
