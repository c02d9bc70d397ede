"""What every VM-second was spent on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_KINDS = "kind IN ('boot', 'hedge', 'idle', 'lost', 'preempted', 'useful')"
_AMOUNTS = "vm_seconds >= 0 AND gpu_seconds >= 0 AND usd >= 0"
# VMs that were pruned before this migration are never settled: what their attempts cost would be
# forgotten with them.
_KEEP_OLD_COSTS = """
UPDATE jobs AS j SET past_cost_usd = j.past_cost_usd + c.usd FROM (
    SELECT a.uid, sum(extract(epoch FROM a.ended_at - a.assigned_at) / 3600 * a.usd_per_hour) AS usd
    FROM attempts AS a
    WHERE a.ended_at IS NOT NULL AND NOT EXISTS (SELECT FROM vms AS v WHERE v.uid = a.vm_uid)
    GROUP BY a.uid
) AS c WHERE j.uid = c.uid
"""


def upgrade() -> None:
    op.add_column("attempts", sa.Column("checkpoint_at", sa.DateTime(timezone=True)))
    op.create_index("ix_attempts_vm_uid", "attempts", ["vm_uid", "assigned_at"])
    op.add_column("vms", sa.Column("stopped_at", sa.DateTime(timezone=True)))
    op.add_column("vms", sa.Column("settled_until", sa.DateTime(timezone=True)))
    op.add_column(
        "vms",
        sa.Column("settled", sa.Boolean(), server_default=sa.text("false"), nullable=False),
    )
    op.create_index("ix_vms_unsettled", "vms", ["uid"], postgresql_where=sa.text("NOT settled"))
    op.create_table(
        "cost_daily",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("spot", sa.Boolean(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        *_amounts("cost_daily"),
        sa.PrimaryKeyConstraint(
            *("day", "tenant_id", "user_id", "cluster", "region", "spot", "kind"),
            name=op.f("pk_cost_daily"),
        ),
    )
    op.create_table(
        "job_costs",
        sa.Column("uid", sa.UUID(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        *_amounts("job_costs"),
        sa.ForeignKeyConstraint(
            ["uid"], ["jobs.uid"], name=op.f("fk_job_costs_uid"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("uid", "day", "kind", name=op.f("pk_job_costs")),
    )
    op.create_index("ix_job_costs_day", "job_costs", ["day"])
    op.execute(_KEEP_OLD_COSTS)


def downgrade() -> None:
    op.drop_table("job_costs")
    op.drop_table("cost_daily")
    op.drop_index("ix_vms_unsettled", table_name="vms")
    op.drop_column("vms", "settled")
    op.drop_column("vms", "settled_until")
    op.drop_column("vms", "stopped_at")
    op.drop_index("ix_attempts_vm_uid", table_name="attempts")
    op.drop_column("attempts", "checkpoint_at")


def _amounts(table: str) -> list[sa.schema.SchemaItem]:
    return [
        sa.Column("vm_seconds", sa.Double(), nullable=False),
        sa.Column("gpu_seconds", sa.Double(), nullable=False),
        sa.Column("usd", sa.Double(), nullable=False),
        sa.CheckConstraint(_KINDS, name=op.f(f"ck_{table}_kind")),
        sa.CheckConstraint(_AMOUNTS, name=op.f(f"ck_{table}_amounts")),
    ]
