"""Keeps a job's checkpoint directory in a store that is no file system: while the job runs, when it
has ended, and back before its next attempt.

A checkpoint is taken when the job says that it has saved one. Of a job that has never said so it is
taken when nothing in the directory has changed for a while, and when the job has ended by itself.
It counts only if nothing changed while it was stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import stat
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from agent.held_directory import HeldDirectory
from agent.outputs import PAUSE_FIRST_S, PAUSE_MAX_S, STORE_WAIT_MAX_S
from core.errors import ZenError
from core.messages import StartJob
from core.sandbox import GB, SandboxRules
from stores.base import READ_MAX, FileStore, ObjectStore, StoreUnavailable
from stores.checkpoints import (
    PER_ATTEMPT,
    BadCheckpoint,
    Checkpoint,
    CheckpointFile,
    CheckpointLink,
    CheckpointPath,
    checkpoint_numbers,
    drop_checkpoints,
    object_key,
    read_checkpoint,
    write_checkpoint,
)

LOOK_S = 2.0
QUIET_S = 10.0
"""Nothing has changed for so long: the job has finished writing."""
FILES_MAX = 100_000
AT_ONCE = 8
NOT_STORED = "the checkpoint was not stored"


class CheckpointTooLarge(ZenError):
    """More than may be stored."""

    code = "checkpoint_too_large"


@dataclass(frozen=True, slots=True)
class FileMark:
    """Tells one version of a file from another."""

    size: int
    changed_ns: int
    inode: int


@dataclass(slots=True)
class DirectoryState:
    """What is in the directory at one moment."""

    files: dict[str, FileMark] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(mark.size for mark in self.files.values())


def survey(directory: HeldDirectory) -> DirectoryState:
    """All files, and the links that stay inside; anything else is left where it is. A directory
    that goes meanwhile is a change like any other. CheckpointTooLarge: too many files."""
    found, ahead = DirectoryState(), [""]
    while ahead:
        below = ahead.pop()
        try:
            with directory.below(below) as here:
                directories, others = here.names()
        except OSError:
            continue
        at = f"{below}/" if below else ""
        ahead += [at + name for name in directories]
        for path in (at + name for name in others):
            _look_at(directory, path, found)
        if len(found.files) + len(ahead) > FILES_MAX:
            raise CheckpointTooLarge(f"more than {FILES_MAX} files among the checkpoints")
    return found


def _look_at(directory: HeldDirectory, path: str, found: DirectoryState) -> None:
    try:
        about = directory.stat(path)
    except OSError:
        return
    if stat.S_ISREG(about.st_mode):
        found.files[path] = FileMark(about.st_size, about.st_mtime_ns, about.st_ino)
    elif stat.S_ISLNK(about.st_mode):
        target = directory.link(path)
        if target is not None and not target.startswith("/") and directory.resolve(path):
            found.links[path] = target


@dataclass(slots=True)
class CheckpointSync:
    """Of one attempt. `saved` hears of each checkpoint that is safe, with the step that the job
    named, if any."""

    store: ObjectStore
    path: CheckpointPath
    rank: int
    attempt: int
    directory: Path
    saved: Callable[[float], None]
    rules: SandboxRules = field(default_factory=SandboxRules)
    frozen: bool = False
    """The job stands still: that nothing changes says nothing then."""
    note: str = ""
    """Why the last try stored nothing; for the job's owner."""
    _held: HeldDirectory | None = None
    _last: int = 0
    _known: dict[str, tuple[FileMark, CheckpointFile | None]] = field(default_factory=dict)
    """By path: the version that is stored, and where; None: another member stores it."""
    _stored: DirectoryState = field(default_factory=DirectoryState)
    _step: float | None = None
    _announced: asyncio.Event = field(default_factory=asyncio.Event)
    _storing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def member(self) -> str:
        return self.path.member(self.rank)

    # --- before the job ---------------------------------------------------------------------

    async def restore(self) -> str:
        """The newest whole checkpoint of each member, and nothing else, is in the directory then.
        Says what could not be used. StoreUnavailable, Forbidden, OSError."""
        await asyncio.to_thread(_emptied, self.directory)
        notes: list[str] = []
        links: dict[str, str] = {}
        ranks = await self.store.numbers(self.path.key)
        for rank in sorted(ranks, key=lambda rank: rank == self.rank):
            notes += await self._restore_member(rank, links)
        self._held = HeldDirectory.of(self.directory)
        await asyncio.to_thread(_link_all, self.directory, self._held, links)
        self._remember(await asyncio.to_thread(survey, self._held))
        return "; ".join(notes)

    async def _restore_member(self, rank: int, links: dict[str, str]) -> list[str]:
        """Its links wait until the files of all members are there: no file is written through
        one."""
        member, notes = self.path.member(rank), []
        for number in reversed(await checkpoint_numbers(self.store, member)):
            fetched: list[str] = []
            try:
                found = await read_checkpoint(self.store, member, number)
                await self._fetch_all(member, found, fetched)
            except BadCheckpoint as error:
                notes.append(f"checkpoint {number} cannot be used: {error}")
                for path in fetched:
                    _place(self.directory, path).unlink(missing_ok=True)
                continue
            mine = rank == self.rank
            links.update((link.path, link.target) for link in found.links)
            for file in found.files:
                self._known[file.path] = (FileMark(0, 0, 0), file if mine else None)
            break
        return notes

    async def _fetch_all(self, member: str, checkpoint: Checkpoint, fetched: list[str]) -> None:
        left = iter(checkpoint.files)

        async def some() -> None:
            for file in left:
                fetched.append(file.path)
                await self._fetch(member, file)

        await _all_of(some)

    async def _fetch(self, member: str, file: CheckpointFile) -> None:
        place, key = _place(self.directory, file.path), object_key(member, file.number)
        digest, at = hashlib.sha256(), 0
        place.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(place, flags, 0o600), "wb") as target:
            os.fchmod(target.fileno(), 0o666)
            while chunk := await self.store.get(key, at, READ_MAX):
                digest.update(chunk)
                at += len(chunk)
                await asyncio.to_thread(target.write, chunk)
        if (at, digest.hexdigest()) != (file.size, file.sha256):
            raise BadCheckpoint(f"{file.path} is not what was stored")

    def _remember(self, found: DirectoryState) -> None:
        """What is there now is what is stored."""
        self._known = {
            path: (mark, self._known[path][1])
            for path, mark in found.files.items()
            if path in self._known
        }
        self._stored = found

    # --- while it runs ----------------------------------------------------------------------

    def announce(self, step: float) -> None:
        """The job says that it has saved: what is there now is whole."""
        self._step = step
        self._announced.set()

    async def follow(self) -> None:
        """Until cancelled."""
        assert self._held is not None, "it was restored before"
        seen, still_s = self._stored, 0.0
        while True:
            told = await self._pause()
            try:
                now = await asyncio.to_thread(survey, self._held)
            except ZenError as error:
                self.note = f"{NOT_STORED}: {error}"
                continue
            still_s = still_s + LOOK_S if now == seen and not self.frozen else 0.0
            seen = now
            if now == self._stored:
                self._tell(self._step if told else None)
            elif told or (self._step is None and still_s >= QUIET_S):
                await self.store_now()

    async def _pause(self) -> bool:
        """Whether the job said something meanwhile."""
        try:
            async with asyncio.timeout(LOOK_S):
                await self._announced.wait()
        except TimeoutError:
            return False
        self._announced.clear()
        return True

    async def finish(self, *, by_itself: bool) -> None:
        """When the job has ended. What was being written when it was killed may be half of
        something, and so may what follows the last checkpoint that it told of."""
        if self._announced.is_set() or (by_itself and self._step is None):
            await self.store_now()

    def _tell(self, step: float | None) -> None:
        if step is not None:
            self.saved(step)

    # --- storing ----------------------------------------------------------------------------

    async def store_now(self) -> bool:
        """Whether all of it is safe now. What goes wrong is noted: the job goes on."""
        async with self._storing:
            try:
                whole = await self._store()
            except (ZenError, OSError) as error:
                self.note = f"{NOT_STORED}: {error}"
                return False
            self.note = "" if whole else f"{NOT_STORED}: it changed meanwhile"
            return whole

    async def _store(self) -> bool:
        assert self._held is not None, "it was restored before"
        step, before = self._step, await asyncio.to_thread(survey, self._held)
        if before == self._stored:
            self._tell(step)
            return True
        if before.size > self.rules.checkpoints_max:
            raise CheckpointTooLarge(
                f"{before.size / GB:.1f} GB, at most {self.rules.checkpoints_max_gb} GB are kept "
                "(sandbox.checkpoints_max_gb)"
            )
        await self._save_all(before)
        if await asyncio.to_thread(survey, self._held) != before:
            return False
        files = [self._known[path][1] for path in sorted(before.files)]
        links = [CheckpointLink(path, before.links[path]) for path in sorted(before.links)]
        own = tuple(file for file in files if file is not None)
        taken = Checkpoint(own, tuple(links), step)
        await write_checkpoint(self.store, self.member, self._next(), taken)
        self._remember(before)
        self._tell(step)
        with suppress(ZenError):  # the next one tries again
            keep = self.rules.checkpoints_keep
            await drop_checkpoints(self.store, self.member, keep, self.attempt)
        return True

    async def _save_all(self, found: DirectoryState) -> None:
        left = iter(
            [
                (path, mark)
                for path, mark in found.files.items()
                if path not in self._known or self._known[path][0] != mark
            ]
        )

        async def some() -> None:
            for path, mark in left:
                await self._save(path, mark)

        await _all_of(some)

    async def _save(self, path: str, mark: FileMark) -> None:
        assert self._held is not None, "it was restored before"
        number = self._next()
        with self._held.open(path) as source:
            stored = await self.store.save(object_key(self.member, number), source)
        self._known[path] = (mark, CheckpointFile(path, stored.size, stored.sha256, number))

    def _next(self) -> int:
        self._last += 1
        return self.attempt * PER_ATTEMPT + self._last

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


