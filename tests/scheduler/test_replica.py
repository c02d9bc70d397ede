"""The long-running tasks of a replica: started again when they fail, gone when they are told."""

from __future__ import annotations

import asyncio

import pytest

import scheduler.replica
from core.errors import StoreDown
from scheduler.replica import forever


async def test_failing_task_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it failed with."""
    monkeypatch.setattr(scheduler.replica, "RESTART_S", 0.0)
    tries = 0
    enough = asyncio.Event()

    async def run() -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            enough.set()
            await asyncio.Event().wait()
        raise (StoreDown("away") if tries == 1 else RuntimeError("a fault of ours"))

    task = forever("test", run)
    async with asyncio.timeout(5):
        await enough.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tries == 3


async def test_task_that_answers_its_end_with_an_error_has_ended() -> None:
    """A driver may cycle a cancellation into an error of its own. A leader that lost its term waits
    for its tasks: one that started anew would keep it from ever leading again."""
    began = asyncio.Event()

    async def run() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise StoreDown("the connection is lost") from None

    task = forever("test", run)
    await began.wait()
    task.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(task, return_exceptions=True)
    assert task.done()
