"""The values of the bus: topics and subscriptions as they were asked for, and messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from localbus import filters
from localbus.errors import InvalidArgument, invalid

DAY_S = 86_400.0
DELETED_TOPIC = "_deleted-topic_"

MESSAGES_PER_PUBLISH_MAX = 1_000
PUBLISH_BYTES_MAX = 10_000_000
ATTRIBUTES_MAX = 100
KEY_BYTES_MAX = 256
VALUE_BYTES_MAX = 1_024
ORDERING_KEY_BYTES_MAX = 1_024
ACK_DEADLINE_S = (10, 600)
RETENTION_S = (600.0, 31 * DAY_S)
BACKOFF_S = (0.0, 600.0)
ATTEMPTS = (5, 100)
LABELS_MAX = 64


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What CreateTopic asks for."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    retention_s: float | None = None
    policy: str = ""
    """Its IAM policy, serialised, in base64: kept, never enforced."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Retry policy: the n-th failure waits min · 2ⁿ⁻¹, at most max."""

    min_s: float
    max_s: float

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        return float(min(self.max_s, self.min_s * 2 ** min(failures - 1, 32)))


@dataclass(frozen=True, slots=True)
class DeadLetterPolicy:
    """Where messages go that failed `max_attempts` times."""

    topic: str
    max_attempts: int


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """What CreateSubscription asks for, with Google's defaults."""

    name: str
    topic: str
    ack_deadline_s: int = 10
    filter: str = ""
    ordered: bool = False
    exactly_once: bool = False
    dead_letter: DeadLetterPolicy | None = None
    backoff: Backoff | None = None
    retention_s: float = 7 * DAY_S
    retain_acked: bool = False
    ttl_s: float | None = 31 * DAY_S
    labels: Mapping[str, str] = field(default_factory=dict)
    policy: str = ""
    """As a topic's."""
    detached: bool = False
    """It holds nothing and gets nothing any more; who reads from it is told so."""


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message on its way in. `raw` is the door's own form; the broker never looks inside."""

    attributes: Mapping[str, str]
    ordering_key: str
    data_bytes: int
    raw: object


@dataclass(slots=True, eq=False)
class Message:
    """A published message; `body` is exactly what goes to disk and into answers.

    `refs` counts who still needs it: deliveries, and the topic when it retains messages.
    """

    id: int
    topic: str
    published: float
    attributes: Mapping[str, str]
    ordering_key: str
    body: bytes
    refs: int = 0


_ID = re.compile(r"[A-Za-z][A-Za-z0-9._~+%-]{2,254}")
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,99}")
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")


def check_name(field_name: str, name: str, collection: str) -> None:
    """A full resource name, by Google's rules for ids."""
    expected = (
        f"projects/PROJECT/{collection}/ID; ID: 3-255 of letters, digits and -._~+%, begins with"
        " a letter, not with goog"
    )
    parts = name.split("/")
    if len(parts) != 4 or parts[0] != "projects" or parts[2] != collection:
        raise invalid(field_name, name, expected)
    good = _PROJECT.fullmatch(parts[1]) and _ID.fullmatch(parts[3])
    if not good or parts[3].lower().startswith("goog"):
        raise invalid(field_name, name, expected)


def check_project(name: str) -> None:
    """`projects/PROJECT`."""
    head, _, project = name.partition("/")
    if head != "projects" or not _PROJECT.fullmatch(project):
        raise invalid("project", name, "projects/PROJECT")


def check_topic(spec: TopicSpec) -> None:
    """Refuses a topic that Google would refuse."""
    check_name("name", spec.name, "topics")
    _check_labels(spec.labels)
    if spec.retention_s is not None:
        _check_range("message_retention_duration", spec.retention_s, RETENTION_S, "s")


