"""Heartbeats on their way to the bus: the newest of a kind replaces an unsent one, final words
stay."""

from __future__ import annotations

import math

from core.messages import Heartbeat, HeartbeatStatus

FINAL_WORDS = frozenset(
    {
        HeartbeatStatus.COMPLETED,
        HeartbeatStatus.FAILED,
        HeartbeatStatus.STOPPED,
        HeartbeatStatus.PREEMPTED,
    }
)
EARLY_WORDS = frozenset({HeartbeatStatus.FOUND_VM, HeartbeatStatus.RUNNING})
BATCH_MAX = 100
PENDING_MAX = 1000

Key = tuple[str, HeartbeatStatus]


class Outgoing:
    """One batch in flight at a time, so that an answer is never about an older world."""

    def __init__(self) -> None:
        self._pending: dict[Key, Heartbeat] = {}
        self._in_flight: tuple[Heartbeat, ...] = ()
        self._number = 0
        self._sent_at = 0.0
        self._early_at = -math.inf

    @property
    def full(self) -> bool:
        """No room for answers that the asker can ask for again."""
        return len(self._pending) >= PENDING_MAX

    @property
    def waiting(self) -> bool:
        return bool(self._pending)

    @property
    def busy(self) -> bool:
        return bool(self._in_flight)

    @property
    def owes_final_words(self) -> bool:
        """Somebody's result is not yet known to the bus."""
        return any(_is_final(key) for key in self._pending)

    @property
    def due_at(self) -> float:
        """When the next batch should be sent; -inf: at once."""
        early = all(status in EARLY_WORDS for _, status in self._pending)
        return self._early_at if early else -math.inf

    def hold_early_words(self, until: float) -> None:
        """That a job is claimed and runs may wait until then for what follows; all else is sent at
        once, and they with it."""
        self._early_at = until

    def put(self, heartbeat: Heartbeat) -> None:
        """Queue the heartbeat. A final word that still waits is never replaced."""
        key = _key(heartbeat)
        if key in self._pending and _is_final(key):
            return
        self._pending[key] = heartbeat

    def drop(self, lease_id: str, *statuses: HeartbeatStatus) -> None:
        """Forget unsent heartbeats that are no longer true."""
        for status in statuses:
            self._pending.pop((lease_id, status), None)

    def take(self, now: float) -> tuple[int, tuple[Heartbeat, ...]]:
        """The next batch, oldest first, and its number."""
        assert self._pending, "nothing to send"
        assert not self._in_flight, "the last batch has no answer yet"
        heartbeats = sorted(self._pending.values(), key=lambda heartbeat: heartbeat.seq)
        self._in_flight = tuple(heartbeats[:BATCH_MAX])
        self._number += 1
        self._sent_at = now
        return self._number, self._in_flight

    def confirmed(self, number: int) -> float | None:
        """When the batch was sent; None if it is not the one in flight."""
        if not self._in_flight or number != self._number:
            return None
        for heartbeat in self._in_flight:
            if self._pending.get(_key(heartbeat)) is heartbeat:
                del self._pending[_key(heartbeat)]
        self._in_flight = ()
        return self._sent_at

    def failed(self, number: int) -> bool:
        """The batch is to be sent again with what has replaced it since."""
        if not self._in_flight or number != self._number:
            return False
        self._in_flight = ()
        return True


def _is_final(key: Key) -> bool:
    """Final words speak of a lease; PREEMPTED without one is the VM's own."""
    lease_id, status = key
    return bool(lease_id) and status in FINAL_WORDS


def _key(heartbeat: Heartbeat) -> Key:
    return heartbeat.lease_id or "", HeartbeatStatus(heartbeat.status)
