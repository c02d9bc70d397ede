"""Our Pub/Sub server beside Google's emulator, through Google's own client: one table, ratios.

    python -m bench.bench_bus [--messages 5000]

Client and server share the machine, so read the ratios, not the rates. Google's emulator loses
nothing by not writing to disk; ours is durable before it confirms (fsync on).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google.cloud.pubsub_v1 as pubsub_v1
from rich.console import Console
from rich.table import Table

from tests.localbus import backends

ROUND_TRIPS = 200
DRAIN_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class _BusResult:
    """One server's numbers."""

    ready_s: float
    publish_per_s: float
    drain_per_s: float
    publish_p50_ms: float
    callback_p50_ms: float
    callback_p95_ms: float


@contextlib.contextmanager
def server(name: str, scratch: Path) -> Iterator[tuple[str, float]]:
    """Its address and how long it took to be ready."""
    start = time.perf_counter()
    if name == "localbus":
        with backends.localbus(scratch) as bus:
            yield bus.address, time.perf_counter() - start
    else:
        with backends.google_emulator(scratch) as address:
            yield address, time.perf_counter() - start


def measure(name: str, messages: int) -> _BusResult:
    """Publishes, drains, then sends one message at a time."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        server(name, Path(scratch)) as (address, ready_s),
    ):
        os.environ["PUBSUB_EMULATOR_HOST"] = address
        batch = pubsub_v1.types.BatchSettings(max_messages=1000, max_latency=0.01)
        publisher = pubsub_v1.PublisherClient(batch)
        subscriber = pubsub_v1.SubscriberClient()
        topic = "projects/bench/topics/bulk"
        subscription = "projects/bench/subscriptions/bulk"
        publisher.create_topic(name=topic)
        subscriber.create_subscription(name=subscription, topic=topic)
        publish_per_s = messages / publish_all(publisher, topic, messages)
        drain_per_s = messages / drain(subscriber, subscription, messages)
        one_by_one = round_trips(subscriber)
        publisher.stop()
        subscriber.close()
    return _BusResult(ready_s, publish_per_s, drain_per_s, *one_by_one)


def publish_all(publisher: Any, topic: str, messages: int) -> float:
    start = time.perf_counter()
    futures = [publisher.publish(topic, b"x" * 200, a="1", b="2") for _ in range(messages)]
    for future in futures:
        future.result(60)
    return time.perf_counter() - start


def drain(subscriber: Any, subscription: str, messages: int) -> float:
    seen = 0
    lock = threading.Lock()
    done = threading.Event()

    def callback(message: Any) -> None:
        nonlocal seen
        message.ack()
        with lock:
            seen += 1
            if seen >= messages:
                done.set()

    start = time.perf_counter()
    future = subscriber.subscribe(subscription, callback)
    if not done.wait(DRAIN_TIMEOUT_S):
        raise TimeoutError(f"{seen} of {messages} messages within {DRAIN_TIMEOUT_S} s")
    took = time.perf_counter() - start
    future.cancel()
    future.result(30)
    return took


def round_trips(subscriber: Any) -> tuple[float, float, float]:
    """Milliseconds: publish confirmed p50, publish to callback p50 and p95. On a topic of its
    own, since a stream that was cancelled on Google's emulator goes on taking messages."""
    batch = pubsub_v1.types.BatchSettings(max_messages=1)
    publisher = pubsub_v1.PublisherClient(batch)
    topic = "projects/bench/topics/single"
    subscription = "projects/bench/subscriptions/single"
    publisher.create_topic(name=topic)
    subscriber.create_subscription(name=subscription, topic=topic)
    arrived = threading.Event()

    def callback(message: Any) -> None:
        message.ack()
        arrived.set()

    future = subscriber.subscribe(subscription, callback)
    confirmed: list[float] = []
    delivered: list[float] = []
    for _ in range(ROUND_TRIPS):
        arrived.clear()
        start = time.perf_counter()
        publisher.publish(topic, b"x").result(30)
        confirmed.append(time.perf_counter() - start)
        if not arrived.wait(30):
            raise TimeoutError("a message did not arrive within 30 s")
        delivered.append(time.perf_counter() - start)
    future.cancel()
    future.result(30)
    publisher.stop()
    p95 = statistics.quantiles(delivered, n=20)[-1]
    return (
        statistics.median(confirmed) * 1000,
        statistics.median(delivered) * 1000,
        p95 * 1000,
    )


ROWS = [
    ("ready, s", "ready_s", False),
    ("publish, messages/s", "publish_per_s", True),
    ("drain with ack, messages/s", "drain_per_s", True),
    ("one publish confirmed p50, ms", "publish_p50_ms", False),
    ("publish → callback p50, ms", "callback_p50_ms", False),
    ("publish → callback p95, ms", "callback_p95_ms", False),
]


def table(results: dict[str, _BusResult]) -> Table:
    shown = Table("", *results, *(["ours is better by"] if len(results) > 1 else []))
    for title, field, more_is_better in ROWS:
        values = [float(getattr(result, field)) for result in results.values()]
        cells = [f"{value:,.2f}" if value < 100 else f"{value:,.0f}" for value in values]
        if len(values) > 1:
            ratio = values[0] / values[1] if more_is_better else values[1] / values[0]
            cells.append(f"{ratio:.1f} ×")
        shown.add_row(title, *cells)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5_000)
    messages = parser.parse_args().messages
    console = Console()
    results = {"localbus": measure("localbus", messages)}
    reason = backends.why_no_emulator()
    if reason is None:
        results["google-emulator"] = measure("google-emulator", messages)
    else:
        console.print(f"Google's emulator is left out: {reason}")
    console.print(table(results))


if __name__ == "__main__":
    main()
