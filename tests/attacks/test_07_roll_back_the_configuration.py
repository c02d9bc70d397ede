"""Somebody rolls the configuration back, under another's name."""

from __future__ import annotations

import pytest

from tests.attacks.intruders import WATCHING, Intruder, new_key, refused
from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("who", WATCHING)
def test_the_configuration_stays(up: Stack, intruder: Intruder) -> None:
    """It is neither changed nor read, and what the body says about the author does not count."""
    before = up.get("/config")["in_force"]["version"]
    with intruder.calls(up) as line:
        answers = [
            line.post("/api/v1/config/rollback", json={"version": 1, "by": "owner"}),
            line.post("/api/v1/config/check", json={"document": {}}),
            line.get("/api/v1/config"),
            line.get("/api/v1/config/versions"),
            line.get("/api/v1/config/versions/1"),
        ]
    assert [a.text for a in answers if not refused(a, intruder.who)] == []
    assert up.get("/config")["in_force"]["version"] == before


def test_the_author_is_the_caller(up: Stack) -> None:
    """An operator who says to be somebody else is written down under the key's own name."""
    made = new_key(up, "night-shift-2", "*", "operator")
    with Intruder("operator", str(made["key"])).calls(up) as line:
        done = line.post("/api/v1/config/rollback", json={"version": 1, "by": "owner"})
    assert done.status_code == 200, done.text
    if done.json()["changed"]:
        assert up.get("/config")["in_force"]["author"] == "night-shift-2"
    rows = up.get("/audit", principal=f"key:{made['key_id']}")["rows"]
    assert all(row["principal"] == f"key:{made['key_id']}" for row in rows)