def check_subscription(spec: SubscriptionSpec) -> None:
    """Refuses a subscription that Google would refuse."""
    check_name("name", spec.name, "subscriptions")
    if spec.topic != DELETED_TOPIC:
        check_name("topic", spec.topic, "topics")
    _check_labels(spec.labels)
    _check_range("ack_deadline_seconds", spec.ack_deadline_s, ACK_DEADLINE_S, "s")
    _check_range("message_retention_duration", spec.retention_s, RETENTION_S, "s")
    if spec.filter:
        filters.parse(spec.filter)
    if spec.dead_letter is not None:
        check_name("dead_letter_policy.dead_letter_topic", spec.dead_letter.topic, "topics")
        _check_range(
            "dead_letter_policy.max_delivery_attempts",
            spec.dead_letter.max_attempts,
            ATTEMPTS,
            "attempts",
        )
    _check_backoff(spec.backoff)
    _check_ttl(spec)


def _check_backoff(backoff: Backoff | None) -> None:
    if backoff is None:
        return
    _check_range("retry_policy.minimum_backoff", backoff.min_s, BACKOFF_S, "s")
    _check_range("retry_policy.maximum_backoff", backoff.max_s, BACKOFF_S, "s")
    if backoff.min_s > backoff.max_s:
        raise invalid(
            "retry_policy.minimum_backoff",
            backoff.min_s,
            f"at most maximum_backoff {backoff.max_s}",
        )


def _check_ttl(spec: SubscriptionSpec) -> None:
    if spec.ttl_s is None:
        return
    if spec.ttl_s < DAY_S:
        raise invalid("expiration_policy.ttl", spec.ttl_s, "at least one day (86400 s), or unset")
    if spec.ttl_s < spec.retention_s and spec.retain_acked:
        raise invalid(
            "expiration_policy.ttl",
            spec.ttl_s,
            f"at least message_retention_duration {spec.retention_s}",
        )


def check_incoming(incoming_messages: Sequence[IncomingMessage], total_bytes: int) -> None:
    """The limits of one publish."""
    if not incoming_messages:
        raise invalid("messages", 0, "at least one message")
    if len(incoming_messages) > MESSAGES_PER_PUBLISH_MAX:
        raise invalid("messages", len(incoming_messages), f"at most {MESSAGES_PER_PUBLISH_MAX}")
    if total_bytes > PUBLISH_BYTES_MAX:
        raise invalid("request size", total_bytes, f"at most {PUBLISH_BYTES_MAX} bytes")
    for incoming in incoming_messages:
        _check_one(incoming)


def _check_one(incoming: IncomingMessage) -> None:
    attributes = incoming.attributes
    if not incoming.data_bytes and not attributes:
        raise InvalidArgument("messages: got one without data and attributes, expected either")
    if attributes:
        _check_attributes(attributes)
    if incoming.ordering_key and len(incoming.ordering_key.encode()) > ORDERING_KEY_BYTES_MAX:
        raise invalid(
            "ordering_key", incoming.ordering_key, f"at most {ORDERING_KEY_BYTES_MAX} bytes"
        )


def _check_attributes(attributes: Mapping[str, str]) -> None:
    if len(attributes) > ATTRIBUTES_MAX:
        raise invalid("attributes", len(attributes), f"at most {ATTRIBUTES_MAX} per message")
    for key, value in attributes.items():
        # Google's clients themselves add googclient_* (tracing), so those pass.
        reserved = key.startswith("goog") and not key.startswith("googclient_")
        if not key or len(key.encode()) > KEY_BYTES_MAX or reserved:
            raise invalid(
                "attribute key", key, f"1-{KEY_BYTES_MAX} bytes that do not begin with goog"
            )
        # A string of n characters has at most 4n bytes: the common short value is not encoded.
        if len(value) * 4 > VALUE_BYTES_MAX and len(value.encode()) > VALUE_BYTES_MAX:
            raise invalid(f"attribute {key}", value, f"at most {VALUE_BYTES_MAX} bytes")


def _check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > LABELS_MAX:
        raise invalid("labels", len(labels), f"at most {LABELS_MAX}")
    for key, value in labels.items():
        if not key or not _LABEL.fullmatch(key) or not _LABEL.fullmatch(value):
            raise invalid("labels", f"{key}={value}", "lower case letters, digits, _ and -, ≤ 63")


def _check_range(field_name: str, got: float, bounds: tuple[float, float], unit: str) -> None:
    low, high = bounds
    if not low <= got <= high:
        raise invalid(field_name, got, f"{low:g} to {high:g} {unit}")
