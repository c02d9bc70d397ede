"""Carries a job's output from its pipe to the store, in bounded memory and up to a cap."""

from __future__ import annotations

import asyncio

from agent.json_log import JsonLog
from stores.base import LogPath, LogStore, LogWriter

CHUNK = 64 * 1024


async def carry_log(
    source: asyncio.StreamReader, store: LogStore, path: LogPath, cap: int, journal: JsonLog
) -> None:
    """Until the end of the output. Whatever happens, the pipe is emptied: a job must not hang
    because nobody takes its words. A job that says nothing has no log, which reads as empty."""
    first = await source.read(CHUNK)
    if not first:
        return
    try:
        async with store.writer(path) as writer:
            await _carry(first, source, writer, cap)
    except Exception as error:
        journal.error("log lost", log=path.key, reason=repr(error))
    while await source.read(CHUNK):
        pass


async def _carry(data: bytes, source: asyncio.StreamReader, writer: LogWriter, cap: int) -> None:
    left = cap
    while data:
        await writer.write(data[:left])
        left -= len(data)
        if left < 0:
            full = f"the log is full at {cap} bytes (sandbox.log_max_mb), the rest is lost"
            await writer.write(f"\n[zen: {full}]\n".encode())
            return
        data = await source.read(CHUNK)
