"""Google's protobuf messages from and to the values of the bus."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from google.iam.v1 import policy_pb2  # type: ignore[import-untyped]
from google.protobuf import duration_pb2, field_mask_pb2

from localbus import protos
from localbus.delivery import AckDeadline
from localbus.errors import InvalidArgument, invalid
from localbus.model import (
    DAY_S,
    Backoff,
    DeadLetterPolicy,
    IncomingMessage,
    SubscriptionSpec,
    TopicSpec,
)

T = TypeVar("T")

PAGE_DEFAULT = 100
PAGE_MAX = 1_000
_BACKOFF_DEFAULT_S = (10.0, 600.0)
_ATTEMPTS_DEFAULT = 5
_NANOS = 1_000_000_000


class MessageCodec:
    """Messages as serialised PubsubMessage: one form for the disk and for every answer."""

    def seal(self, raw: Any, message_id: int, published: float) -> bytes:
        raw.message_id = str(message_id)
        _set_nanos(raw.publish_time, published)
        return bytes(raw.SerializeToString())

    def reseal(
        self, body: bytes, extra: dict[str, str], message_id: int, published: float
    ) -> bytes:
        raw = protos.PubsubMessage.FromString(body)
        raw.attributes.update(extra)
        return self.seal(raw, message_id, published)

    def open(self, body: bytes) -> tuple[dict[str, str], str]:
        raw = protos.PubsubMessage.FromString(body)
        return dict(raw.attributes), raw.ordering_key


def incoming_messages(messages: Iterable[Any]) -> list[IncomingMessage]:
    """The messages of a PublishRequest."""
    return [IncomingMessage(dict(m.attributes), m.ordering_key, len(m.data), m) for m in messages]


# -- hot path: answers are put together from stored bytes, no message is parsed to be sent


def received(leases: Sequence[AckDeadline], *, attempts: bool) -> bytes:
    """`received_messages` of PullResponse and StreamingPullResponse (field 1 in both)."""
    parts: list[bytes] = []
    for lease in leases:
        ack_id = lease.ack_id.encode()
        body = lease.delivery.message.body
        inner = [b"\x0a", _varint(len(ack_id)), ack_id, b"\x12", _varint(len(body)), body]
        if attempts:
            inner += [b"\x18", _varint(lease.delivery.attempts)]
        parts += [b"\x0a", _varint(sum(map(len, inner))), *inner]
    return b"".join(parts)


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _ONE_BYTE[number]
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_ONE_BYTE = [bytes([number]) for number in range(0x80)]


def properties(spec: SubscriptionSpec) -> bytes:
    """`subscription_properties`; clients read them in every answer of a stream."""
    answer = protos.StreamingPullResponse()
    answer.subscription_properties.exactly_once_delivery_enabled = spec.exactly_once
    answer.subscription_properties.message_ordering_enabled = spec.ordered
    return bytes(answer.SerializeToString())


# -- policies


def policy_pb(stored: str) -> Any:
    """The policy with its etag; an empty one if none was ever set."""
    raw = base64.b64decode(stored)
    policy = policy_pb2.Policy.FromString(raw)
    policy.etag = hashlib.sha256(raw).digest()[:8]
    return policy


def stored_policy(policy: Any) -> str:
    """As it is kept: without the etag, which follows from it."""
    kept = policy_pb2.Policy()
    kept.CopyFrom(policy)
    kept.ClearField("etag")
    return base64.b64encode(kept.SerializeToString(deterministic=True)).decode()


# -- topics


def topic_spec(topic: Any) -> TopicSpec:
    """What is asked for; what we do not do is refused, not ignored."""
    for field in ("kms_key_name", "schema_settings", "ingestion_data_source_settings"):
        _refuse_set(topic, field)
    _refuse_set(topic, "message_transforms")
    retention_s = None
    if topic.HasField("message_retention_duration"):
        retention_s = _seconds(topic.message_retention_duration)
    return TopicSpec(topic.name, dict(topic.labels), retention_s)


def topic_pb(spec: TopicSpec) -> Any:
    topic = protos.Topic(name=spec.name, labels=dict(spec.labels))
    if spec.retention_s is not None:
        _set_nanos(topic.message_retention_duration, spec.retention_s)
    topic.state = protos.Topic.ACTIVE
    return topic


# -- subscriptions


def subscription_spec(sub: Any) -> SubscriptionSpec:
    """What is asked for, with Google's defaults; what we do not do is refused."""
    if sub.push_config.push_endpoint:
        raise invalid(
            "push_config.push_endpoint", sub.push_config.push_endpoint, "none: pull only here"
        )
    for field in ("bigquery_config", "cloud_storage_config", "bigtable_config"):
        _refuse_set(sub, field)
    _refuse_set(sub, "message_transforms")
    return SubscriptionSpec(
        name=sub.name,
        topic=sub.topic,
        ack_deadline_s=sub.ack_deadline_seconds or 10,
        filter=sub.filter,
        ordered=sub.enable_message_ordering,
        exactly_once=sub.enable_exactly_once_delivery,
        dead_letter=_dead_letter(sub),
        backoff=_backoff(sub),
        retention_s=(
            _seconds(sub.message_retention_duration)
            if sub.HasField("message_retention_duration")
            else 7 * DAY_S
        ),
        retain_acked=sub.retain_acked_messages,
        ttl_s=_ttl(sub),
        labels=dict(sub.labels),
    )


