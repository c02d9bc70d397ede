"""Who leads. A lease row in the database with a growing term; the store refuses older terms.

A leader whose process died is replaced before its lease ends: its session with the database ends
with it, and the others see that. A leader that lives and loses its session stops first, unless its
event loop stood still meanwhile; the store refuses its writes then."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import structlog

from config.live import LiveSettings
from core.errors import StoreDown, TermPassed
from core.ports import Clock, Store

log = structlog.get_logger("leadership")
FOLLOW_S = 0.5
"""How often a follower asks whether the lease is free. One question that writes nothing: the
price of a handover within a second."""
GONE_S = 1.0
"""How long the leader's session must have been gone before its lease is not waited for: a leader
that lives and lost only its connection comes back sooner."""
DOUBT_S = 0.7
"""How long a leader goes on after it noticed that its session is lost: less than GONE_S, so that it
has stopped before another one leads. The difference is for noticing."""
RETRY_S = 0.1


class DatabaseClock:
    """The database's time, as well as a replica knows it without asking: our own clock, put right
    by the last answer of the database. Deadlines are compared with the database's clock; a replica
    whose own clock is wrong must not write deadlines of its own making."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = timedelta(0)

    def learn(self, said: datetime) -> None:
        """The database has just told its time."""
        self._ahead = said - self._clock.now()

    def now(self) -> datetime:
        return self._clock.now() + self._ahead

    def monotonic(self) -> float:
        return self._clock.monotonic()


class Leadership:
    """Keeps the lease. `term()` raises as soon as we cannot be sure any more that we lead."""

    def __init__(
        self, store: Store, holder: str, settings: LiveSettings, clock: DatabaseClock
    ) -> None:
        self.holder = holder
        self._store = store
        self._settings = settings
        self._clock = clock
        self._term: int | None = None
        self._sure_until = 0.0
        self._losses = 0
        """How often we saw that our session was lost."""
        self._hurry = asyncio.Event()
        self._gone: tuple[int, float] | None = None
        """The term of a leader whose session is gone, and since when we know."""
        self.changed = asyncio.Event()
        self.follow_s = FOLLOW_S

    @property
    def leading(self) -> bool:
        """Our own clock is enough here: the lease is counted from before the renewing call, so
        we stop believing before the database would give it to another."""
        return self._term is not None and self._clock.monotonic() < self._sure_until

    def term(self) -> int:
        """The term we lead under, or TermPassed."""
        if self._term is None or not self.leading:
            raise TermPassed("this replica does not lead")
        return self._term

    async def keep(self) -> None:
        """Take or renew the lease for ever."""
        watch = asyncio.create_task(self._watch_session(), name="leader session watch")
        try:
            while True:
                await self.renew()
                await self._pause()
        finally:
            watch.cancel()

    async def _pause(self) -> None:
        pace_s = self._settings.current.timers.leader_renew_s
        try:
            async with asyncio.timeout(pace_s if self.leading else min(pace_s, self.follow_s)):
                await self._hurry.wait()
        except TimeoutError:
            return
        self._hurry.clear()

    async def _watch_session(self) -> None:
        """Beside the renewals: one of them may hang while our time ends or another replica takes
        the lease."""
        while True:
            try:
                async with asyncio.timeout(self._sure_s()):
                    await self._store.session_lost()
            except TimeoutError:
                self._note_if_lost()
                continue
            if self._term is not None:
                self._losses += 1
                self._sure_until = min(self._sure_until, self._clock.monotonic() + DOUBT_S)
                self._hurry.set()
            await asyncio.sleep(min(RETRY_S, self._sure_s()))
            self._note_if_lost()

    def _sure_s(self) -> float:
        """How long to wait before we look whether we still lead."""
        if not self.leading:
            return self.follow_s
        return self._sure_until - self._clock.monotonic()

    async def renew(self) -> None:
        asked_at, losses = self._clock.monotonic(), self._losses
        lease_s = (
            self._settings.current.timers.leader_lease_s
        )  # an edit may change it while we wait
        try:
            answer = await self._store.lead(self.holder, lease_s, self._gone_term(asked_at))
        except StoreDown as error:
            log.warning("lease not renewed", why=str(error))
            self._gone = None
            self._note_if_lost()
            return
        self._clock.learn(answer.now)
        if answer.leading:
            self._gone = None
            if self._losses == losses:  # else it may be from before the loss: we ask again
                self._renewed(answer.term, asked_at, lease_s)
        else:
            if not answer.gone:
                self._gone = None
            elif self._gone is None or self._gone[0] != answer.term:
                self._gone = answer.term, self._clock.monotonic()
            self._drop(f"{answer.holder} leads, term {answer.term}")

    def _gone_term(self, now: float) -> int | None:
        """Of a leader that is gone for good."""
        if self._gone is None or now - self._gone[1] < GONE_S:
            return None
        return self._gone[0]

    def _renewed(self, term: int, asked_at: float, lease_s: float) -> None:
        # An answer that took longer than the lease made us leader of nothing: it is the
        # change from not sure to sure that starts the leader's tasks, not only a new term.
        was_leading = self.leading
        self._sure_until = asked_at + lease_s
        news = not was_leading or self._term != term
        self._term = term
        if news and self.leading:
            log.info("leading", term=term)
            self.changed.set()

    def lost(self, why: str) -> None:
        """The store refused our term."""
        self._drop(why)

    async def resign(self) -> None:
        """Hand over at once."""
        if self._term is None:
            return
        term, self._term = self._term, None
        try:
            await self._store.resign(self.holder, term)
        except StoreDown as error:
            log.warning("lease not given back, it ends by itself", why=str(error))

    def _note_if_lost(self) -> None:
        if self._term is not None and not self.leading:
            self._drop("the lease could not be renewed in time")

    def _drop(self, why: str) -> None:
        if self._term is not None:
            log.warning("not leading any more", why=why)
            self._term = None
            self.changed.set()
