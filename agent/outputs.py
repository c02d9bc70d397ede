"""Stores what a job left in its output directory, before its end is told.

The job is dead by now, so nothing moves. Every file is opened beneath a descriptor of the
directory, never through a link; devices, pipes and sockets are left where they are. What is
not stored is named in the manifest. More bytes than the cap, holes included: nothing is.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from agent.events import Exited
from agent.held_directory import HeldDirectory
from core.errors import Forbidden
from core.sandbox import GB, SandboxRules
from stores.artifacts import (
    FILES_MAX,
    PATH_CHARS_MAX,
    ArtifactPath,
    File,
    Manifest,
    Skipped,
    write_manifest,
)
from stores.base import ObjectStore, StoreUnavailable

AT_ONCE = 8
"""Files on their way together: small ones wait for the store, not for us."""
STORE_WAIT_MAX_S = 600.0
"""Recomputing costs more than ten minutes of a VM that waits for its store."""
PAUSE_FIRST_S = 1.0
PAUSE_MAX_S = 30.0
SKIPPED_MAX = 1000
HOLES_MAX = GB
"""Bytes of sparse files that are on no disk: the store would have to keep them all as zeros."""
HOLES_COUNTED_MAX = 10_000
"""Of one file."""
CANNOT_STORE = 74
"""The exit code of a job whose outputs cannot be stored by its own fault, as sysexits has it."""


class BadOutputs(Exception):
    """The job left something that cannot be stored: its own doing."""


class UploadFailed(Exception):
    """The store did not take it: not the job's doing."""


@dataclass(slots=True)
class Found:
    """What is in the directory: path below it → the path of the file to read, without links."""

    files: dict[str, str] = field(default_factory=dict)
    bytes_total: int = 0
    """As the files say it, holes included."""
    holes: int = 0
    skipped: list[Skipped] = field(default_factory=list)

    def skip(self, path: str, why: str) -> None:
        if len(self.skipped) < SKIPPED_MAX:
            self.skipped.append(Skipped(_printable(path), why))


@dataclass(frozen=True, slots=True)
class OutputDirectory:
    """Where a job leaves its outputs: in `base`, which the agent has held open since it began."""

    base: HeldDirectory
    names: Sequence[str] = ()
    """Paths of the output directory as the job knows them: for absolute links."""
    bytes_max: int = SandboxRules().outputs_max
    path: str = "outputs"

    def hold(self) -> HeldDirectory:
        """BadOutputs if it is not a directory any more."""
        try:
            return self.base.below(self.path)
        except OSError as error:
            why = f"{error.strerror}; a link is not followed"
            raise BadOutputs(f"the output directory cannot be opened: {why}") from error


async def store_outputs(
    store: ObjectStore,
    path: ArtifactPath,
    place: OutputDirectory,
    wait_max_s: float = STORE_WAIT_MAX_S,
) -> Manifest | None:
    """Everything is safe when it returns; None if there was nothing. BadOutputs or UploadFailed."""
    with place.hold() as directory:
        found = await asyncio.to_thread(scan, directory, place.names)
        check_size(found, place.bytes_max)
        if not found.files and not found.skipped:
            return None
        return await _store_found(store, path, directory, found, wait_max_s)


def check_size(found: Found, bytes_max: int) -> None:
    """BadOutputs if the store should not have to keep so much."""
    if found.bytes_total > bytes_max:
        raise BadOutputs(
            f"{found.bytes_total / GB:.1f} GB in the output directory, at most "
            f"{bytes_max / GB:g} GB are stored (sandbox.outputs_max_gb)"
        )
    if found.holes > HOLES_MAX:
        raise BadOutputs(
            f"sparse files in the output directory have {found.holes / GB:.1f} GB of holes, at "
            f"most {HOLES_MAX / GB:g} GB are stored: write them in full, or compress them"
        )


async def _store_found(
    store: ObjectStore,
    path: ArtifactPath,
    directory: HeldDirectory,
    found: Found,
    wait_max_s: float,
) -> Manifest:
    done: dict[str, File] = {}
    loop = asyncio.get_running_loop()
    give_up_at, pause_s = loop.time() + wait_max_s, PAUSE_FIRST_S
    while True:
        try:
            await _save_all(store, path, directory, found, done)
            manifest = Manifest(tuple(done[name] for name in sorted(done)), tuple(found.skipped))
            await write_manifest(store, path, manifest)
            return manifest
        # The store's own retries bridge seconds; these bridge an outage, and go on where it was.
        except StoreUnavailable as error:
            if loop.time() + pause_s > give_up_at:
                raise UploadFailed(str(error)) from error
        except Forbidden as error:
            raise UploadFailed(str(error)) from error
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_MAX_S)


