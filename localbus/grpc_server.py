"""The gRPC door: google.pubsub.v1.Publisher and Subscriber on grpc.aio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from localbus import protos, wire
from localbus.bus import AckResult, BrokerLoop, MessageReceiver, check_stream_deadline
from localbus.delivery import Consumer
from localbus.errors import BusError, InvalidArgument, Unavailable
from localbus.service import (
    CALLS,
    POLICIES,
    PUBLISHER,
    SUBSCRIBER,
    AcksRefused,
    Call,
    Service,
)

_OPTIONS = [
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
    # Clients ping every 30 s; the default would answer "too many pings" and drop them.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
]
_PERMANENT = "PERMANENT_FAILURE_INVALID_ACK_ID"

_Context = grpc.aio.ServicerContext[Any, Any]
Guard = Callable[[str], None]
"""Denied for a peer, as gRPC spells it, who shall not be served."""


async def refuse(context: _Context, error: BusError) -> NoReturn:
    """Ends a call with the status that Google's clients expect."""
    code = grpc.StatusCode[error.status]
    if not isinstance(error, AcksRefused):
        await context.abort(code, str(error))
    if error.partly:
        code = grpc.StatusCode.ABORTED
    info = error_details_pb2.ErrorInfo(
        reason="EXACTLY_ONCE_ACKID_FAILURE",
        domain="pubsub.googleapis.com",
        metadata=dict.fromkeys(error.refused, _PERMANENT),
    )
    detail = any_pb2.Any()
    detail.Pack(info)
    status = status_pb2.Status(code=code.value[0], message=str(error), details=[detail])
    metadata = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(code, str(error), metadata)


class StreamingPull:
    """One open stream: a reader of acks beside a writer of messages."""

    def __init__(self, bus: BrokerLoop, requests: AsyncIterator[Any], context: _Context) -> None:
        self._bus = bus
        self._requests = requests
        self._context = context
        self._verdicts = protos.StreamingPullResponse()

    async def run(self) -> None:
        first = await anext(self._requests, None)
        if first is None:
            return
        consumer = Consumer(
            first.stream_ack_deadline_seconds,
            first.max_outstanding_messages,
            first.max_outstanding_bytes,
        )
        listener = self._bus.open_stream(first.subscription, consumer)
        reader = asyncio.create_task(self._read(first, listener))
        # Whatever ends the stream first is told to the client; the other is not an accident.
        reader.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await self._context.send_initial_metadata(())
            await self._write(listener, reader)
        finally:
            reader.cancel()
            self._bus.close_stream(listener)

    async def _write(self, listener: MessageReceiver, reader: asyncio.Task[None]) -> None:
        subscription = listener.subscription
        while not self._bus.stopping:
            batch = self._bus.next_batch(listener)
            verdicts = self._taken_verdicts()
            if batch or verdicts:
                counted = subscription.spec.dead_letter is not None
                # Serialised protobufs put end to end are one message with the fields of both.
                await self._context.write(
                    wire.received(batch, attempts=counted)
                    + verdicts
                    + wire.properties(subscription.spec)
                )
            elif reader.done():
                reader.result()
                return
            else:
                await listener.news.wait()
        raise Unavailable("the bus is stopping")

    def _taken_verdicts(self) -> bytes:
        taken = bytes(self._verdicts.SerializeToString())
        if taken:
            self._verdicts = protos.StreamingPullResponse()
        return taken

    async def _read(self, first: Any, listener: MessageReceiver) -> None:
        try:
            await self._obey(first, listener)
            async for request in self._requests:
                await self._obey(request, listener)
        finally:
            listener.news.set()

    async def _obey(self, request: Any, listener: MessageReceiver) -> None:
        name = listener.subscription.spec.name
        seconds = request.stream_ack_deadline_seconds
        assert listener.consumer is not None
        if seconds and seconds != listener.consumer.ack_deadline_s:
            check_stream_deadline(seconds)
            listener.consumer.ack_deadline_s = seconds
        if request.ack_ids:
            settled = await self._bus.ack(name, request.ack_ids)
            self._report(settled, self._verdicts.acknowledge_confirmation, listener)
        if len(request.modify_deadline_seconds) != len(request.modify_deadline_ack_ids):
            raise InvalidArgument(
                f"modify_deadline_seconds: got {len(request.modify_deadline_seconds)} for"
                f" {len(request.modify_deadline_ack_ids)} ack ids, expected one each"
            )
        if request.modify_deadline_ack_ids:
            pairs = zip(
                request.modify_deadline_ack_ids, request.modify_deadline_seconds, strict=True
            )
            settled = self._bus.modify(name, list(pairs))
            self._report(settled, self._verdicts.modify_ack_deadline_confirmation, listener)

    def _report(self, settled: AckResult, confirmation: Any, listener: MessageReceiver) -> None:
        if not settled.exactly_once:
            return
        confirmation.ack_ids.extend(settled.done)
        confirmation.invalid_ack_ids.extend(settled.refused)
        listener.news.set()


def _unary(service: Service, call: Call, guard: Guard) -> grpc.RpcMethodHandler[Any, Any]:
    method = getattr(service, call.method)

    async def answer(request: Any, context: _Context) -> Any:
        try:
            guard(context.peer())
            if call.rpc == "Pull":
                return await service.pull(request, context.time_remaining())
            return await method(request)
        except BusError as error:
            await refuse(context, error)

    return grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=call.request.FromString, response_serializer=_serialize
    )


def _serialize(answer: Any) -> bytes:
    return answer if isinstance(answer, bytes) else bytes(answer.SerializeToString())


def _streaming_pull(bus: BrokerLoop, guard: Guard) -> grpc.RpcMethodHandler[Any, Any]:
    async def call(requests: AsyncIterator[Any], context: _Context) -> None:
        try:
            guard(context.peer())
            await StreamingPull(bus, aiter(requests), context).run()
        except BusError as error:
            await refuse(context, error)

    return grpc.stream_stream_rpc_method_handler(
        call,
        request_deserializer=protos.request_of("StreamingPull").FromString,
        response_serializer=_serialize,
    )


def build_server(service: Service, guard: Guard = lambda _: None) -> grpc.aio.Server:
    """The server with both services, not yet bound to a port. `guard` is asked for each call."""
    server = grpc.aio.server(options=_OPTIONS)
    for name in (PUBLISHER, SUBSCRIBER, POLICIES):
        calls = {call.rpc: _unary(service, call, guard) for call in CALLS if call.service == name}
        if name == SUBSCRIBER:
            calls["StreamingPull"] = _streaming_pull(service.bus, guard)
        handlers = grpc.method_handlers_generic_handler(name, calls)
        server.add_generic_rpc_handlers((handlers,))
    return server
