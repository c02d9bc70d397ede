"""Groups of jobs, jobs that wait for others, and gangs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_QUEUES: dict[str, Sequence[object]] = {
    "ix_jobs_queue": ["cluster", sa.text("priority DESC"), "queued_since", "uid"],
    "ix_jobs_fair": ["cluster", "tier", "tenant_id", "due_at", "uid"],
    "ix_jobs_fifo": ["cluster", "queued_since", "uid"],
}
_GANG = "rank >= 0 AND rank < gang_size AND holds >= 0 AND (gang IS NULL) = (gang_size = 1)"
_NEWEST = [sa.text("submitted_at DESC"), sa.text("uid DESC")]


def upgrade() -> None:
    op.add_column("jobs", sa.Column("group_id", sa.Text()))
    op.add_column("jobs", sa.Column("blocked", sa.UUID()))
    op.add_column("jobs", sa.Column("gang", sa.UUID()))
    for name, default in (("rank", "0"), ("gang_size", "1"), ("holds", "0")):
        op.add_column("jobs", _required(name, sa.Integer(), default))
    for table, name in (("jobs", "gang_region"), ("vms", "address")):
        op.add_column(table, _required(name, sa.Text(), "''"))
    op.create_check_constraint(op.f("ck_jobs_gang"), "jobs", _GANG)
    _stop_reasons("'gang', 'max_runtime', 'user'")
    _index("ix_jobs_gang", "jobs", ["gang", "rank"], "gang IS NOT NULL")
    op.create_check_constraint(
        op.f("ck_jobs_blocked"), "jobs", "blocked IS NULL OR status = 'QUEUED'"
    )
    _queues("status = 'QUEUED' AND blocked IS NULL")
    _index("ix_jobs_blocked", "jobs", ["blocked", "uid"], "blocked IS NOT NULL")
    grouped = "group_id IS NOT NULL"
    _index("ix_jobs_group", "jobs", ["group_id", "user_id", *_NEWEST], grouped)
    open_ones = f"{grouped} AND ended_at IS NULL"
    _index("ix_jobs_group_open", "jobs", ["group_id", "user_id", "uid"], open_ones)
    op.create_table(
        "waits",
        sa.Column("hold", sa.UUID(), nullable=False),
        sa.Column("needs", sa.Text(), nullable=False),
        sa.Column("job", sa.UUID()),
        sa.Column("user_id", sa.Text()),
        sa.Column("group_id", sa.Text()),
        sa.Column("good_only", sa.Boolean(), nullable=False),
        sa.Column("over", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("bad", sa.Text()),
        sa.Column("ready", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.CheckConstraint("num_nonnulls(job, group_id) = 1", name=op.f("ck_waits_one_thing")),
        sa.CheckConstraint(
            "(group_id IS NULL) = (user_id IS NULL)", name=op.f("ck_waits_whose_group")
        ),
        sa.CheckConstraint(
            "bad IN ('CANCELLED', 'FAILED', 'SUCCEEDED')", name=op.f("ck_waits_bad")
        ),
        sa.PrimaryKeyConstraint("hold", "needs", name=op.f("pk_waits")),
    )
    _index("ix_waits_job", "waits", ["job"], "job IS NOT NULL")
    _index("ix_waits_group", "waits", ["group_id", "user_id"], grouped)
    _index("ix_waits_ready", "waits", ["hold"], "ready")


def downgrade() -> None:
    op.drop_table("waits")
    for name in ("ix_jobs_group_open", "ix_jobs_group", "ix_jobs_blocked", "ix_jobs_gang"):
        op.drop_index(name, table_name="jobs")
    _queues("status = 'QUEUED'")
    op.execute("UPDATE jobs SET stop_reason = 'max_runtime' WHERE stop_reason = 'gang'")
    _stop_reasons("'max_runtime', 'user'")
    op.drop_constraint(op.f("ck_jobs_gang"), "jobs")
    op.drop_column("vms", "address")
    for name in ("gang_region", "holds", "gang_size", "rank", "gang"):
        op.drop_column("jobs", name)
    op.drop_constraint(op.f("ck_jobs_blocked"), "jobs")
    op.drop_column("jobs", "blocked")
    op.drop_column("jobs", "group_id")


def _required(name: str, kind: sa.Integer | sa.Text, default: str) -> sa.Column[Any]:
    return sa.Column(name, kind, server_default=sa.text(default), nullable=False)


def _stop_reasons(words: str) -> None:
    op.drop_constraint(op.f("ck_jobs_stop_reason"), "jobs")
    op.create_check_constraint(op.f("ck_jobs_stop_reason"), "jobs", f"stop_reason IN ({words})")


def _queues(where: str) -> None:
    for name, columns in _QUEUES.items():
        op.drop_index(name, table_name="jobs")
        _index(name, "jobs", columns, where)


def _index(name: str, table: str, columns: Sequence[object], where: str) -> None:
    op.create_index(name, table, columns, postgresql_where=sa.text(where))  # type: ignore[arg-type]
