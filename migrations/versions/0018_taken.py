"""One more thing that was last seen of a place: it took VMs back."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_OUTCOMES = ("hint", "hit", "miss")


def upgrade() -> None:
    _allow(*_OUTCOMES, "taken")


def downgrade() -> None:
    op.execute("UPDATE experience SET last = 'miss' WHERE last = 'taken'")
    _allow(*_OUTCOMES)


def _allow(*outcomes: str) -> None:
    words = ", ".join(f"'{outcome}'" for outcome in outcomes)
    op.drop_constraint(op.f("ck_experience_last"), "experience", type_="check")
    op.create_check_constraint(op.f("ck_experience_last"), "experience", f"last IN ({words})")
