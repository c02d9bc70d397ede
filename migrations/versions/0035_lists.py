"""VMs that are there, and dead letters of one source, are listed from an index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_dead_letters_source", "dead_letters", ["source", sa.text("at DESC")])
    op.create_index(
        "ix_vms_living_newest",
        "vms",
        [sa.text("requested_at DESC"), sa.text("uid DESC")],
        postgresql_where=sa.text("state <> 'GONE'"),
    )


def downgrade() -> None:
    op.drop_index("ix_vms_living_newest", "vms")
    op.drop_index("ix_dead_letters_source", "dead_letters")
