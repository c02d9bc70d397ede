"""The identity of a job is (tenant, user, job id): another tenant cannot take an id. Groups that
jobs wait for are those of one tenant."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("uq_jobs_identity", "jobs", ["job_id", "user_id", "tenant_id"], unique=True)
    op.drop_index("uq_jobs_job_id_user_id", "jobs")
    op.add_column("waits", sa.Column("tenant_id", sa.Text(), nullable=True))
    # A group that the waiting job's own tenant has, if it has one of that name.
    op.execute(
        """
        UPDATE waits AS w SET tenant_id = coalesce(
            (SELECT h.tenant_id FROM jobs AS h WHERE h.uid = w.hold AND EXISTS (
                SELECT FROM jobs AS j WHERE j.tenant_id = h.tenant_id AND j.user_id = w.user_id
                    AND j.group_id = w.group_id)),
            (SELECT min(j.tenant_id) FROM jobs AS j
                WHERE j.user_id = w.user_id AND j.group_id = w.group_id),
            'default')
        WHERE w.group_id IS NOT NULL
        """
    )
    op.drop_constraint(op.f("ck_waits_whose_group"), "waits")
    op.create_check_constraint(
        op.f("ck_waits_whose_group"),
        "waits",
        "num_nonnulls(tenant_id, user_id, group_id) IN (0, 3)",
    )


def downgrade() -> None:
    # Fails where two tenants have the same id by now: the older version cannot tell them apart.
    op.create_index("uq_jobs_job_id_user_id", "jobs", ["job_id", "user_id"], unique=True)
    op.drop_index("uq_jobs_identity", "jobs")
    op.drop_constraint(op.f("ck_waits_whose_group"), "waits")
    op.drop_column("waits", "tenant_id")
    op.create_check_constraint(
        op.f("ck_waits_whose_group"), "waits", "(group_id IS NULL) = (user_id IS NULL)"
    )
