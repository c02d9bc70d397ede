"""Somebody who may publish on the submit topic submits as another tenant."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.e2e.stack import Stack, publish, wait_for

pytestmark = pytest.mark.slow
TOPIC = "pipeline-zen-jobs-submit"


def test_a_message_is_its_topics_tenants_or_nobodys(up: Stack) -> None:
    """A body that names another tenant becomes a dead letter with the reason; no job is made, and a
    made-up key helps no further."""
    key = f"zen_{'a' * 12}_{'0' * 64}"
    for number, attributes in enumerate(({}, {"zen-key": key}, {"authorization": "Bearer x"})):
        job = {"job_id": f"forged-{number}", "tenant_id": "bank", "command": ["touch", "/tmp/own"]}
        asyncio.run(publish(up, TOPIC, json.dumps(job).encode(), **attributes))
    wait_for("three dead letters", lambda: len(letters(up)) == 3)
    assert sorted(letter["reason"].partition(":")[0] for letter in letters(up)) == [
        "tenant_id",
        "the credentials are no API key",
        "the key is wrong",
    ]
    assert up.get("/jobs", tenant_id="bank")["jobs"] == []
    for letter in letters(up):
        assert key not in json.dumps(up.get(f"/dead-letters/{letter['id']}"))


def letters(up: Stack) -> list[dict[str, str]]:
    found = up.get("/dead-letters", source="submit")["dead_letters"]
    return [letter for letter in found if "forged-" in letter["preview"]]