def _dead_letter(sub: Any) -> DeadLetterPolicy | None:
    if not sub.HasField("dead_letter_policy") or not sub.dead_letter_policy.dead_letter_topic:
        return None
    policy = sub.dead_letter_policy
    return DeadLetterPolicy(
        policy.dead_letter_topic, policy.max_delivery_attempts or _ATTEMPTS_DEFAULT
    )


def _backoff(sub: Any) -> Backoff | None:
    if not sub.HasField("retry_policy"):
        return None
    policy = sub.retry_policy
    low, high = _BACKOFF_DEFAULT_S
    if policy.HasField("minimum_backoff"):
        low = _seconds(policy.minimum_backoff)
    if policy.HasField("maximum_backoff"):
        high = _seconds(policy.maximum_backoff)
    return Backoff(low, high)


def _ttl(sub: Any) -> float | None:
    if not sub.HasField("expiration_policy"):
        return 31 * DAY_S
    if not sub.expiration_policy.HasField("ttl"):
        return None
    return _seconds(sub.expiration_policy.ttl)


def subscription_pb(spec: SubscriptionSpec) -> Any:
    sub = protos.Subscription(
        name=spec.name,
        topic=spec.topic,
        ack_deadline_seconds=spec.ack_deadline_s,
        filter=spec.filter,
        enable_message_ordering=spec.ordered,
        enable_exactly_once_delivery=spec.exactly_once,
        retain_acked_messages=spec.retain_acked,
        labels=dict(spec.labels),
        state=protos.Subscription.ACTIVE,
    )
    sub.detached = spec.detached
    sub.push_config.SetInParent()
    _set_nanos(sub.message_retention_duration, spec.retention_s)
    sub.expiration_policy.SetInParent()
    if spec.ttl_s is not None:
        _set_nanos(sub.expiration_policy.ttl, spec.ttl_s)
    if spec.dead_letter is not None:
        sub.dead_letter_policy.dead_letter_topic = spec.dead_letter.topic
        sub.dead_letter_policy.max_delivery_attempts = spec.dead_letter.max_attempts
    if spec.backoff is not None:
        _set_nanos(sub.retry_policy.minimum_backoff, spec.backoff.min_s)
        _set_nanos(sub.retry_policy.maximum_backoff, spec.backoff.max_s)
    return sub


def merged(current: Any, changed: Any, mask: field_mask_pb2.FieldMask, fixed: Sequence[str]) -> Any:
    """The current message with the masked fields of the request."""
    if not mask.paths:
        raise InvalidArgument("update_mask: got no paths, expected the fields to change")
    for path in mask.paths:
        field = path.split(".")[0]
        if field not in current.DESCRIPTOR.fields_by_name:
            raise invalid("update_mask", path, f"fields of {current.DESCRIPTOR.name}")
        if field in fixed:
            raise InvalidArgument(f"{field}: it cannot be changed after creation")
    mask.MergeMessage(changed, current, replace_message_field=True, replace_repeated_field=True)
    return current


# -- pages


def page(items: Sequence[T], request: Any, name: Callable[[T], str]) -> tuple[list[T], str]:
    """One page of items sorted by name, and the token of the next; a token is the last name."""
    if request.page_size < 0:
        raise invalid("page_size", request.page_size, f"0 to {PAGE_MAX}")
    size = min(request.page_size or PAGE_DEFAULT, PAGE_MAX)
    after = _read_token(request.page_token)
    rest = [item for item in items if name(item) > after]
    token = _make_token(name(rest[size - 1])) if len(rest) > size else ""
    return rest[:size], token


def _make_token(last: str) -> str:
    return base64.urlsafe_b64encode(b"after:" + last.encode()).decode()


def _read_token(token: str) -> str:
    if not token:
        return ""
    try:
        text = base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not text.startswith("after:"):
        raise invalid("page_token", token, "the next_page_token of an earlier answer")
    return text.removeprefix("after:")


def _seconds(duration: duration_pb2.Duration) -> float:
    return duration.seconds + duration.nanos / _NANOS


def _set_nanos(stamp: Any, seconds: float) -> None:
    whole = int(seconds)
    stamp.seconds = whole
    stamp.nanos = int((seconds - whole) * _NANOS)


def _refuse_set(message: Any, field: str) -> None:
    if any(descriptor.name == field for descriptor, _ in message.ListFields()):
        raise InvalidArgument(f"{field}: got a value, expected none: not served by this bus")
