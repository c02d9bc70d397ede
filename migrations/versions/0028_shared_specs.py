"""What the jobs of an array or a gang have in common is stored once. Rows of before keep their
whole document."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "specs",
        sa.Column("spec_id", sa.UUID(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("document", postgresql.JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("spec_id", name=op.f("pk_specs")),
    )
    op.add_column("jobs", sa.Column("spec_id", sa.UUID(), nullable=True))
    op.create_foreign_key(op.f("fk_jobs_spec_id"), "jobs", "specs", ["spec_id"], ["spec_id"])


def downgrade() -> None:
    # Each member gets its whole document again.
    op.execute(
        """
        UPDATE jobs AS j SET spec = s.document || jsonb_build_object(
            'job_id', j.job_id, 'group', j.group_id,
            'environment', s.document -> 'environment' || CASE WHEN j.spec ? 'index'
                THEN jsonb_build_object('ZEN_ARRAY_ID', s.document ->> 'job_id',
                    'ZEN_ARRAY_INDEX', j.spec ->> 'index')
                ELSE '{}'::jsonb END)
        FROM specs AS s WHERE s.spec_id = j.spec_id
        """
    )
    op.drop_constraint(op.f("fk_jobs_spec_id"), "jobs")
    op.drop_column("jobs", "spec_id")
    op.drop_table("specs")
