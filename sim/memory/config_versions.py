"""core.configuration.ConfigVersions over the in-memory tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from core.audit_log import AuditRow
from core.configuration import (
    FILES_MAX,
    VERSIONS_MAX,
    ConfigPage,
    ConfigVersion,
    FileSeen,
    audited,
)
from core.errors import NotFound
from sim.memory.store import MemoryStore

PAGE_MAX = 500


class MemoryConfigVersions:
    """Through a door of the store."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._tables = store.tables

    async def newest_number(self) -> int:
        newest = await self.newest()
        return newest.version if newest is not None else 0

    async def newest(self) -> ConfigVersion | None:
        await self._store.reach()
        return self._tables.configs[-1] if self._tables.configs else None

    async def version(self, number: int) -> ConfigVersion:
        await self._store.reach()
        for row in self._tables.configs:
            if row.version == number:
                return row
        raise NotFound(f"there is no version {number} of the configuration")

    async def history(self, size: int, before: int | None) -> ConfigPage:
        await self._store.reach()
        size = max(1, min(size, PAGE_MAX))
        newest_first = reversed(self._tables.configs)
        found = [row for row in newest_first if before is None or row.version < before]
        shown = tuple(found[:size])
        next_before = shown[-1].version if len(found) > size else None
        return ConfigPage(shown, len(self._tables.configs) if found else 0, next_before)

    async def last_with(self, digest: str) -> int | None:
        await self._store.reach()
        same = (row for row in self._tables.configs if row.digest == digest)
        return max((r.version for r in same if r.rollback_of is None), default=None)

    async def file_seen(self, host: str, path: str) -> str | None:
        await self._store.reach()
        files = self._tables.config_files
        if (host, path) in files:
            return files[host, path]
        return next((files[key] for key in reversed(files) if key[1] == path), None)

    async def saw(self, seen: FileSeen) -> None:
        await self._store.reach()
        self._saw(seen)

    def _saw(self, seen: FileSeen) -> None:
        files = self._tables.config_files
        files.pop((seen.host, seen.path), None)
        files[seen.host, seen.path] = seen.digest
        for key in list(files)[:-FILES_MAX]:
            del files[key]

    async def jobs_in(self, clusters: Collection[str]) -> Mapping[str, int]:
        await self._store.reach()
        return self._jobs_in(clusters)

    def _jobs_in(self, clusters: Collection[str]) -> Mapping[str, int]:
        tables = self._tables
        counts = Counter(job.cluster for job in tables.live.values() if job.cluster in clusters)
        for name in clusters:
            counts[name] += len(tables.queues[name]) if name in tables.queues else 0
        return {name: count for name, count in counts.items() if count}

    async def record(
        self, new: ConfigVersion, unused: Collection[str], seen: FileSeen | None = None
    ) -> bool:
        await self._store.reach()
        configs = self._tables.configs
        newest = configs[-1].version if configs else 0
        if new.version != newest + 1 or self._jobs_in(unused):
            return False
        configs.append(new)
        log = self._tables.audit_log
        log.append(AuditRow(len(log) + 1, audited(new)))
        del configs[:-VERSIONS_MAX]
        if seen is not None:
            self._saw(seen)
        return True
