"""By when a job was told that it starts at the latest. Jobs from before were told none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("starts_by", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("jobs", "starts_by")
