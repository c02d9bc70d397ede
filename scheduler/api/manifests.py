"""Reads the manifests of stored outputs, and remembers them: once written they never change."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from core.job import Job, JobStatus
from stores.artifacts import KIND, ArtifactPath, Manifest, read_manifest
from stores.base import ObjectStore, job_key

WEIGHT_MAX = 200_000
"""Files over all manifests that are remembered; each manifest counts as one more."""
AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class StoredArtifacts:
    """The artifacts of one attempt."""

    path: ArtifactPath
    manifest: Manifest


class ManifestCache:
    """One for each API process."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._known: OrderedDict[ArtifactPath, Manifest | None] = OrderedDict()
        self._weight = 0
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def of_attempt(self, job: Job, attempt: int) -> StoredArtifacts | None:
        """None: that attempt has stored nothing (yet)."""
        spec = job.spec
        path = ArtifactPath(spec.tenant_id, spec.user_id, spec.job_id, attempt)
        if path in self._known:
            self._known.move_to_end(path)
            manifest = self._known[path]
        else:
            async with self._slots:
                manifest = await read_manifest(self.store, path)
            # Nobody writes one any more when the job has ended: also that there is none is final.
            if manifest is not None or job.status.final:
                self._remember(path, manifest)
        return None if manifest is None else StoredArtifacts(path, manifest)

    async def newest(self, job: Job) -> StoredArtifacts | None:
        """Of the last attempt that has stored something. A good end is always the last one's."""
        found = await self.of_attempt(job, job.attempt) if job.attempt else None
        if found is not None or job.status is JobStatus.SUCCEEDED or job.attempt < 2:
            return found
        spec = job.spec
        key = job_key(KIND, spec.tenant_id, spec.user_id, spec.job_id)
        async with self._slots:
            attempts = await self.store.numbers(key)
        for attempt in reversed(attempts):
            if attempt < job.attempt and (older := await self.of_attempt(job, attempt)):
                return older
        return None

    def _remember(self, path: ArtifactPath, manifest: Manifest | None) -> None:
        if path in self._known:
            return  # somebody else read it meanwhile
        self._known[path] = manifest
        self._weight += _weight(manifest)
        while self._weight > WEIGHT_MAX:
            _, old = self._known.popitem(last=False)
            self._weight -= _weight(old)


def _weight(manifest: Manifest | None) -> int:
    return 1 + (len(manifest.files) if manifest is not None else 0)
