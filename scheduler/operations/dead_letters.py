"""Dead letters: where they came from, and how one is sent again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from core.audit_log import AuditEntry
from core.changes import ReplayDeadLetter, Send
from core.messages import OutMessage
from core.names import Names
from core.ports import Store
from core.reads import DeadLetterRow, FleetReads

SUBMIT = "submit"
HEARTBEATS = "heartbeats"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The dead letter after the request; `sent` is False if it had been sent again before."""

    row: DeadLetterRow
    sent: bool


def known_sources(names: Names) -> tuple[str, ...]:
    """Where dead letters come from: what we read, and the topics that we send to."""
    return (SUBMIT, HEARTBEATS, names.start_topic, names.stop_topic, names.control_topic)


def source_of(submit_topic: str, names: Names) -> str:
    """The source of a submission that came by this topic. One that is bound to a tenant is its own:
    sent again elsewhere, the message would be another tenant's."""
    return SUBMIT if submit_topic == names.submit_topic else submit_topic


def topic_of(source: str, names: Names) -> str:
    """Where a dead letter goes when it is sent again. What we could not read goes back to where it
    came from; what we could not send goes to its own topic, which is its source."""
    return {SUBMIT: names.submit_topic, HEARTBEATS: names.heartbeat_topic}.get(source, source)


async def replay_dead_letter(
    reads: FleetReads, store: Store, message_id: str, names: Names, audited: AuditEntry
) -> Replayed:
    """NotFound if there is none. Once per dead letter, however often it is asked for: a copy that
    fails again becomes a dead letter of its own, with the new reason, and can be sent again as
    such."""
    row = await reads.dead_letter(message_id)
    if row.replayed_at is not None:
        return Replayed(row, sent=False)
    dead_letter = row.dead_letter
    again = OutMessage(
        topic_of(dead_letter.source, names),
        dead_letter.body,
        dead_letter.attributes,
        dead_letter.ordering_key,
    )
    now = audited.at
    done = await store.commit([(ReplayDeadLetter(message_id, now), Send(again), audited)], None)
    if done.all_applied:
        return Replayed(replace(row, replayed_at=now), sent=True)
    # Somebody was faster, or retention took it away: the row tells which.
    return Replayed(await reads.dead_letter(message_id), sent=False)
