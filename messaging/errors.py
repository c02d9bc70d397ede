"""Errors of the bus that are not `core.errors.BusDown`."""

from __future__ import annotations

from core.errors import ZenError


class BadMessage(ZenError):
    """Nobody can ever use this message: keep it as a dead letter, do not ask for it again."""

    code = "bad_message"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class BusRefused(ZenError):
    """The bus answered, and the answer will not change by itself: a human must act."""

    code = "bus_refused"


class ContentRefused(BusRefused):
    """What was sent is refused as it is, another message may pass: not the topic is at fault."""

    code = "content_refused"
