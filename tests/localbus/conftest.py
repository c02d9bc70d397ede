"""A Pub/Sub server under contract, and a topic with its subscription on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.localbus import backends
from tests.localbus.contract import Hub, Line, NewLine, connect


@pytest.fixture(scope="session", params=["localbus", "google-emulator"])
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    scratch = tmp_path_factory.mktemp("bus")
    if request.param == "localbus":
        with backends.localbus(scratch) as bus:
            yield from connect(request.param, bus.address)
        return
    reason = backends.why_no_emulator()
    if reason is not None:
        pytest.skip(f"needs pubsub-emulator: {reason}")
    with backends.google_emulator(scratch) as address:
        yield from connect(request.param, address)


@pytest.fixture
def line(hub: Hub) -> Iterator[NewLine]:
    made: list[Line] = []

    def make(**settings: Any) -> Line:
        made.append(Line(hub, **settings))
        return made[-1]

    yield make
    for each in made:
        hub.subscriber.delete_subscription(subscription=each.subscription)
        hub.publisher.delete_topic(topic=each.topic)
