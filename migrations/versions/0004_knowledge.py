"""What regions have delivered and refused."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


_NUMBERS = (
    *("deliveries", "delivery_log_mean", "delivery_log_var"),
    *("boots", "boot_log_mean", "boot_log_var"),
    *("room", "preempted", "vm_hours"),
)


def upgrade() -> None:
    op.add_column(
        "vms",
        sa.Column("refused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
    )
    op.create_table(
        "experience",
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("machine_type", sa.Text(), nullable=False),
        sa.Column("spot", sa.Boolean(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("hits", sa.Double(), nullable=False),
        sa.Column("misses", sa.Double(), nullable=False),
        sa.Column("last", sa.Text(), nullable=True),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=True),
        *(sa.Column(name, sa.Double(), nullable=False) for name in _NUMBERS),
        sa.CheckConstraint("last IN ('hint', 'hit', 'miss')", name=op.f("ck_experience_last")),
        sa.PrimaryKeyConstraint(
            "region", "zone", "machine_type", "spot", name=op.f("pk_experience")
        ),
    )


def downgrade() -> None:
    op.drop_table("experience")
    op.drop_column("vms", "refused")
