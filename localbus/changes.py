"""What the broker wants remembered. The journal writes these; replaying is loading what is left."""

from __future__ import annotations

from dataclasses import dataclass

from localbus.model import Message, SubscriptionSpec, TopicSpec


@dataclass(frozen=True, slots=True)
class TopicSaved:
    spec: TopicSpec


@dataclass(frozen=True, slots=True)
class TopicDropped:
    name: str


@dataclass(frozen=True, slots=True)
class SubscriptionSaved:
    id: int
    spec: SubscriptionSpec
    used: float


@dataclass(frozen=True, slots=True)
class SubscriptionDropped:
    """Its deliveries go with it."""

    id: int


@dataclass(frozen=True, slots=True)
class MessagesAdded:
    """Messages and who gets them, (subscription id, message id)."""

    messages: tuple[Message, ...]
    deliveries: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class MessagesDropped:
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeliveriesDropped:
    subscription: int
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeliveriesMarked:
    """(message id, attempts, acked) of one subscription; made if not there."""

    subscription: int
    rows: tuple[tuple[int, int, bool], ...]


Change = (
    TopicSaved
    | TopicDropped
    | SubscriptionSaved
    | SubscriptionDropped
    | MessagesAdded
    | MessagesDropped
    | DeliveriesDropped
    | DeliveriesMarked
)


@dataclass(frozen=True, slots=True)
class StoredDelivery:
    """A delivery as the journal found it."""

    subscription: int
    message: int
    attempts: int
    acked: bool


@dataclass(frozen=True, slots=True)
class JournalContent:
    """Everything the journal holds at start. `boot` grows with every start."""

    boot: int
    topics: tuple[TopicSpec, ...]
    subscriptions: tuple[SubscriptionSaved, ...]
    messages: tuple[Message, ...]
    deliveries: tuple[StoredDelivery, ...]
