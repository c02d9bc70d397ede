"""What waiting jobs met takes a fifth of its room: found by a hash, its words packed."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

_SETTINGS = """autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
    autovacuum_analyze_scale_factor = 0.05"""
# As db/waits.py makes them; a first byte of 0 says that the words are not packed.
_PACK = r"""
INSERT INTO job_waits (uid, key, first_at, last_at, count, words)
SELECT uid, ('x' || left(md5(kind || E'\n' || region || E'\n' || key), 16))::bit(64)::bigint,
    first_at, last_at, count,
    '\x00'::bytea || convert_to(json_build_array(kind, region, reason)::text, 'UTF8')
FROM old_job_waits ON CONFLICT DO NOTHING
"""
# Words that a later release packed cannot be read by SQL.
_UNPACK = """
INSERT INTO job_waits (uid, kind, region, key, reason, first_at, last_at, count)
SELECT uid, w.said ->> 0, w.said ->> 1, key::text, w.said ->> 2, first_at, last_at, count
FROM old_job_waits CROSS JOIN LATERAL (
    SELECT convert_from(substr(words, 2), 'UTF8')::json AS said
) AS w WHERE get_byte(words, 0) = 0
"""


def upgrade() -> None:
    _make(
        sa.Column("key", sa.BigInteger(), nullable=False),
        *_counts(),
        sa.Column("words", sa.LargeBinary(), nullable=False),
        key=("uid", "key"),
    )
    op.execute(f"ALTER TABLE job_waits SET (fillfactor = 85, {_SETTINGS})")
    op.execute(_PACK)
    op.drop_table("old_job_waits")


def downgrade() -> None:
    _make(
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("kind", "region", "key")),
        sa.Column("reason", sa.Text(), nullable=False),
        *_counts(),
        key=("uid", "kind", "region", "key"),
    )
    op.execute(f"ALTER TABLE job_waits SET ({_SETTINGS})")
    op.execute(_UNPACK)
    op.drop_table("old_job_waits")


def _counts() -> tuple[sa.Column[Any], ...]:
    moment = sa.DateTime(timezone=True)
    return (
        sa.Column("first_at", moment, nullable=False),
        sa.Column("last_at", moment, nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
    )


def _make(*columns: sa.Column[Any], key: tuple[str, ...]) -> None:
    """A table in the place of the old one, which is called old_job_waits from now on."""
    op.rename_table("job_waits", "old_job_waits")
    for name in ("pk_job_waits", "ck_job_waits_count", "fk_job_waits_uid"):
        op.execute(f"ALTER TABLE old_job_waits DROP CONSTRAINT {name}")
    op.create_table(
        "job_waits",
        sa.Column("uid", sa.UUID(), nullable=False),
        *columns,
        sa.CheckConstraint("count >= 0", name=op.f("ck_job_waits_count")),
        sa.ForeignKeyConstraint(
            ["uid"], ["jobs.uid"], name=op.f("fk_job_waits_uid"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint(*key, name=op.f("pk_job_waits")),
    )
    op.execute("ALTER TABLE job_waits ENABLE ROW LEVEL SECURITY")
    op.execute("CREATE POLICY everyone ON job_waits USING (true) WITH CHECK (true)")
