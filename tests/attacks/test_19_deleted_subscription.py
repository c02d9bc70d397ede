"""Somebody with a VM's access to Pub/Sub deletes the subscriptions that the scheduler reads."""

from __future__ import annotations

import os

import google.cloud.pubsub_v1 as pubsub_v1
import pytest

from core.names import Names
from tests.e2e.stack import Stack, project_of, wait_for

pytestmark = pytest.mark.slow


NAMES = Names()


@pytest.mark.parametrize("name", [NAMES.heartbeat_subscription, NAMES.submit_subscription])
def test_deaf_scheduler_says_so_and_hears_again(up: Stack, name: str) -> None:
    """An alert in seconds (the leader looks every 3 s; here the machine may be busy); the
    subscription is made again and jobs run to their end."""
    os.environ["PUBSUB_EMULATOR_HOST"] = up.run["bus"]
    try:
        client = pubsub_v1.SubscriberClient()
    finally:
        del os.environ["PUBSUB_EMULATOR_HOST"]
    path = client.subscription_path(project_of(up), name)
    client.delete_subscription(request={"subscription": path})

    def alert() -> str | None:
        alerts = up.get("/alerts")["alerts"]
        return next((a["message"] for a in alerts if a["subject"] == name), None)

    assert "made again" in wait_for("an alert", alert, 40)
    assert client.get_subscription(request={"subscription": path}).topic
    up.wait(up.submit("true"), "SUCCEEDED")
    client.close()
