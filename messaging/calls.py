"""The calls that are made for every message, as plain gRPC.

Google's client wraps each request and each answer, and looks up its policies anew for each call:
that costs more than the call. What is asked rarely still goes through it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any
from urllib.parse import quote

import grpc.aio
from google.api_core import exceptions as google_errors
from google.protobuf import empty_pb2
from google.pubsub_v1 import types

from core.messages import OutMessage

_PUBLISHER, _SUBSCRIBER = "/google.pubsub.v1.Publisher/", "/google.pubsub.v1.Subscriber/"
_ROUTE = "x-goog-request-params"
"""Google finds the place of a topic or a subscription by it."""

# The plain protobuf classes: wrapping each message would cost as much as sending it.
_PublishRequest = types.PublishRequest.pb()
_AcknowledgeRequest = types.AcknowledgeRequest.pb()
_ModifyAckDeadlineRequest = types.ModifyAckDeadlineRequest.pb()
_StreamingPullRequest = types.StreamingPullRequest.pb()


class MessageCalls:
    """On one connection. Errors are Google's own, as its client raises them."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._publish = channel.unary_unary(
            f"{_PUBLISHER}Publish",
            request_serializer=_PublishRequest.SerializeToString,
            response_deserializer=types.PublishResponse.pb().FromString,
        )
        self._acknowledge = channel.unary_unary(
            f"{_SUBSCRIBER}Acknowledge",
            request_serializer=_AcknowledgeRequest.SerializeToString,
            response_deserializer=empty_pb2.Empty.FromString,
        )
        self._modify = channel.unary_unary(
            f"{_SUBSCRIBER}ModifyAckDeadline",
            request_serializer=_ModifyAckDeadlineRequest.SerializeToString,
            response_deserializer=empty_pb2.Empty.FromString,
        )
        self._pull = channel.stream_stream(
            f"{_SUBSCRIBER}StreamingPull",
            request_serializer=_StreamingPullRequest.SerializeToString,
            response_deserializer=types.StreamingPullResponse.pb().FromString,
        )

    async def publish(
        self, topic: str, messages: Sequence[OutMessage], timeout_s: float
    ) -> Sequence[str]:
        """The ids of the messages. TypeError or ValueError: what protobuf cannot carry."""
        request = _PublishRequest(topic=topic)
        for message in messages:
            request.messages.add(
                data=message.body,
                attributes=dict(message.attributes),
                ordering_key=message.ordering_key,
            )
        answer = await _answer(self._publish, request, f"topic={quote(topic)}", timeout_s)
        ids: Sequence[str] = answer.message_ids
        return ids

    async def acknowledge(self, path: str, ack_ids: Sequence[str], timeout_s: float) -> None:
        request = _AcknowledgeRequest(subscription=path, ack_ids=ack_ids)
        await _answer(self._acknowledge, request, _subscription(path), timeout_s)

    async def modify_ack_deadline(
        self, path: str, ack_ids: Sequence[str], deadline_s: int, timeout_s: float
    ) -> None:
        request = _ModifyAckDeadlineRequest(
            subscription=path, ack_ids=ack_ids, ack_deadline_seconds=deadline_s
        )
        await _answer(self._modify, request, _subscription(path), timeout_s)

    async def streaming_pull(
        self, path: str, requests: AsyncIterator[Any]
    ) -> AsyncGenerator[Any, None]:
        """Plain responses until the stream ends. Closing this iterator cancels it: else the server
        would go on leasing messages to nobody."""
        stream = self._pull(requests, metadata=((_ROUTE, _subscription(path)),))
        try:
            async for response in stream:
                yield response
        except grpc.aio.AioRpcError as error:
            raise _told(error) from error
        finally:
            stream.cancel()


async def _answer(call: Any, request: Any, route: str, timeout_s: float) -> Any:
    try:
        return await call(request, timeout=timeout_s, metadata=((_ROUTE, route),))
    except grpc.aio.AioRpcError as error:
        raise _told(error) from error


def _told(error: grpc.aio.AioRpcError) -> google_errors.GoogleAPIError:
    told: google_errors.GoogleAPIError = google_errors.from_grpc_error(error)  # type: ignore[no-untyped-call]
    return told


def _subscription(path: str) -> str:
    return f"subscription={quote(path)}"


def first_request(path: str, deadline_s: int, messages_max: int) -> Any:
    """Opens a stream."""
    return _StreamingPullRequest(
        subscription=path,
        stream_ack_deadline_seconds=deadline_s,
        max_outstanding_messages=messages_max,
    )


def life_sign() -> Any:
    """Says on an open stream that we live."""
    return _StreamingPullRequest()
