"""Submissions that come as Pub/Sub messages: v1 or native bodies, validated as REST validates,
acknowledged after the commit. Each is its key's, or its topic's tenant's. Refused ones are kept as
dead letters with every fault named; a publisher that asks for an answer gets one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from core.changes import AtomicBatch, DeadLetter, Send
from core.errors import BadInput, BusDown, Conflict, Fault, PriceNotConfirmed, StoreDown, ZenError
from core.messages import InMessage, OutMessage
from core.names import Names
from core.ports import Bus, Clock, Inbound
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
from scheduler.submission.submission_batch import MANY
from scheduler.submission.submit import Accepted, JobNotStored, Submissions, Writer

log = structlog.get_logger("intake")
BATCH_MAX = 500
TOGETHER_MAX = 100
"""Messages that are checked and written at once: they share a commit."""
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
    write: Writer
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
        self._bus, self._write, self._clock = ports.bus, ports.write, ports.clock
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
        for part in _together(batch):
            if again:
                # They would fare no better: another replica may.
                again += [message.ack_id for message in part]
                continue
            for message, taken in zip(part, await self._accept_all(part), strict=True):
                if taken is None:
                    again.append(message.ack_id)
                elif taken.reply is None:
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

    async def _accept_all(self, part: Sequence[InMessage]) -> list[Taken | None]:
        """What became of each; None: the database did not answer."""
        found = await asyncio.gather(*map(self.accept, part), return_exceptions=True)
        taken: list[Taken | None] = []
        down: list[StoreDown] = []
        for one in found:
            if isinstance(one, StoreDown):
                down.append(one)
                taken.append(None)
            elif isinstance(one, BaseException):
                raise one
            else:
                taken.append(one)
        if down:
            log.warning("submissions kept on the bus", count=len(down), why=str(down[0]))
        jobs = [one.accepted for one in taken if one is not None and one.accepted is not None]
        if jobs:
            log.info("submitted", door="pubsub", messages=len(jobs), first=jobs[0].job_id)
        return taken

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
            await self._write(self._dead_letter(message, str(error), faults))
            return Taken(None, _reply(topic, message, _refused(error, faults)))
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


_MANY = tuple(f'"{name}"'.encode() for name in MANY)


def _together(batch: Sequence[InMessage]) -> Iterator[Sequence[InMessage]]:
    """In their order. A job that waits for others comes after what was sent before it is stored:
    its others may be there. A submission of many jobs goes alone: few may wait for their turn."""
    part: list[InMessage] = []
    full = False
    for message in batch:
        many = any(word in message.body for word in _MANY)
        if part and (full or many or len(part) >= TOGETHER_MAX or b'"after"' in message.body):
            yield part
            part = []
        part.append(message)
        full = many
    if part:
        yield part


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
