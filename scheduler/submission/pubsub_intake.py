"""Submissions that come as Pub/Sub messages: v1 or native bodies, validated as REST validates,
acknowledged after the commit. Each is its key's, or its topic's tenant's. Refused ones are kept as
dead letters with every fault named; a publisher that asks for an answer gets one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from core.changes import AtomicBatch, DeadLetter, Send
from core.errors import BadInput, BusDown, Conflict, Fault, PriceNotConfirmed, StoreDown, ZenError
from core.messages import InMessage, OutMessage
from core.names import Names
from core.ports import Bus, Clock, Inbound, Store
from messaging.codec import BadMessage, decode_submission
from messaging.submissions import (
    MessageKey,
    encode_dead,
    encode_reply,
    reply_topic,
    without_key,
)
from scheduler.access.authenticator import Authenticator, NotAllowed, Unauthenticated
from scheduler.operations.dead_letters import source_of
from scheduler.submission.message_submitters import SubmitTopic
from scheduler.submission.other_systems import is_v1, native_of_v1, v1_refusal
from scheduler.submission.quotes import price_fields
from scheduler.submission.submit import Accepted, JobNotStored, Submissions

log = structlog.get_logger("intake")
BATCH_MAX = 500
REPLY_TIMEOUT_S = 10.0
STORE_AGAIN_S = 2.0
"""How long we read no more after the database did not answer: what we give back comes at once, to
us as well."""
_REFUSALS = (
    *(BadMessage, BadInput, Conflict, JobNotStored, PriceNotConfirmed),
    *(Unauthenticated, NotAllowed),
)


@dataclass(frozen=True, slots=True)
class IntakePorts:
    """What an intake reads from, writes to and asks."""

    bus: Bus
    store: Store
    clock: Clock
    keys: Authenticator | None = None
    """None: no message can prove itself by a key."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a message. Its effect is stored; the reply is still to be sent."""

    accepted: Accepted | None
    reply: OutMessage | None


class SubmissionIntake:
    """Of one topic. Runs on every replica: a submission needs no leader."""

    def __init__(
        self, ports: IntakePorts, names: Names, submissions: Submissions, topic: SubmitTopic
    ) -> None:
        self._bus, self._store, self._clock = ports.bus, ports.store, ports.clock
        self._keys = ports.keys
        self._names = names
        self._submissions = submissions
        self._topic = topic

    async def run(self) -> None:
        """Read until cancelled."""
        inbound = self._bus.subscribe(self._topic.subscription, max_messages=BATCH_MAX)
        try:
            async for batch in inbound.batches():
                if not await self._take(inbound, batch):
                    await asyncio.sleep(STORE_AGAIN_S)
        finally:
            await inbound.close()

    async def _take(self, inbound: Inbound, batch: Sequence[InMessage]) -> bool:
        """Whether the database answered."""
        done: list[str] = []
        again: list[str] = []
        replies: list[tuple[str, OutMessage]] = []
        for number, message in enumerate(batch):
            try:
                taken = await self.accept(message)
            except StoreDown as error:
                # The others would fare no better: another replica may.
                again += [left.ack_id for left in batch[number:]]
                log.warning("submissions kept on the bus", count=len(again), why=str(error))
                break
            if taken.reply is None:
                done.append(message.ack_id)
            else:
                replies.append((message.ack_id, taken.reply))
        # Acknowledged after its answer: a message that comes again is answered again.
        answered, kept = await self._answer(replies)
        if done + answered:
            await inbound.ack(done + answered)
        if again + kept:
            await inbound.nack(again + kept)
        return not again

    async def accept(self, message: InMessage) -> Taken:
        """Returns when the job, or the reason why there is none, is stored; the key never is."""
        message, key = without_key(message)
        topic = None
        try:
            topic = reply_topic(message.attributes, self._names)
            accepted = await self._submit(message, key)
        except _REFUSALS as error:
            log.warning("submission refused", why=str(error), message=message.message_id)
            faults = error.faults if isinstance(error, BadInput) else ()
            await self._store.commit([self._dead_letter(message, str(error), faults)], None)
            return Taken(None, _reply(topic, message, _refused(error, faults)))
        log.info("submitted", job=accepted.job_id, user=accepted.user_id, door="pubsub")
        return Taken(accepted, _reply(topic, message, _accepted(accepted)))

    async def _submit(self, message: InMessage, sent_key: MessageKey | None) -> Accepted:
        by = await self._topic.submitter(sent_key, message.message_id, self._keys)
        data = decode_submission(message)
        # Without an id of its own, a second delivery of the message is still the same job.
        key = message.attributes.get("idempotency_key") or f"pubsub-{message.message_id}"
        if not is_v1(data):
            return await self._submissions.submit(data, idempotency_key=key, by=by)
        try:
            return await self._submissions.submit(native_of_v1(data), idempotency_key=key, by=by)
        except BadInput as error:
            raise v1_refusal(error) from error

    def _dead_letter(self, message: InMessage, reason: str, faults: Sequence[Fault]) -> AtomicBatch:
        dead_letter = DeadLetter(
            message_id=message.message_id,
            source=source_of(self._topic.name, self._names),
            body=message.body,
            attributes=message.attributes,
            reason=reason,
            at=self._clock.now(),
        )
        return (dead_letter, Send(encode_dead(message, reason, faults, self._names)))

    async def _answer(
        self, replies: Sequence[tuple[str, OutMessage]]
    ) -> tuple[list[str], list[str]]:
        """(acknowledge, ask for again). Not through the outbox: a topic that somebody made up would
        hold up what is for our workers. A bus that refuses it is the asker's fault; a bus that is
        away is nobody's."""
        answered: list[str] = []
        kept: list[str] = []
        by_topic: dict[str, list[tuple[str, OutMessage]]] = {}
        for ack_id, message in replies:
            by_topic.setdefault(message.topic, []).append((ack_id, message))
        for topic, group in by_topic.items():
            ack_ids = [ack_id for ack_id, _ in group]
            try:
                await self._bus.publish([message for _, message in group], REPLY_TIMEOUT_S)
                answered += ack_ids
            except BusDown as error:
                log.warning("answer not sent, asking again", topic=topic, why=str(error))
                kept += ack_ids
            except ZenError as error:
                log.warning("nobody can be answered there", topic=topic, why=str(error))
                answered += ack_ids
        return answered, kept


def _reply(topic: str | None, message: InMessage, body: Mapping[str, object]) -> OutMessage | None:
    return None if topic is None else encode_reply(topic, message, body)


def _accepted(accepted: Accepted) -> dict[str, object]:
    return {
        "status": "accepted",
        "job_id": accepted.job_id,
        "user_id": accepted.user_id,
        "cluster": accepted.cluster,
        "message": accepted.message,
        **price_fields(accepted.quote),
    }


def _refused(error: ZenError, faults: Sequence[Fault]) -> dict[str, object]:
    return {
        "status": "refused",
        "code": error.code,
        "error": str(error),
        "faults": [{"field": f.field, "got": f.got, "expected": f.expected} for f in faults],
    }
