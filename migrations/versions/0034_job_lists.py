"""Lists and counts of jobs from indexes: counts kept with each change, labels in a table of their
own, an index for each thing that jobs are listed by."""
# ruff: noqa: S608  # only our own names are put into these texts

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

_KEY = "tenant_id, user_id, cluster, status"
_LISTED = "(rank = 0)::int"
_COUNTED = "(rank = 0 OR blocked IS DISTINCT FROM uid)::int"
_SETS = f"GROUP BY GROUPING SETS (({_KEY}), (cluster, status))"
_SUMS = """coalesce(tenant_id, ''), coalesce(user_id, ''), cluster, status, sum(listed),
    sum(counted)"""
_SOME = "HAVING sum(listed) <> 0 OR sum(counted) <> 0"
_INTO = f"INSERT INTO job_counts ({_KEY}, listed, counted)"
_LABELS = """
    INSERT INTO job_labels (label, submitted_at, uid, tenant_id)
    SELECT DISTINCT md5(l.key || '=' || l.value)::uuid, j.submitted_at, j.uid, j.tenant_id
    FROM {rows} AS j CROSS JOIN LATERAL jsonb_each_text(j.labels) AS l
    WHERE j.labels <> '{{}}'::jsonb AND j.rank = 0
"""


def _counts(rows: str, sign: str = "") -> str:
    return f"SELECT {_KEY}, {sign}{_LISTED} AS listed, {sign}{_COUNTED} AS counted FROM {rows}"


def _write(counts: str) -> str:
    return f"{_INTO} SELECT {_SUMS} FROM ({counts}) AS x {_SETS} {_SOME}"


# By the database itself: no writer can forget it, not even one at a prompt.
_FUNCTIONS = {
    "insert": f"{_write(_counts('new_jobs'))}; {_LABELS.format(rows='new_jobs')};",
    "update": _write(f"{_counts('new_jobs')} UNION ALL {_counts('old_jobs', '-')}") + ";",
    "delete": f"""
    {_write(_counts("old_jobs", "-"))};
    DELETE FROM job_labels AS l
    USING old_jobs AS j CROSS JOIN LATERAL jsonb_each_text(j.labels) AS w
    WHERE l.label = md5(w.key || '=' || w.value)::uuid AND l.submitted_at = j.submitted_at
        AND l.uid = j.uid;
    """,
    "truncate": "TRUNCATE job_counts, job_labels;",
}
_ROWS = {
    "insert": "REFERENCING NEW TABLE AS new_jobs",
    "update": "REFERENCING OLD TABLE AS old_jobs NEW TABLE AS new_jobs",
    "delete": "REFERENCING OLD TABLE AS old_jobs",
    "truncate": "",
}
_NEWEST = [sa.text("submitted_at DESC"), sa.text("uid DESC")]
_LEADS: dict[str, list[str]] = {
    "newest": [],
    "tenant": ["tenant_id"],
    "user": ["user_id"],
    "cluster": ["cluster", "status"],
}


_WAITING = {"ix_jobs_waiting": "status", "ix_jobs_waiting_of": "tenant_id"}


def _index(name: str, *columns: str | sa.TextClause, where: str | None = None) -> None:
    condition = None if where is None else sa.text(where)
    op.create_index(name, "jobs", list(columns), postgresql_where=condition)


def upgrade() -> None:
    # Replicas that still run write jobs: what they wrote is counted by the first fill, what they
    # write next by the triggers. Exclusive at once, as DROP INDEX needs it: a weaker lock first
    # would deadlock with a transaction that has locked rows of jobs and then writes them.
    op.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
    _make_tables()
    _make_triggers()
    for name in ("newest", "tenant", "status", "labels"):
        op.drop_index(f"ix_jobs_{name}", "jobs")
    for name, columns in _LEADS.items():
        _index(f"ix_jobs_{name}", *columns, *_NEWEST, where="rank = 0")
    for name, column in _WAITING.items():
        _index(name, column, "queued_since", where="status IN ('PROVISIONING', 'QUEUED')")


def _make_triggers() -> None:
    """The functions have the rights of their owner: a writer of jobs needs none on the tables of
    counts and labels, and no table of the writer's own can take their place. Nobody else may
    attach them to another table."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    for event, body in _FUNCTIONS.items():
        op.execute(
            f"CREATE FUNCTION zen_jobs_{event}() RETURNS trigger LANGUAGE plpgsql "
            f"SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$ "
            f"BEGIN {body} RETURN NULL; END $$"
        )
        op.execute(f"REVOKE ALL ON FUNCTION zen_jobs_{event}() FROM PUBLIC")
        op.execute(
            f"CREATE TRIGGER jobs_counted_{event} AFTER {event} ON jobs {_ROWS[event]} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION zen_jobs_{event}()"
        )


def _make_tables() -> None:
    op.create_table(
        "job_counts",
        *(sa.Column(name, sa.Text(), nullable=False) for name in _KEY.split(", ")),
        sa.Column("listed", sa.BigInteger(), nullable=False),
        sa.Column("counted", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "job_labels",
        sa.Column("label", sa.UUID(), nullable=False),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("uid", sa.UUID(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("label", "submitted_at", "uid", name=op.f("pk_job_labels")),
    )
    op.execute(_write(_counts("jobs")))
    op.execute(_LABELS.format(rows="jobs"))
    op.create_index("ix_job_counts_key", "job_counts", _KEY.split(", "))
    op.create_index("ix_job_counts_user", "job_counts", ["user_id"])
    for table in ("job_counts", "job_labels"):
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY everyone ON {table} USING (true) WITH CHECK (true)")


def downgrade() -> None:
    for name in _WAITING:
        op.drop_index(name, "jobs")
    for name in _LEADS:
        op.drop_index(f"ix_jobs_{name}", "jobs")
    _index("ix_jobs_newest", *_NEWEST)
    _index("ix_jobs_tenant", "tenant_id", *_NEWEST)
    _index("ix_jobs_status", "status", *_NEWEST)
    op.create_index(
        "ix_jobs_labels",
        "jobs",
        ["labels"],
        postgresql_using="gin",
        postgresql_ops={"labels": "jsonb_path_ops"},
    )
    for event in _FUNCTIONS:
        op.execute(f"DROP TRIGGER jobs_counted_{event} ON jobs")
        op.execute(f"DROP FUNCTION zen_jobs_{event}()")
    op.drop_table("job_labels")
    op.drop_table("job_counts")
