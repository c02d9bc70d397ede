"""A message on its way to one subscription, the lease on it, and who holds the lease."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from localbus.changes import Change, MessagesDropped
from localbus.model import Message

if TYPE_CHECKING:
    from localbus.subscription import Subscription


class State(Enum):
    """Where a delivery is."""

    READY = "ready"
    LEASED = "leased"
    WAITING = "waiting"  # for its back-off to end
    BLOCKED = "blocked"  # behind an older message of its ordering key
    ACKED = "acked"  # kept only for a seek
    GONE = "gone"


@dataclass(slots=True, eq=False)
class Delivery:
    """One message on its way to one subscription."""

    message: Message
    attempts: int = 0
    failures: int = 0
    state: State = State.READY
    lease: AckDeadline | None = None


@dataclass(slots=True, eq=False)
class Consumer:
    """A stream that takes messages; zero limits mean unlimited."""

    ack_deadline_s: int
    messages_max: int = 0
    bytes_max: int = 0
    messages: int = 0
    bytes: int = 0

    @property
    def open_messages(self) -> int:
        """How many more messages it may hold. One that overshoots its byte limit may pass, so
        that a message larger than the limit is still delivered."""
        if 0 < self.bytes_max <= self.bytes:
            return 0
        return max(0, self.messages_max - self.messages) if self.messages_max > 0 else 1 << 30


@dataclass(slots=True, eq=False)
class AckDeadline:
    """The right to settle one delivery until `deadline`."""

    ack_id: str
    delivery: Delivery
    deadline: float
    consumer: Consumer | None


@dataclass(slots=True)
class Ledger:
    """What the broker's operations leave behind for the driver: writes, and who to wake."""

    changes: list[Change] = field(default_factory=list)
    woken: set[Subscription] = field(default_factory=set)
    dead: list[tuple[Subscription, Delivery]] = field(default_factory=list)
    stored_bytes: int = 0

    def forget(self, messages: Iterable[Message]) -> None:
        """One user less for each; the last one lets it go."""
        freed: list[int] = []
        for message in messages:
            message.refs -= 1
            if message.refs == 0:
                freed.append(message.id)
                self.stored_bytes -= len(message.body)
        if freed:
            self.changes.append(MessagesDropped(tuple(freed)))
