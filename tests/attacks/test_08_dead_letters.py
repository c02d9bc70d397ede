"""Somebody reads and replays dead letters, which hold what others sent."""

from __future__ import annotations

import asyncio

import pytest

from core.names import Names
from tests.attacks.intruders import SECRET, WATCHING, Intruder, refused
from tests.e2e.stack import Stack, publish, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def letter(up: Stack) -> str:
    """The id of a dead letter with a secret in it."""
    topic = Names().submit_topic
    sent = asyncio.run(publish(up, topic.rpartition("/")[2], f"no job: {SECRET}".encode()))

    def look() -> str | None:
        known = {row["id"] for row in up.get("/dead-letters", source="submit")["dead_letters"]}
        return sent if sent in known else None

    return wait_for("the dead letter", look)


@pytest.mark.parametrize("who", WATCHING)
def test_letters_are_the_operators(up: Stack, letter: str, intruder: Intruder) -> None:
    """Neither the list nor one of them is shown, and none is sent again."""
    with intruder.calls(up) as line:
        answers = [
            line.get("/api/v1/dead-letters"),
            line.get("/api/v1/dead-letters?source=submit"),
            line.get(f"/api/v1/dead-letters/{letter}"),
            line.post(f"/api/v1/dead-letters/{letter}/replay"),
        ]
    assert [a.text for a in answers if not refused(a, intruder.who)] == []
    assert up.get(f"/dead-letters/{letter}")["replayed_at"] is None
