"""Somebody with access to the database changes the audit log."""

from __future__ import annotations

import psutil
import psycopg
import pytest

from tests.attacks.intruders import OTHER, new_key
from tests.e2e.stack import Stack, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def rows(up: Stack) -> list[int]:
    """Three rows that the leader has linked."""
    for number in range(3):
        new_key(up, f"witness-{number}", OTHER, "viewer")

    def look() -> list[int] | None:
        found = up.get("/audit", page_size=3)["rows"]
        return [row["seq"] for row in found] if all(row["link"] for row in found) else None

    return wait_for("three linked rows", look)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_log SET principal = 'key:nobody' WHERE seq = %s",
        "UPDATE audit_log SET outcome = 'refused' WHERE seq = %s",
        "UPDATE audit_log SET at = at - interval '1 day' WHERE seq = %s",
        "DELETE FROM audit_log WHERE seq = %s",
    ],
)
def test_the_database_refuses_or_the_check_names_it(
    up: Stack, rows: list[int], statement: str
) -> None:
    """An ordinary session cannot change a row; for a superuser who switches triggers off, the check
    of the chain names the place."""
    assert up.get("/audit/verify")["good"]
    with connected(up) as connection:
        with pytest.raises(psycopg.Error, match="audit"):
            connection.execute(statement.encode(), (rows[1],))
        connection.rollback()
        connection.execute("SET session_replication_role = replica")
        keep = "CREATE TEMP TABLE kept AS SELECT * FROM audit_log WHERE seq = %s"
        connection.execute(keep, (rows[1],))
        connection.execute(statement.encode(), (rows[1],))
        connection.commit()
        try:
            verdict = up.get("/audit/verify")
        finally:
            connection.execute("DELETE FROM audit_log WHERE seq = %s", (rows[1],))
            connection.execute("INSERT INTO audit_log OVERRIDING SYSTEM VALUE TABLE kept")
            connection.commit()
    assert not verdict["good"]
    assert verdict["faults"]
    assert up.get("/audit/verify")["good"]


def connected(up: Stack) -> psycopg.Connection[tuple[object, ...]]:
    """As the owner of the laptop's database, who is its superuser."""
    url = psutil.Process(up.run["processes"]["scheduler"]).environ()["DATABASE_URL"]
    return psycopg.connect(url)
