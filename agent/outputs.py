"""Stores what a job left in its output directory, before its end is told.

The job is dead by now, so nothing moves. Links are not followed out of the directory; devices,
pipes and sockets are left where they are. What is not stored is named in the manifest.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from agent.events import Exited
from core.errors import Forbidden
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
PATIENCE_S = 600.0
"""Recomputing costs more than ten minutes of a VM that waits for its store."""
PAUSE_FIRST_S = 1.0
PAUSE_MAX_S = 30.0
SKIPPED_MAX = 1000
CANNOT_STORE = 74
"""The exit code of a job whose outputs cannot be stored by its own fault, as sysexits has it."""


class BadOutputs(Exception):
    """The job left something that cannot be stored: its own doing."""


class UploadFailed(Exception):
    """The store did not take it: not the job's doing."""


@dataclass(slots=True)
class Found:
    """What is in the directory: path below it → the file to read."""

    files: dict[str, Path] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)

    def skip(self, path: str, why: str) -> None:
        if len(self.skipped) < SKIPPED_MAX:
            self.skipped.append(Skipped(_printable(path), why))


async def store_outputs(
    store: ObjectStore, path: ArtifactPath, directory: Path, patience_s: float = PATIENCE_S
) -> Manifest | None:
    """Everything is safe when it returns; None if there was nothing. BadOutputs or NotStored."""
    found = await asyncio.to_thread(scan, directory)
    if not found.files and not found.skipped:
        return None
    done: dict[str, File] = {}
    loop = asyncio.get_running_loop()
    give_up_at, pause_s = loop.time() + patience_s, PAUSE_FIRST_S
    while True:
        try:
            await _save_all(store, path, found, done)
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
    store: ObjectStore, path: ArtifactPath, found: Found, done: dict[str, File]
) -> None:
    left = iter([name for name in found.files if name not in done])
    workers = [_save_some(store, path, found, done, left) for _ in range(AT_ONCE)]
    # Whoever meets trouble, the others finish what they have begun: it need not be sent again.
    for trouble in await asyncio.gather(*workers, return_exceptions=True):
        if trouble is not None:
            raise trouble


async def _save_some(
    store: ObjectStore,
    path: ArtifactPath,
    found: Found,
    done: dict[str, File],
    left: Iterator[str],
) -> None:
    for name in left:
        try:
            with _open(found.files[name]) as source:
                saved = await store.save(path.file(name), source)
        except OSError as error:
            raise BadOutputs(f"{_printable(name)} cannot be read: {error.strerror}") from error
        except (StoreUnavailable, Forbidden):
            for _ in left:
                pass  # nobody begins another one now
            raise
        done[name] = File(name, saved.size, saved.sha256)


def scan(directory: Path) -> Found:
    """All files below the directory, in order; BadOutputs if there are too many."""
    found = Found()
    root = directory.resolve()
    for here, directories, files in os.walk(root, onerror=_refuse):
        directories.sort()
        below = Path(here).relative_to(root)
        for name in [*directories]:
            if (Path(here) / name).is_symlink():
                found.skip(str(below / name), "a link to a directory")
        for name in sorted(files):
            _look_at(found, root, str(below / name))
        if len(found.files) > FILES_MAX:
            raise BadOutputs(f"more than {FILES_MAX} files in the output directory")
    return found


def _refuse(error: OSError) -> None:
    where = _printable(str(error.filename)) if error.filename else "a directory"
    raise BadOutputs(f"{where} cannot be read: {error.strerror}") from error


def _look_at(found: Found, root: Path, path: str) -> None:
    if not path.isprintable() or len(path) > PATH_CHARS_MAX:
        found.skip(path, f"a name that is not printable, or of more than {PATH_CHARS_MAX} letters")
        return
    file = root / path
    if file.is_symlink():
        target = Path(os.path.realpath(file))
        if not target.is_relative_to(root):
            found.skip(path, "a link that leads out of the directory")
            return
        file = target
    try:
        kind = file.lstat().st_mode
    except OSError:
        found.skip(path, "a link to nothing")
        return
    if stat.S_ISREG(kind):
        found.files[path] = file
    else:
        found.skip(path, "not a file")


def _open(file: Path) -> BinaryIO:
    """Not through a link, and not into a pipe that was put there since."""
    fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    return os.fdopen(fd, "rb")


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
