"""The connection to Pub/Sub, and Google's errors in our words."""

from __future__ import annotations

import google.auth
import grpc.aio
from google.api_core import exceptions as google_errors
from google.auth import exceptions as auth_errors
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport

from core.errors import BusDown, Forbidden, ZenError
from messaging.errors import BusRefused, ContentRefused

GOOGLE_HOST = "pubsub.googleapis.com:443"
SCOPES = ("https://www.googleapis.com/auth/pubsub",)

_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 16 << 20),
    # gRPC's own back-off grows to two minutes; a bus that is back must be found in seconds.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 3000),
    # In spite of its name: how long one attempt to connect may take, handshake included.
    ("grpc.min_reconnect_backoff_ms", 5000),
    # Each bus has a connection of its own: closing one never disturbs another.
    ("grpc.use_local_subchannel_pool", 1),
]
# A silent network between us and Google is noticed within 40 s. Not on loopback: there a
# dead peer is noticed at once, and a small server takes frequent pings for an attack.
_KEEPALIVE: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


def open_channel(emulator_host: str | None) -> grpc.aio.Channel:
    """A plain channel to a local server, or an authenticated one to Google."""
    if emulator_host:
        return grpc.aio.insecure_channel(emulator_host, options=_OPTIONS)
    try:
        credentials, _ = google.auth.default(scopes=SCOPES)
    except auth_errors.GoogleAuthError as error:
        raise BusRefused(
            f"Pub/Sub: no Google credentials ({error}); run `gcloud auth application-default "
            "login`, or name a local bus as the emulator host"
        ) from error
    return PublisherGrpcAsyncIOTransport.create_channel(
        GOOGLE_HOST, credentials=credentials, options=[*_OPTIONS, *_KEEPALIVE]
    )


def explain(error: Exception, what: str) -> ZenError:
    """Google's error as the next move: wait (BusDown), or tell a human."""
    detail = getattr(error, "message", None) or str(error)
    match error:
        case google_errors.NotFound():
            return BusRefused(f"{what} does not exist: run `zen infra apply --pubsub` ({detail})")
        case google_errors.PermissionDenied() | google_errors.Unauthenticated():
            return Forbidden(f"{what}: Pub/Sub refuses our credentials ({detail})")
        case google_errors.ResourceExhausted():
            return BusDown(f"{what}: Pub/Sub quota is used up ({detail})")
        case google_errors.InvalidArgument():
            return ContentRefused(f"{what}: Pub/Sub refuses what was sent ({detail})")
        # FailedPrecondition and OutOfRange are kinds of BadRequest.
        case google_errors.BadRequest() | google_errors.AlreadyExists():
            return BusRefused(f"{what}: Pub/Sub refuses the request ({detail})")
        case google_errors.MethodNotImplemented():
            return BusRefused(f"{what}: this Pub/Sub server cannot do that ({detail})")
        case _:
            return BusDown(f"{what}: Pub/Sub does not answer ({detail})")
