"""v1 workers: the start message that is out for a job, and how long a VM may outlive its job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("offer", postgresql.JSONB(astext_type=sa.Text())))
    op.add_column("vms", sa.Column("kept_until", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("vms", "kept_until")
    op.drop_column("jobs", "offer")
