"""A topic: who listens to it, and what it keeps for them to seek back to."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from localbus import filters
from localbus.model import Message, TopicSpec
from localbus.subscription import Subscription


@dataclass(slots=True, eq=False)
class Topic:
    """A topic and who listens; listeners with `attributes.k = "v"` are found by (k, v)."""

    spec: TopicSpec
    subscriptions: dict[int, Subscription] = field(default_factory=dict)
    retained: deque[Message] = field(default_factory=deque)
    _plain: dict[int, Subscription] = field(default_factory=dict)
    _indexed: dict[str, dict[str, dict[int, Subscription]]] = field(default_factory=dict)

    def attach(self, subscription: Subscription) -> None:
        """From now on it gets this topic's messages."""
        self.subscriptions[subscription.id] = subscription
        self._slot(subscription)[subscription.id] = subscription

    def detach(self, subscription: Subscription) -> None:
        """No more messages for it."""
        del self.subscriptions[subscription.id]
        del self._slot(subscription)[subscription.id]
        if subscription.expression is None:
            return
        equality = filters.required_equality(subscription.expression)
        if equality and not self._indexed[equality.key][equality.value]:
            del self._indexed[equality.key][equality.value]
            if not self._indexed[equality.key]:
                del self._indexed[equality.key]

    def _slot(self, subscription: Subscription) -> dict[int, Subscription]:
        expression = subscription.expression
        equality = filters.required_equality(expression) if expression is not None else None
        if equality is None:
            return self._plain
        return self._indexed.setdefault(equality.key, {}).setdefault(equality.value, {})

    def audience(self, message: Message) -> list[Subscription]:
        """Who gets this message."""
        found = [s for s in self._plain.values() if s.wants(message)]
        for key, by_value in self._indexed.items():
            value = message.attributes.get(key)
            if value is not None and value in by_value:
                found += [s for s in by_value[value].values() if s.wants(message)]
        return found
