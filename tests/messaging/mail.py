"""Messages as a reader of the bus gets them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from core.messages import InMessage, OutMessage


def arrived(message: OutMessage) -> InMessage:
    """The message as the bus would deliver it."""
    return InMessage("ack", "1", datetime(2026, 1, 1, tzinfo=UTC), message.body, message.attributes)


def raw(body: bytes | object, **attributes: str) -> InMessage:
    """A message that somebody else wrote."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return InMessage("ack", "1", datetime(2026, 1, 1, tzinfo=UTC), data, attributes)
