"""Which mail wakes the loop at once, and which waits for others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from core.messages import InMessage
from messaging.proofs.heartbeats import PROOF
from scheduler.cycle.heartbeat_inbox import BACKLOG, Inbox

NOW = datetime(2026, 1, 5, tzinfo=UTC)
MAC, SIGNED = "m1.key.digest", "s1.signature"


@dataclass
class _Bus:
    """A bus whose only subscription brings these batches."""

    mail: list[list[InMessage]]
    given: asyncio.Event = field(default_factory=asyncio.Event)

    def subscribe(self, _name: str, *, max_messages: int = 0) -> _Bus:
        assert max_messages
        return self

    async def batches(self) -> AsyncIterator[Sequence[InMessage]]:
        for batch in self.mail:
            yield batch
        self.given.set()
        await asyncio.Event().wait()

    async def close(self) -> None: ...


def _message(proof: str = "", **attributes: str) -> InMessage:
    return InMessage("1", "1", NOW, b"", attributes | ({PROOF: proof} if proof else {}))


async def _rung(*batches: list[InMessage]) -> list[str]:
    bus, rung = _Bus(list(batches)), list[str]()
    inbox = Inbox(
        bus,  # type: ignore[arg-type]  # as much of a bus as an inbox needs
        "heartbeats",
        lambda: rung.append("now"),
        lambda: rung.append("soon"),
    )
    task = asyncio.create_task(inbox.fill())
    await bus.given.wait()
    urgent = inbox.urgent
    took = inbox.take(BACKLOG * 2)
    inbox.put_back(took)
    assert inbox.take(BACKLOG * 2) == took
    assert not inbox.urgent
    task.cancel()
    return [*rung, "urgent" if urgent else "idle"]


@pytest.mark.parametrize(
    "message",
    [_message(SIGNED), _message(), _message(kind="canary")],
    ids=["signed", "v1", "canary"],
)
async def test_what_can_change_a_decision_wakes_the_loop_at_once(message: InMessage) -> None:
    """A signed heartbeat, one of a v1 worker and the canary are worth a cycle of their own, also
    among others."""
    assert await _rung([_message(MAC), message, _message(MAC)]) == ["now", "urgent"]


async def test_signs_of_life_share_a_cycle() -> None:
    """Heartbeats with a MAC change no state: they wait, also for what comes with the next ones."""
    assert await _rung([_message(MAC)] * 3) == ["soon", "idle"]
    assert await _rung([_message(MAC)], [_message(SIGNED)]) == ["soon", "now", "urgent"]


async def test_a_backlog_does_not_wait() -> None:
    """Many signs of life are taken at once, so that a backlog is gone soon."""
    assert await _rung([_message(MAC)] * BACKLOG) == ["now", "urgent"]


async def test_what_is_left_in_the_box_is_urgent() -> None:
    """Nobody has looked at what a full cycle leaves."""
    bus = _Bus([[_message(MAC)] * 3])
    inbox = Inbox(bus, "heartbeats", lambda: None, lambda: None)  # type: ignore[arg-type]
    task = asyncio.create_task(inbox.fill())
    await bus.given.wait()
    left = [(len(inbox.take(2)), inbox.urgent) for _ in range(2)]
    assert left == [(2, True), (1, False)]
    task.cancel()
