"""Submissions that come as Pub/Sub messages: validated as REST validates, acknowledged after the
commit, refused ones kept as dead letters with every fault named."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from core.changes import DeadLetter, Unit
from core.errors import BadInput, Conflict, StoreDown
from core.messages import InMessage
from core.ports import Bus, Clock, Inbound, Store
from messaging.codec import BadMessage, decode_submission
from scheduler.letters import SUBMIT
from scheduler.submit import NotStored, Submissions

log = structlog.get_logger("intake")
BATCH_MAX = 500


class SubmissionIntake:
    """Runs on every replica: a submission needs no leader."""

    def __init__(
        self, bus: Bus, subscription: str, submissions: Submissions, store: Store, clock: Clock
    ) -> None:
        self._bus = bus
        self._subscription = subscription
        self._submissions = submissions
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        """Read until cancelled."""
        inbound = self._bus.subscribe(self._subscription, max_messages=BATCH_MAX)
        try:
            async for batch in inbound.batches():
                await self._take(inbound, batch)
        finally:
            await inbound.close()

    async def _take(self, inbound: Inbound, batch: Sequence[InMessage]) -> None:
        done: list[str] = []
        again: list[str] = []
        for message in batch:
            try:
                await self.accept(message)
                done.append(message.ack_id)
            except StoreDown as error:
                log.warning("submission kept on the bus", why=str(error))
                again.append(message.ack_id)
        if done:
            await inbound.ack(done)
        if again:
            await inbound.nack(again)

    async def accept(self, message: InMessage) -> None:
        """Returns when the job, or the reason why there is none, is stored."""
        try:
            data = decode_submission(message)
            # Without an id of its own, a second delivery of the message is still the same job.
            key = message.attributes.get("idempotency_key") or f"pubsub-{message.message_id}"
            accepted = await self._submissions.submit(data, idempotency_key=key)
            log.info("submitted", job=accepted.job_id, user=accepted.user_id, door="pubsub")
        except (BadMessage, BadInput, Conflict, NotStored) as error:
            log.warning("submission refused", why=str(error), message=message.message_id)
            letter: Unit = (
                DeadLetter(
                    message_id=message.message_id,
                    source=SUBMIT,
                    body=message.body,
                    attributes=message.attributes,
                    reason=str(error),
                    at=self._clock.now(),
                ),
            )
            await self._store.commit([letter], None)
