"""What lists of jobs and their totals are read from. Written by triggers of `jobs`: no writer can
forget it."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import UUID

from db.tables.columns import index, metadata, text_column

# Differences: the sum of a key's rows is how many there are. The tenant '' has the sums over all.
job_counts = sa.Table(
    "job_counts",
    metadata,
    *(text_column(name) for name in ("tenant_id", "user_id", "cluster", "status")),
    # Of a gang the first member is listed.
    sa.Column("listed", sa.BigInteger, nullable=False),
    # Without spare members of elastic jobs: nobody waits for them.
    sa.Column("counted", sa.BigInteger, nullable=False),
    index("ix_job_counts_key", "tenant_id, user_id, cluster, status"),
    index("ix_job_counts_user", "user_id"),
)

# A label as the MD5 of "key=value": values may be longer than an index takes.
job_labels = sa.Table(
    "job_labels",
    metadata,
    sa.Column("label", UUID, primary_key=True),
    sa.Column("submitted_at", sa.DateTime(timezone=True), primary_key=True),
    sa.Column("uid", UUID, primary_key=True),
    text_column("tenant_id"),
)
