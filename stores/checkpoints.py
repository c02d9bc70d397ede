"""A job's stored checkpoints: what lies where, and the manifest that makes one valid.

Files are stored first, under numbers of their own, the manifest last: a checkpoint that was stored
half is never restored. Numbers begin with the attempt, so what an older attempt still stores is
never taken for newer. Each member of a gang stores its own part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from core.errors import ZenError
from stores.base import ObjectStore, OversizedObject, job_key, read_document

KIND = "checkpoints"
MANIFEST_BYTES_MAX = 64 * 1024 * 1024
PER_ATTEMPT = 10**9
"""Numbers of one attempt."""


class BadCheckpoint(ZenError):
    """What is stored cannot be used: a file of it is gone or is another one."""

    code = "bad_checkpoint"


class CheckpointFile(Struct, frozen=True):
    """One stored file."""

    path: str
    """Below the checkpoint directory, with / between its parts."""
    size: int
    sha256: str
    number: int
    """Of the object that holds it."""


class CheckpointLink(Struct, frozen=True):
    """A symbolic link that stays inside the directory."""

    path: str
    target: str


class Checkpoint(Struct, frozen=True):
    """All that the directory held at one moment, in the order of its paths."""

    files: tuple[CheckpointFile, ...]
    links: tuple[CheckpointLink, ...] = ()
    step: float | None = None
    """As the job called it."""
    version: int = 1

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(file.number for file in self.files)


@dataclass(frozen=True, slots=True)
class CheckpointPath:
    """Where the members of one job store theirs."""

    tenant_id: str
    user_id: str
    job_name: str

    @property
    def key(self) -> str:
        return job_key(KIND, self.tenant_id, self.user_id, self.job_name)

    def member(self, rank: int) -> str:
        return f"{self.key}/{rank}"


def manifest_key(member: str, number: int) -> str:
    return f"{member}/manifests/{number}/manifest.json"


def object_key(member: str, number: int) -> str:
    return f"{member}/objects/{number}/data"


async def read_checkpoint(store: ObjectStore, member: str, number: int) -> Checkpoint:
    """BadCheckpoint if there is none, or something else."""
    key = manifest_key(member, number)
    try:
        data = await read_document(store, key, MANIFEST_BYTES_MAX)
        if data is not None:
            return msgspec.json.decode(data, type=Checkpoint)
    except (OversizedObject, msgspec.MsgspecError) as error:
        raise BadCheckpoint(f"{key} cannot be read: {error}") from error
    raise BadCheckpoint(f"{key} is gone")


async def checkpoint_numbers(store: ObjectStore, member: str) -> Sequence[int]:
    """Of the member's checkpoints, oldest first."""
    return await store.numbers(f"{member}/manifests")


async def write_checkpoint(
    store: ObjectStore, member: str, number: int, checkpoint: Checkpoint
) -> None:
    """From now on it is the newest."""
    await store.put(manifest_key(member, number), msgspec.json.encode(checkpoint))


async def drop_checkpoints(store: ObjectStore, member: str, keep: int, attempt: int) -> None:
    """All but the newest, and every object that none of those names: also what an attempt left that
    ended in between. Nothing of later attempts, and nothing of the caller's may be on its way
    meanwhile."""
    end = (attempt + 1) * PER_ATTEMPT
    numbers = await checkpoint_numbers(store, member)
    kept = [await read_checkpoint(store, member, number) for number in numbers[-keep:]]
    needed: frozenset[int] = frozenset().union(*(one.numbers for one in kept))
    for number in numbers[:-keep]:
        await store.delete(manifest_key(member, number))
    for number in await store.numbers(f"{member}/objects"):
        if number < end and number not in needed:
            await store.delete(object_key(member, number))
