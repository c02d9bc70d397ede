"""When a process of the service has to stop: by a signal, or because its parent is gone."""

from __future__ import annotations

import asyncio
import os
import signal

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_event(
    parent_fd: int | None, signals: tuple[signal.Signals, ...] = SIGNALS
) -> asyncio.Event:
    """Set by one of the signals, or when the other end of the pipe `parent_fd` is closed. For the
    running loop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, stop.set)

    def readable(fd: int) -> None:
        if not os.read(fd, 4096):
            loop.remove_reader(fd)
            stop.set()

    if parent_fd is not None:
        loop.add_reader(parent_fd, readable, parent_fd)
    return stop
