"""Garbage on the heartbeat topic fills the table of dead letters."""

from __future__ import annotations

import asyncio
import os

import google.cloud.pubsub_v1 as pubsub_v1
import pytest

from core.dead_letter_bounds import BYTES_MAX
from tests.e2e.stack import Stack, project_of, publish, wait_for

pytestmark = pytest.mark.slow

MESSAGES = 150
BYTES = 230_000


def test_flood_is_bounded_and_jobs_run(up: Stack) -> None:
    """34 MB of garbage leave no more than the bound, a dead letter of another source stays, and a
    job runs meanwhile."""
    project = project_of(up)
    names = [f"projects/{project}/topics/{name}" for name in _topics(up, project)]
    heartbeats = next(name for name in names if name.endswith("heartbeats"))
    submit = next(name for name in names if name.endswith("submit"))
    asyncio.run(publish(up, submit.rpartition("/")[2], b"no submission"))
    wait_for("the other dead letter", lambda: up.get("/dead-letters", source="submit")["total"])
    job = up.submit("true")
    last = _publish(up, heartbeats)

    def kept() -> int | None:
        newest = up.get("/dead-letters", source="heartbeats", page_size=1)
        seen = [letter["id"] for letter in newest["dead_letters"]]
        return int(newest["total"]) if seen == [last] else None

    assert 0 < wait_for("the newest of the flood", kept, 60) <= BYTES_MAX // BYTES
    assert up.get("/dead-letters", source="submit")["total"]
    up.wait(job, "SUCCEEDED")


def _topics(up: Stack, project: str) -> list[str]:
    client = _publisher(up)
    found = client.list_topics(request={"project": f"projects/{project}"})
    return [topic.name.rpartition("/")[2] for topic in found]


def _publish(up: Stack, topic: str) -> str:
    """The id of the last message."""
    client = _publisher(up)
    sent = [client.publish(topic, os.urandom(BYTES)).result(timeout=20) for _ in range(MESSAGES)]
    return str(sent[-1])


def _publisher(up: Stack) -> pubsub_v1.PublisherClient:
    os.environ["PUBSUB_EMULATOR_HOST"] = up.run["bus"]
    try:
        return pubsub_v1.PublisherClient()
    finally:
        del os.environ["PUBSUB_EMULATOR_HOST"]
