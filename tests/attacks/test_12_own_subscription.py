"""A job that subscribes to the topics between scheduler and VMs, and publishes there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
import pytest
import yaml

from tests.e2e.stack import Stack

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: else jobs run as you"),
]
TOPICS = ("control", "heartbeats", "submit")
# Prints the status code of each call.
TRY = """
import json, os, urllib.error, urllib.request
def call(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["BUS"] + path, data, headers, method=method)
    try:
        return urllib.request.urlopen(request, timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code
home = "projects/" + os.environ["PROJECT"]
said = [call("GET", f"/v1/{home}/subscriptions"), call("GET", f"/v1/{home}/topics")]
for name in os.environ["TOPICS"].split():
    topic = f"{home}/topics/{name}"
    said.append(call("PUT", f"/v1/{home}/subscriptions/own-{name}", {"topic": topic}))
    said.append(call("POST", f"/v1/{topic}:publish", {"messages": [{"data": "eA=="}]}))
print(json.dumps(said))
"""


def test_a_job_is_refused_by_the_bus(up: Stack) -> None:
    """It sees no subscription, makes none, and publishes nothing."""
    project = yaml.safe_load(Path(up.run["config"]).read_text())["project"]
    bus, home = up.run["bus_rest"], f"/v1/projects/{project}"
    listed = httpx.get(f"{bus}{home}/topics", timeout=10).json()["topics"]
    names = [topic["name"].rpartition("/")[2] for topic in listed]
    topics = [name for name in names if name.endswith(TOPICS)]
    assert len(topics) == len(TOPICS)
    facts = {"BUS": bus, "PROJECT": project, "TOPICS": " ".join(topics)}
    job_id = up.submit("python3", "-c", TRY, gpu_type="l4", environment=facts)
    ended = up.wait(job_id, seconds=120)
    log = up.log(job_id)
    assert ended["status"] == "SUCCEEDED", log
    assert set(json.loads(log)) == {403}, log
    names = [
        s["name"]
        for s in httpx.get(f"{bus}{home}/subscriptions", timeout=10).json()["subscriptions"]
    ]
    assert not [name for name in names if "/own-" in name]
