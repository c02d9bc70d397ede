"""A job's stored outputs: what lies where, and the manifest that makes them valid.

Files are stored first, the manifest last: without a manifest there are no artifacts, so what a
dead VM left half stored is never taken for a result.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec import Struct

from core.errors import ZenError
from stores.base import AttemptPath, ObjectStore, OversizedObject, quoted, read_document

FILES_MAX = 100_000
MANIFEST_BYTES_MAX = 64 * 1024 * 1024
PATH_CHARS_MAX = 512
"""Of a file below its output directory, all of them printable: people have to name it."""
KIND = "artifacts"
META_FILE = "job-meta.json"
"""What a job says of itself: workflows of pipeline-zen write it, and their customer API reads
progress and model from it. Stored while the job runs, and however it ends."""
META_BYTES_MAX = 8 * 1024 * 1024
_KEY_BYTES_MAX = 800
"""A bucket takes names of 1024 bytes; the rest is for its prefix."""


class BadManifest(ZenError):
    """The store holds something else under that name; a human has to look."""

    code = "bad_manifest"


class File(Struct, frozen=True):
    """One stored file."""

    path: str
    """Below the output directory, with / between its parts."""
    size: int
    sha256: str


class Skipped(Struct, frozen=True):
    """Something in the output directory that is not stored."""

    path: str
    why: str


class Manifest(Struct, frozen=True):
    """All that one attempt stored, in the order of its paths."""

    files: tuple[File, ...]
    skipped: tuple[Skipped, ...] = ()
    version: int = 1

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class ArtifactPath(AttemptPath):
    """The outputs of one attempt."""

    kind = KIND

    @property
    def manifest(self) -> str:
        return f"{self.key}/manifest.json"

    @property
    def live_meta(self) -> str:
        """META_FILE while the job runs. Not where it lies in the end: a late write of the one must
        not replace the other."""
        return f"{self.key}/live/{META_FILE}"

    def file(self, path: str) -> str:
        """Where a file lies. Each part is quoted by itself, so none leads anywhere else."""
        key = f"{self.key}/files/" + "/".join(quoted(part) for part in path.split("/"))
        if len(key) <= _KEY_BYTES_MAX:
            return key
        return f"{self.key}/long/{hashlib.sha256(path.encode()).hexdigest()}"


async def write_manifest(store: ObjectStore, path: ArtifactPath, manifest: Manifest) -> None:
    """From now on the artifacts exist."""
    await store.put(path.manifest, msgspec.json.encode(manifest))


async def read_manifest(store: ObjectStore, path: ArtifactPath) -> Manifest | None:
    """None: this attempt has stored nothing, or not all of it."""
    try:
        data = await read_document(store, path.manifest, MANIFEST_BYTES_MAX)
        return None if data is None else msgspec.json.decode(data, type=Manifest)
    except (OversizedObject, msgspec.MsgspecError) as error:
        raise BadManifest(f"{path.manifest} cannot be read: {error}") from error