async def _all_of(worker: Callable[[], Awaitable[None]]) -> None:
    """Several at a time. If one fails, the others finish what they have begun."""
    workers = [worker() for _ in range(AT_ONCE)]
    for failure in await asyncio.gather(*workers, return_exceptions=True):
        if failure is not None:
            raise failure


def _emptied(directory: Path) -> None:
    """What an attempt left on this VM may be half of something: the store has what is whole."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)


def _link_all(directory: Path, held: HeldDirectory, links: Mapping[str, str]) -> None:
    """Links that lead out are left away: members stored theirs without knowing each other's."""
    made: list[Path] = []
    for path, target in links.items():
        with suppress(BadCheckpoint):  # it would lie behind another one
            place = _place(directory, path)
            place.unlink(missing_ok=True)
            place.symlink_to(target)
            made.append(place)
    for place in made:
        if not held.resolve(str(place.relative_to(directory))):
            place.unlink(missing_ok=True)


def _place(directory: Path, path: str) -> Path:
    """Where a stored file belongs. Its parts were names in a directory: none leads elsewhere.
    BadCheckpoint if one does."""
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise BadCheckpoint(f"{path!r} is no path below the directory")
    here = directory
    for part in parts[:-1]:
        here = here / part
        if here.is_symlink():
            raise BadCheckpoint(f"{path!r} leads through a link")
        if not here.is_dir():
            here.mkdir()
            here.chmod(0o777)
    return here / parts[-1]


def sync_for(
    order: StartJob,
    store: FileStore,
    directory: Path,
    rules: SandboxRules,
    saved: Callable[[float], None],
) -> CheckpointSync | None:
    """None: the directory lies in the store."""
    spec = order.spec
    path = CheckpointPath(spec.tenant_id, spec.user_id, order.job_name)
    if store.directory(path.key) == directory:
        return None
    return CheckpointSync(store, path, order.rank, order.attempt, directory, saved, rules)


async def restored(sync: CheckpointSync, wait_max_s: float = STORE_WAIT_MAX_S) -> str:
    """The same as restore(), through an outage of the store."""
    loop = asyncio.get_running_loop()
    give_up_at, pause_s = loop.time() + wait_max_s, PAUSE_FIRST_S
    while True:
        try:
            return await sync.restore()
        except StoreUnavailable:
            if loop.time() + pause_s > give_up_at:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_MAX_S)
