"""Carries the outbox to the bus: at least once, in the order of the commits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from config.live import LiveSettings
from core.alerts import BUS_REFUSED
from core.changes import Change, DeadLetter
from core.errors import BusDown, StoreDown, TermPassed, ZenError
from core.messages import OutboxRow, OutMessage
from core.ports import Bus, Clock, Store
from messaging.codec import start_lease
from messaging.errors import ContentRefused
from scheduler.cycle.leadership import Leadership
from scheduler.cycle.start_secrets import SealedParts, StartSecrets

log = structlog.get_logger("relay")
BATCH = 500
PUBLISH_TIMEOUT_S = 10.0
RETRY_S = 1.0
TRIED = 16
"""Messages of a refused topic that are tried at once."""
UNSENT_MAX = 10_000


class Relay:
    """Woken after each commit; sleeps while the outbox is empty."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        leadership: Leadership,
        clock: Clock,
        settings: LiveSettings,
        prove: Callable[[OutboxRow], OutMessage],
        fill: SealedParts | None = None,
    ) -> None:
        self._store = store
        self._bus = bus
        self._leadership = leadership
        self._clock = clock
        self._settings = settings
        self._prove = prove
        """Signs and seals a control message when it is sent. ContentRefused: nobody could open
        it."""
        self._wake = asyncio.Event()
        self._starts = StartSecrets(fill or SealedParts(), clock, self.poke)
        self._withheld: dict[str, float] = {}
        """Lease of a start that waits for its secrets → when it was last seen waiting."""
        self._works: dict[str, bool] = {}
        """Topic → whether the bus takes it, as people have been told. Of others a former leader may
        have told them that it does not."""
        self._retry_at = 0.0
        """When topics that the bus refuses are tried again."""
        self._held_at: dict[str, float] = {}
        """Topic → when messages for it could last not be sent."""
        self._unsent: dict[str, float] = {}
        """Worker → when an order for it was last refused for what it says; the newest last."""
        self._refused_starts: dict[str, tuple[float, str]] = {}
        """Lease of a start that became a dead letter → when, and why with the dead letter's id; the
        newest last."""
        self._offset = 0
        self._more = False
        """Whether the last batch was full and some of it is held now: others stand behind it."""

    def poke(self) -> None:
        """There may be something to send."""
        self._wake.set()

    def held(self, topics: Iterable[str], within_s: float) -> bool:
        """Whether messages for one of these could not be sent so lately that a worker that was told
        something cannot be blamed yet for not having done it."""
        since = self._clock.monotonic() - within_s
        return any(self._held_at.get(topic, -math.inf) >= since for topic in topics)

    def unsent(self, within_s: float) -> frozenset[str]:
        """Workers that an order did not reach, so lately, since the bus refuses what it says."""
        since = self._clock.monotonic() - within_s
        return frozenset(worker for worker, at in self._unsent.items() if at >= since)

    def refused_starts(self, within_s: float) -> Mapping[str, str]:
        """Lease of each start that the bus refused so lately, for what it says → why, with its dead
        dead letter."""
        since = self._clock.monotonic() - within_s
        return {lease: words for lease, (at, words) in self._refused_starts.items() if at >= since}

    def withheld(self, within_s: float) -> frozenset[str]:
        """Leases whose start waited for its secrets so lately that no worker can be blamed yet."""
        since = self._clock.monotonic() - within_s
        return frozenset(lease for lease, at in self._withheld.items() if at >= since)

    async def run(self) -> None:
        """For ever, while we lead."""
        try:
            await self._send_for_ever()
        finally:
            self._starts.close()

    async def _send_for_ever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._settings.current.timers.loop_interval_s):
                    await self._wake.wait()
            except TimeoutError:
                pass  # look anyway: a wake-up may have been lost with a former leader
            self._wake.clear()
            if self._leadership.leading:
                await self._drain()

    async def _drain(self) -> None:
        try:
            while await self.send_batch() >= BATCH or self._more:
                pass
        except (BusDown, StoreDown) as error:
            log.warning("outbox kept, trying again", why=str(error))
            await asyncio.sleep(RETRY_S)
            self._wake.set()
        except TermPassed as error:
            self._leadership.lost(str(error))

    async def send_batch(self) -> int:
        """Publish one batch; a crash between the two calls sends it twice, which is allowed.
        Returns how many were sent."""
        refused = sorted(topic for topic, works in self._works.items() if not works)
        sent = await self._send_some(refused, besides=True)
        # What is refused is tried apart, and not too often: however much there is of it, it does
        # not stand before the others.
        if refused and self._clock.monotonic() >= self._retry_at:
            for topic in refused:
                sent += await self._send_some([topic], besides=False)
        return sent

    async def _send_some(self, topics: Sequence[str], *, besides: bool) -> int:
        """Of all topics besides these, or of these alone."""
        held = self._starts.held
        rows = await self._store.outbox(BATCH, topics, besides=besides, without=held)
        full = len(rows) >= BATCH
        found = self._starts.sort(rows, full=full)
        if besides:
            self._more = full and bool(set(self._starts.held) - set(held))
        self._remember_withheld(found.held)
        if found.refused:
            await self._refuse_starts(found.refused)
        by_topic: dict[str, list[OutboxRow]] = {}
        for row in found.ready:
            if (row.message.topic in topics) is besides:
                continue  # held before, and its topic has its own turn
            by_topic.setdefault(row.message.topic, []).append(row)
        sent = 0
        for topic, group in by_topic.items():
            # Rows that were held may have become ready together.
            for first in range(0, len(group), BATCH):
                passed = await self._send_topic(topic, group[first : first + BATCH])
                sent += passed
                if not passed:  # none may overtake these
                    break
        return sent

    async def _send_topic(self, topic: str, rows: Sequence[OutboxRow]) -> int:
        try:
            sent = await self._send_rows(topic, rows)
        except (BusDown, StoreDown, TermPassed):
            self._held_at[topic] = self._clock.monotonic()
            raise
        except ZenError as error:
            await self._topic_refused(topic, rows, error)
            return 0
        await self._topic_works(topic)
        return sent

    async def _send_rows(self, topic: str, rows: Sequence[OutboxRow]) -> int:
        try:
            await self._bus.publish([self._message(row) for row in rows], PUBLISH_TIMEOUT_S)
        except ContentRefused as error:
            await self._send_one_by_one(topic, rows, error)
        else:
            await self._store.published([row.outbox_id for row in rows])
        self._starts.forget(rows)
        return len(rows)

    async def _send_one_by_one(
        self, topic: str, rows: Sequence[OutboxRow], error: ContentRefused
    ) -> None:
        """What is refused alone, and again after another one has passed, is poison and becomes a
        dead letter, however many there are and wherever they stand. If none passes, all are kept
        and a human is told: until one does, it may as well be the topic. A batch that is full does
        not wait for that: what it needs may never be read."""
        full = len(rows) == BATCH
        some = rows if full or self._works.get(topic, True) else self._some(rows)
        refused = [row for row in some if await self._refusal(row)]
        passes = len(refused) < len(some)
        if not passes and not full:
            raise error
        tried = {row.outbox_id for row in some}
        others = [row for row in rows if row.outbox_id not in tried]
        refused += [row for row in others if await self._refusal(row)]
        # The topic may have come back between two tries: those refused before it did are good.
        dead_letters = [
            (self._dead(row, no),) for row in refused if (no := await self._refusal(row))
        ]
        if dead_letters:
            await self._store.commit(dead_letters, self._leadership.term())
        none_passed = not passes and len(dead_letters) == len(rows)
        # Only beside one that passes is a start at fault for what it says: a topic that refuses
        # everything (a schema, say) must not end the jobs of a whole batch. They start again.
        for (dead_letter,) in () if none_passed else dead_letters:
            self._remember_refused(dead_letter)
        await self._store.published([row.outbox_id for row in rows])
        if none_passed:
            raise error

    def _some(self, rows: Sequence[OutboxRow]) -> Sequence[OutboxRow]:
        """To find out whether anything passes: few, others each time, and the first of each worker,
        so that none overtakes another."""
        heads: dict[object, OutboxRow] = {}
        for row in rows:
            heads.setdefault(row.message.ordering_key or row.outbox_id, row)
        first = list(heads.values())
        self._offset += TRIED
        return [first[(self._offset + i) % len(first)] for i in range(min(TRIED, len(first)))]

    async def _refusal(self, row: OutboxRow) -> ContentRefused | None:
        """That the bus refuses the message; None: it took it."""
        try:
            await self._bus.publish([self._message(row)], PUBLISH_TIMEOUT_S)
        except ContentRefused as refusal:
            self._remember_unsent(row.message.ordering_key)
            return refusal
        return None

    def _message(self, row: OutboxRow) -> OutMessage:
        """As it is sent. What is stored of it (the row, a dead letter) never has its secrets."""
        if row.message.topic != self._settings.current.names.control_topic:
            return row.message
        return self._prove(replace(row, message=self._starts.message(row)))

    async def _refuse_starts(self, refused: Sequence[tuple[OutboxRow, str]]) -> None:
        """Starts that cannot have their secrets are not sent: their jobs fail with these words."""
        for row, words in refused:
            if lease := start_lease(row.message):
                self._remember_start(lease, words)
            else:
                log.error("tokens are not renewed", worker=row.message.ordering_key, why=words)
        rows = [row for row, _ in refused]
        await self._store.published([row.outbox_id for row in rows])
        self._starts.forget(rows)

    def _remember_withheld(self, held: Sequence[OutboxRow]) -> None:
        leases = {lease for row in held if (lease := start_lease(row.message))}
        now = self._clock.monotonic()
        self._withheld |= dict.fromkeys(leases, now)
        while len(self._withheld) > UNSENT_MAX:
            del self._withheld[next(iter(self._withheld))]

    def _remember_unsent(self, worker: str) -> None:
        if worker:
            self._unsent.pop(worker, None)
            self._unsent[worker] = self._clock.monotonic()
            if len(self._unsent) > UNSENT_MAX:
                del self._unsent[next(iter(self._unsent))]

    def _remember_refused(self, dead_letter: DeadLetter) -> None:
        message = OutMessage(dead_letter.source, dead_letter.body, dead_letter.attributes)
        words = (
            f"the bus refuses its start message: {dead_letter.reason} ({dead_letter.message_id})"
        )
        self._remember_start(start_lease(message), words)

    def _remember_start(self, lease_id: str, words: str) -> None:
        if not lease_id:
            return
        self._refused_starts[lease_id] = (self._clock.monotonic(), words)
        if len(self._refused_starts) > UNSENT_MAX:
            del self._refused_starts[next(iter(self._refused_starts))]

    async def _topic_refused(self, topic: str, rows: Sequence[OutboxRow], error: ZenError) -> None:
        # Orders for one worker that are refused for what they say are that worker's matter: the
        # next one for another may pass, and settle it.
        workers = {row.message.ordering_key or row.outbox_id for row in rows}
        if not isinstance(error, ContentRefused) or len(workers) > 1:
            self._held_at[topic] = self._clock.monotonic()
        if self._works.get(topic, True):
            log.error("the bus refuses a topic, its messages are kept", topic=topic, why=str(error))
            now = self._clock.now()
            await self._tell(BUS_REFUSED.raised(topic, now, topic=topic, error=error))
            self._works[topic] = False  # not before it is told: the store may be away
        self._retry_at = self._clock.monotonic() + RETRY_S

    async def _topic_works(self, topic: str) -> None:
        if not self._works.get(topic):
            await self._tell(BUS_REFUSED.cleared(topic, self._clock.now()))
            self._works[topic] = True

    async def _tell(self, change: Change) -> None:
        await self._store.commit([(change,)], self._leadership.term())

    def _dead(self, row: OutboxRow, refusal: ContentRefused) -> DeadLetter:
        return DeadLetter(
            message_id=f"outbox-{row.outbox_id}",
            source=row.message.topic,
            body=row.message.body,
            attributes=row.message.attributes,
            reason=str(refusal),
            at=self._clock.now(),
            ordering_key=row.message.ordering_key,
        )
