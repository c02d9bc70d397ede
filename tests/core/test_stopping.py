"""When a process has to stop."""

from __future__ import annotations

import asyncio
import os
import signal

from core.stopping import stop_event


async def test_the_end_of_the_parent() -> None:
    """Words of the parent are passed over; its end of the pipe being closed is the end."""
    theirs, ours = os.pipe()
    stop = stop_event(theirs)
    os.write(ours, b"not the end")
    await asyncio.sleep(0)
    assert not stop.is_set()
    os.close(ours)
    async with asyncio.timeout(10):
        await stop.wait()
    os.close(theirs)


async def test_a_signal() -> None:
    """SIGTERM, with or without a parent."""
    stop = stop_event(None)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(10):
        await stop.wait()
