"""For which term the leader has a session that shows that it lives."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("leader", sa.Column("session_term", sa.BigInteger, nullable=True))


def downgrade() -> None:
    op.drop_column("leader", "session_term")
