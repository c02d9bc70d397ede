"""The database's time, as well as a replica knows it without asking.

Deadlines are compared with the database's clock. A replica whose own clock is wrong must not
write deadlines of its own making: it learns the difference each time it asks who leads.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from core.ports import Clock


class DatabaseClock:
    """Our own clock, put right by the last answer of the database."""

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
