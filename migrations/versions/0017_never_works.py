"""Two more kinds of region block: VMs that come up and never get to work."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_KINDS = (
    *("address_space", "missing", "other", "permission", "quota", "stockout"),
    "unsupported",
)
_NEW = ("unclaimed", "unready")


def upgrade() -> None:
    _allow(*_KINDS, *_NEW)


def downgrade() -> None:
    op.execute("DELETE FROM troubles WHERE kind IN ('unclaimed', 'unready')")
    _allow(*_KINDS)


def _allow(*kinds: str) -> None:
    words = ", ".join(f"'{kind}'" for kind in sorted(kinds))
    op.drop_constraint(op.f("ck_troubles_kind"), "troubles", type_="check")
    op.create_check_constraint(op.f("ck_troubles_kind"), "troubles", f"kind IN ({words})")
