"""Tables whose rows change often are vacuumed more often: jobs that move, VMs that are heard of,
messages that are confirmed. VMs and attempts leave room for the next version of a row on its page,
so that a heartbeat touches no index."""

from __future__ import annotations

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

_BUSY = {
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "500",
    "autovacuum_analyze_scale_factor": "0.05",
}
_ROOM = {"vms": "70", "attempts": "85", "tenants": "70"}
_TABLES = ("jobs", "vms", "attempts", "outbox", "tenants", "job_counts", "job_waits")


def upgrade() -> None:
    for table in _TABLES:
        room = {"fillfactor": _ROOM[table]} if table in _ROOM else {}
        words = ", ".join(f"{name} = {value}" for name, value in {**_BUSY, **room}.items())
        op.execute(f"ALTER TABLE {table} SET ({words})")


def downgrade() -> None:
    for table in _TABLES:
        op.execute(f"ALTER TABLE {table} RESET ({', '.join(_BUSY)}, fillfactor)")
