"""The bus over Google Pub/Sub, asyncio only: publish with confirmation, streaming pull.

Built on the raw asyncio clients: the hand-written ones start threads, and an agent would pay
for them on every VM. Batching, lease extension and reconnecting are therefore ours.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from weakref import WeakSet

import grpc.aio
from google.api_core import exceptions as google_errors
from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber import SubscriberAsyncClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from core.errors import BusDown
from core.messages import OutMessage
from messaging.calls import MessageCalls
from messaging.channel import explain, open_channel
from messaging.errors import ContentRefused
from messaging.inbound import StreamingInbound

PUBLISH_MESSAGES_MAX = 1000
PUBLISH_BYTES_MAX = 9_000_000
"""Google takes 10 MB for a request; the margin is for what we do not count exactly."""
_MESSAGE_OVERHEAD_BYTES = 64
_REQUESTS_AT_ONCE = 8

CALL_TIMEOUT_S = 10.0
ACK_DEADLINE_S = 60


class PubSubBus:
    """`core.ports.Bus` over one connection. Close it; use it from one event loop."""

    def __init__(self, project: str, *, emulator_host: str | None) -> None:
        self.project = project
        self._emulator_host = emulator_host
        self._channel: grpc.aio.Channel | None = None
        self._publisher: PublisherAsyncClient | None = None
        self._subscriber: SubscriberAsyncClient | None = None
        self._message_calls: MessageCalls | None = None
        self._inbounds: WeakSet[StreamingInbound] = WeakSet()
        self._closed = False
        # One at a time where order counts: two requests in flight may overtake each other.
        self._ordered: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._requests = asyncio.Semaphore(_REQUESTS_AT_ONCE)

    async def __aenter__(self) -> PubSubBus:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def publisher(self) -> PublisherAsyncClient:
        """Google's own client, on the shared connection."""
        if self._publisher is None:
            transport = PublisherGrpcAsyncIOTransport(channel=self._connection())
            self._publisher = PublisherAsyncClient(transport=transport)
        return self._publisher

    @property
    def subscriber(self) -> SubscriberAsyncClient:
        """Google's own client, on the shared connection."""
        if self._subscriber is None:
            transport = SubscriberGrpcAsyncIOTransport(channel=self._connection())
            self._subscriber = SubscriberAsyncClient(transport=transport)
        return self._subscriber

    def topic_path(self, topic: str) -> str:
        return f"projects/{self.project}/topics/{topic}"

    def subscription_path(self, subscription: str) -> str:
        return f"projects/{self.project}/subscriptions/{subscription}"

    async def publish(self, messages: Sequence[OutMessage], timeout_s: float) -> Sequence[str]:
        """All confirmed, in the order given, or BusDown; then some may have been sent."""
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for place, message in enumerate(messages):
            by_topic[message.topic].append(place)
        ids: dict[int, str] = {}
        try:
            async with asyncio.timeout(timeout_s):
                outcomes = await asyncio.gather(
                    *(
                        self._publish_topic(topic, messages, places, ids, timeout_s)
                        for topic, places in by_topic.items()
                    ),
                    return_exceptions=True,
                )
        except TimeoutError:
            raise BusDown(
                f"publish: Pub/Sub did not confirm {len(messages) - len(ids)} of {len(messages)} "
                f"messages within {timeout_s:g} s"
            ) from None
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return [ids[place] for place in range(len(messages))]

    def subscribe(self, subscription: str, *, max_messages: int = 1000) -> StreamingInbound:
        """An open subscription with at most `max_messages` unacknowledged at a time."""
        inbound = StreamingInbound(
            self._calls(), self.subscription_path(subscription), max_messages
        )
        self._inbounds.add(inbound)
        return inbound

    async def close(self) -> None:
        """Close every subscription, then the connection."""
        await asyncio.gather(*(inbound.close() for inbound in list(self._inbounds)))
        self._closed = True
        channel, self._channel = self._channel, None
        self._publisher = self._subscriber = self._message_calls = None
        if channel is not None:
            await channel.close()

    def _calls(self) -> MessageCalls:
        if self._message_calls is None:
            self._message_calls = MessageCalls(self._connection())
        return self._message_calls

    def _connection(self) -> grpc.aio.Channel:
        if self._closed:
            raise BusDown("this side of the bus has been closed")
        if self._channel is None:
            self._channel = open_channel(self._emulator_host)
        return self._channel

    async def _publish_topic(
        self,
        topic: str,
        messages: Sequence[OutMessage],
        places: list[int],
        ids: dict[int, str],
        timeout_s: float,
    ) -> None:
        ordered = any(messages[place].ordering_key for place in places)
        turn: AbstractAsyncContextManager[object] = (
            self._ordered[topic] if ordered else nullcontext()
        )
        async with turn:
            for chunk in _chunks(messages, places):
                try:
                    async with self._requests:
                        answer = await self._calls().publish(
                            self.topic_path(topic), [messages[place] for place in chunk], timeout_s
                        )
                except google_errors.GoogleAPIError as error:
                    raise explain(error, f"topic {topic}") from error
                except (TypeError, ValueError) as error:  # no text that protobuf could carry
                    raise ContentRefused(f"topic {topic}: cannot be encoded ({error})") from error
                ids.update(zip(chunk, answer, strict=True))


async def delete_subscription(
    bus: PubSubBus, subscription: str, *, timeout_s: float = CALL_TIMEOUT_S
) -> bool:
    """True if it was there."""
    path = bus.subscription_path(subscription)
    try:
        await bus.subscriber.delete_subscription(subscription=path, retry=None, timeout=timeout_s)
    except google_errors.NotFound:
        return False
    except google_errors.GoogleAPIError as error:
        raise explain(error, f"subscription {subscription}") from error
    return True


def _chunks(messages: Sequence[OutMessage], places: Sequence[int]) -> Iterator[list[int]]:
    """The places in order, cut so that each chunk is one request Google accepts."""
    chunk: list[int] = []
    size = 0
    for place in places:
        cost = _size(messages[place])
        if chunk and (len(chunk) == PUBLISH_MESSAGES_MAX or size + cost > PUBLISH_BYTES_MAX):
            yield chunk
            chunk, size = [], 0
        chunk.append(place)
        size += cost
    if chunk:
        yield chunk


def _size(message: OutMessage) -> int:
    words = sum(len(k) + len(v) for k, v in message.attributes.items())
    # Four bytes is the longest UTF-8 character: counting it so is never too little.
    return len(message.body) + 4 * (words + len(message.ordering_key)) + _MESSAGE_OVERHEAD_BYTES
