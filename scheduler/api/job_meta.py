"""What a job says of itself in `job-meta.json`, while it runs and after.

Workflows of pipeline-zen write that file and upload it to a bucket of theirs
(`v1_results_url`); jobs on workers of ours write it to $ZEN_OUTPUT_DIR, and the worker stores it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from config.live import LiveSettings
from core.errors import ZenError
from core.job import Job
from stores.artifacts import META_BYTES_MAX, META_FILE, ArtifactPath
from stores.base import FileStore, ObjectStore, open_store

FRESH_S = 5.0
"""A file that may still change is read again after this long."""
SETTLED_S = 120.0
"""Of a job that ended so long ago nobody writes any more: uploads may come after the end."""
REMEMBERED_BYTES = 64 * 1024 * 1024
ENTRY_BYTES = 512
"""What is remembered of a job that has said nothing costs about this much, too."""
AT_ONCE = 16
ANSWER_S = 5.0
"""A store that does not answer within this time holds up no client: all jobs of a request are read
at once."""
Json = Mapping[str, Any]


@dataclass(slots=True)
class _Known:
    value: Json
    size: int
    read_at: float
    final_since: float | None

    def holds(self, now: float, final: bool) -> bool:
        if final and self.final_since is None:
            return False  # the end brought the whole file
        settled = self.final_since is not None and self.read_at - self.final_since > SETTLED_S
        return settled or now - self.read_at < FRESH_S


class JobMetas:
    """One for each API process."""

    def __init__(
        self,
        store: ObjectStore,
        settings: LiveSettings,
        opened: Callable[[str], FileStore] = open_store,
    ) -> None:
        self._store, self._settings, self._opened = store, settings, opened
        self._buckets: dict[str, FileStore] = {}
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._size = 0
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def of(self, job: Job, region: str | None, v1: bool) -> Json:
        """Empty: it has said nothing (yet). ZenError if the store does not answer. `region`: where
        the job runs or ran last; `v1`: on v1 workers."""
        now = asyncio.get_running_loop().time()
        known = self._known.get(job.uid)
        if known is not None and known.holds(now, job.status.final):
            self._known.move_to_end(job.uid)
            return known.value
        value, size = await self._read(job, region, v1)
        since = now if job.status.final else None
        if known is not None and known.final_since is not None:
            since = known.final_since
        self._remember(job.uid, _Known(value, size, now, since))
        return value

    async def _read(self, job: Job, region: str | None, v1: bool) -> tuple[Json, int]:
        async with self._slots:
            for store, key in self._places(job, region, v1):
                data = await store.get(key, 0, META_BYTES_MAX)
                if data:
                    return _parsed(data), len(data)
        return {}, 0

    def _places(self, job: Job, region: str | None, v1: bool) -> Iterator[tuple[ObjectStore, str]]:
        """Where it may be, the newest first. An attempt that has said nothing yet is preceded by
        one that has."""
        spec = job.spec
        if not v1:
            for attempt in range(job.attempt, max(0, job.attempt - 2), -1):
                path = ArtifactPath(spec.tenant_id, spec.user_id, spec.job_id, attempt)
                keys = (path.live_meta, path.file(META_FILE))
                # The whole file is stored at the end of the attempt.
                ended = job.status.final or attempt < job.attempt
                yield from ((self._store, key) for key in (reversed(keys) if ended else keys))
        url = self._settings.current.v1_results_url
        if url and region:
            yield self._bucket(placed(url, region)), f"{spec.user_id}/{spec.job_id}/{META_FILE}"

    def _bucket(self, url: str) -> FileStore:
        if url not in self._buckets:
            self._buckets[url] = self._opened(url)
        return self._buckets[url]

    def _remember(self, uid: str, known: _Known) -> None:
        if (old := self._known.pop(uid, None)) is not None:
            self._size -= old.size + ENTRY_BYTES
        self._known[uid] = known
        self._size += known.size + ENTRY_BYTES
        while self._size > REMEMBERED_BYTES:
            _, oldest = self._known.popitem(last=False)
            self._size -= oldest.size + ENTRY_BYTES


def placed(url: str, region: str) -> str:
    """The bucket for a region: {region} and {multi_region} are filled in. The Middle East has no
    multi-region: its buckets are called by their region."""
    multi = region.partition("-")[0]
    multi = region if multi == "me" else multi
    return url.replace("{region}", region).replace("{multi_region}", multi)


def _parsed(data: bytes) -> Json:
    if len(data) >= META_BYTES_MAX:
        return {"unavailable": f"{META_FILE} has more than {META_BYTES_MAX >> 20} MiB"}
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        return {"unavailable": f"{META_FILE} cannot be read: {error}"}


async def told(metas: JobMetas | None, job: Job, region: str | None, v1: bool) -> Json:
    """The same, in words where the store does not answer: that must not hide the job."""
    if metas is None or not job.attempt:
        return {}
    try:
        async with asyncio.timeout(ANSWER_S):
            return await metas.of(job, region, v1)
    except ZenError as error:
        return {"unavailable": str(error)}
    except TimeoutError:
        return {"unavailable": f"the store did not answer within {ANSWER_S:g} s"}