async def _save_all(
    store: ObjectStore,
    path: ArtifactPath,
    directory: HeldDirectory,
    found: Found,
    done: dict[str, File],
) -> None:
    left = iter([(name, at) for name, at in found.files.items() if name not in done])
    workers = [_save_some(store, path, directory, done, left) for _ in range(AT_ONCE)]
    # If one upload fails, the others finish what they have begun: it need not be sent again.
    for failure in await asyncio.gather(*workers, return_exceptions=True):
        if failure is not None:
            raise failure


async def _save_some(
    store: ObjectStore,
    path: ArtifactPath,
    directory: HeldDirectory,
    done: dict[str, File],
    left: Iterator[tuple[str, str]],
) -> None:
    for name, at in left:
        try:
            with directory.open(at) as source:
                saved = await store.save(path.file(name), source)
        except OSError as error:
            raise BadOutputs(
                f"{_printable(name)} cannot be read: {error.strerror or error}"
            ) from error
        except (StoreUnavailable, Forbidden):
            for _ in left:
                pass  # nobody begins another one now
            raise
        done[name] = File(name, saved.size, saved.sha256)


def scan(directory: HeldDirectory, names: Sequence[str] = ()) -> Found:
    """All files below the directory, in order; BadOutputs if there are too many. The directories of
    one level come before their contents, so the order is that of a walk from the top."""
    found = Found()
    ahead = [""]
    while ahead:
        below = ahead.pop()
        try:
            with directory.below(below) as here:
                directories, others = here.names()
        except OSError as error:
            where = _printable(below) or "the output directory"
            raise BadOutputs(f"{where} cannot be read: {error.strerror}") from error
        at = f"{below}/" if below else ""
        for name in others:
            _look_at(found, directory, at + name, names)
        for name in reversed(directories):
            if len(at + name) > PATH_CHARS_MAX:
                found.skip(at + name, f"a name of more than {PATH_CHARS_MAX} letters")
            else:
                ahead.append(at + name)
        if len(found.files) > FILES_MAX or len(ahead) > FILES_MAX:
            raise BadOutputs(f"more than {FILES_MAX} files in the output directory")
    return found


def _look_at(found: Found, directory: HeldDirectory, path: str, names: Sequence[str]) -> None:
    if not path.isprintable() or len(path) > PATH_CHARS_MAX:
        found.skip(path, f"a name that is not printable, or of more than {PATH_CHARS_MAX} letters")
        return
    target = directory.resolve(path, names)
    if target is None:
        found.skip(path, "a link that leads out of the directory")
        return
    try:
        about = directory.stat(target)
    except OSError:
        found.skip(path, "a link to nothing")
        return
    if stat.S_ISDIR(about.st_mode):
        found.skip(path, "a link to a directory")
    elif not stat.S_ISREG(about.st_mode):
        found.skip(path, "not a file")
    else:
        found.files[path] = target
        found.bytes_total += about.st_size
        if about.st_blocks * 512 < about.st_size:
            found.holes += _holes(directory, target, about.st_size)


def _holes(directory: HeldDirectory, path: str, size: int) -> int:
    """Bytes that are on no disk. A file system that compresses has few blocks and no holes."""
    try:
        with directory.open(path) as file:
            data, at = 0, 0
            for _ in range(HOLES_COUNTED_MAX):
                try:
                    begin = os.lseek(file.fileno(), at, os.SEEK_DATA)
                except OSError:  # no data beyond
                    break
                at = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
                data += at - begin
            return max(0, size - data)
    except OSError:
        return 0  # it is read again to be stored, and named then


def _printable(path: str) -> str:
    """As UTF-8; what is none is shown by its bytes."""
    return os.fsencode(path).decode(errors="backslashreplace").replace("\0", "")


def judge(saving: asyncio.Task[Manifest | None], ended: Exited) -> tuple[Exited, str]:
    """What the end is after storing was tried, and what its owner should read about it. A good end
    is good only if its outputs are safe."""
    good = ended.exit_code == 0
    if saving.cancelled() or not saving.done():
        note = "the outputs were not stored: there was no time"
        return (replace(ended, exit_code=None, reason=note) if good else ended), note
    error = saving.exception()
    if error is None:
        manifest = saving.result()
        return ended, _about_skipped(manifest) if manifest else ""
    note = f"the outputs could not be stored: {error}"
    if not good:
        return ended, note
    # The store's fault is not the job's: without an exit code it counts as a lost VM does.
    code = CANNOT_STORE if isinstance(error, BadOutputs) else None
    return replace(ended, exit_code=code, reason=note), note


def _about_skipped(manifest: Manifest) -> str:
    if not manifest.skipped:
        return ""
    some = ", ".join(f"{skip.path} ({skip.why})" for skip in manifest.skipped[:3])
    more = f" and {len(manifest.skipped) - 3} more" if len(manifest.skipped) > 3 else ""
    return f"not stored: {some}{more}"
