"""Stores what a job says of itself in job-meta.json while it runs, for those who watch it.

Only a file that can be read as a JSON object counts: a workflow writes it in place, and half of one
is nobody's news. What cannot be stored is tried again at the next look; nothing waits for it."""

from __future__ import annotations

import asyncio
import os

import msgspec

from agent.held_directory import HeldDirectory
from core.errors import ZenError
from stores.artifacts import META_BYTES_MAX, META_FILE, ArtifactPath
from stores.base import ObjectStore

EVERY_S = 10.0


class MetaFile:
    """Of one attempt."""

    def __init__(self, store: ObjectStore, path: ArtifactPath, base: HeldDirectory) -> None:
        self._store, self._key, self._base = store, path.live_meta, base
        self._stored: tuple[int, int] | None = None
        """Size and time of the file when it was last stored."""

    async def follow(self) -> None:
        """For as long as the job runs."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Stores the file if it has changed."""
        found = await asyncio.to_thread(self._read)
        if found is None:
            return
        mark, data = found
        try:
            await self._store.put(self._key, data)
        except (ZenError, OSError):
            return  # the end of the job stores it, too
        self._stored = mark

    def _read(self) -> tuple[tuple[int, int], bytes] | None:
        """None: nothing new, or nothing that can be used."""
        try:
            with self._base.open(f"outputs/{META_FILE}") as source:
                now = os.fstat(source.fileno())
                mark = (now.st_size, now.st_mtime_ns)
                fits = 0 < now.st_size < META_BYTES_MAX
                if not fits or mark == self._stored:
                    return None
                data = source.read(META_BYTES_MAX)
        except OSError:
            return None
        try:
            msgspec.json.decode(data, type=dict[str, object])
        except msgspec.MsgspecError:
            return None
        return mark, data
