"""Submissions by message: the answer that a publisher may ask for, and the dead letter.

Pure. A publisher asks with the attribute `reply_topic`; `correlation_id` comes back to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.errors import Fault
from core.messages import InMessage, OutMessage
from core.names import Names
from core.submission import shown
from messaging import wire
from messaging.errors import BadMessage

REPLY_TOPIC = "reply_topic"
CORRELATION = "correlation_id"
KEY = "zen-key"
AUTHORIZATION = "authorization"
# Pub/Sub's own rules for the id of a topic, and its bounds on attributes.
_TOPIC = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9._~%+-]{2,254}\Z")
ATTRIBUTES_MAX = 100
VALUE_BYTES_MAX = 1024


@dataclass(frozen=True, slots=True)
class MessageKey:
    """The API key that a message brought; never printed."""

    text: str = field(repr=False)


def without_key(message: InMessage) -> tuple[InMessage, MessageKey | None]:
    """The message as it may be stored, logged and answered, and the key that it brought: as
    `zen-key`, or as `authorization: Bearer …`. One name has both if somebody sends both."""
    found = {
        name.lower(): value
        for name, value in message.attributes.items()
        if name.lower() in (KEY, AUTHORIZATION)
    }
    if not found:
        return message, None
    kept = {n: v for n, v in message.attributes.items() if n.lower() not in found}
    text = found.get(KEY) or found.get(AUTHORIZATION, "").partition(" ")[2]
    return replace(message, attributes=kept), MessageKey(text.strip())


def reply_topic(attributes: Mapping[str, str], names: Names) -> str | None:
    """Where the answer goes. Never one of our own topics: a submitter could otherwise speak
    to our workers with our voice. None if no answer is wanted."""
    topic = attributes.get(REPLY_TOPIC)
    if not topic:
        return None
    ours = topic == names.prefix or topic.startswith(f"{names.prefix}-")
    if not _TOPIC.match(topic) or (ours and not topic.startswith(names.reply_prefix)):
        expected = f"the id of a topic; of those named {names.prefix}-… only {names.reply_prefix}…"
        raise BadMessage(f"attributes.{REPLY_TOPIC}: got {shown(topic)}, expected {expected}")
    return topic


def encode_reply(topic: str, message: InMessage, body: Mapping[str, object]) -> OutMessage:
    """accepted or refused, for the sender of the message."""
    attributes = {
        "kind": "submission_reply",
        "status": str(body["status"]),
        "in_reply_to": message.message_id,
    }
    if message.attributes.get(CORRELATION):
        attributes[CORRELATION] = message.attributes[CORRELATION]
    return OutMessage(topic, wire.to_bytes("reply", body), attributes)


def encode_dead(
    message: InMessage, reason: str, faults: Sequence[Fault], names: Names
) -> OutMessage:
    """The message as it came, so that it can be mended and sent again, with every fault named."""
    told = {"refused_because": reason, "refused_message_id": message.message_id}
    told |= {f"fault_{number}": str(fault) for number, fault in enumerate(faults, 1)}
    room = ATTRIBUTES_MAX - len(message.attributes)
    ours = {name: _cut(words) for name, words in list(told.items())[:room]}
    theirs = {_cut(name): _cut(value) for name, value in message.attributes.items()}
    return OutMessage(names.submit_dead_topic, message.body, {**theirs, **ours})


def _cut(words: str) -> str:
    """As long as an attribute may be, and without what no database text can hold."""
    clean = words.replace("\0", "").encode(errors="replace")
    return clean[:VALUE_BYTES_MAX].decode(errors="ignore")
