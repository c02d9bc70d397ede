"""What comes over the VM's control subscription: each message once, decoded, into the box."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from agent.events import ControlReceived, Input
from agent.json_log import JsonLog
from core.messages import InMessage
from messaging.codec import BadMessage, decode_control

SEEN_MAX = 1000


class Ear:
    """Remembers what it has heard: the bus delivers at least once."""

    def __init__(self, post: Callable[[Input], None], journal: JsonLog) -> None:
        self._post = post
        self._journal = journal
        self._seen: OrderedDict[str, None] = OrderedDict()

    def take(self, message: InMessage) -> None:
        """Post what it says, unless it was heard before."""
        # A repeated `continue` from an older freeze could thaw a job whose lease is gone by now.
        if message.message_id in self._seen:
            return
        self._seen[message.message_id] = None
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        try:
            self._post(ControlReceived(decode_control(message)))
        except BadMessage as error:
            self._journal.error("bad control message", reason=str(error), id=message.message_id)
