"""When a place was last short of spot VMs, and how many of ours it then had room for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    nothing = sa.text("'{}'")
    times = sa.DateTime(timezone=True)
    for name, of in (("short_kept", sa.Integer()), ("short_at", times)):
        op.add_column(
            "experience", sa.Column(name, ARRAY(of), nullable=False, server_default=nothing)
        )


def downgrade() -> None:
    op.drop_column("experience", "short_at")
    op.drop_column("experience", "short_kept")
