"""The file of the scheduler's private keys: one key a line, the first is the one in use. Every
replica has the same file; nobody but its owner may read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from core.errors import BadInput, Fault
from core.ports import Ids
from messaging.proofs.keys import SCHEDULER_KEYS_MAX, SchedulerKey
from messaging.proofs.texts import BadKey

FIELD = "workers.key_file"
FILE_BYTES_MAX = 64 * 1024
_MODE = 0o600
_HEAD = "# Private keys of the scheduler for speaking with its workers: keep them secret.\n"


def _fault(path: Path, expected: str) -> BadInput:
    return BadInput([Fault(FIELD, str(path), expected)])


def read_scheduler_keys(path: Path) -> tuple[SchedulerKey, ...]:
    """The keys, or BadInput that says what to do."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        expected = f"a readable file ({error.strerror}); `zen workers keys create` makes one"
        raise _fault(path, expected) from error
    with os.fdopen(handle, "rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise _fault(path, f"a file for its owner alone: chmod 600 (it is {mode:o})")
        text = file.read(FILE_BYTES_MAX).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines()]
    words = [line for line in lines if line and not line.startswith("#")]
    try:
        keys = tuple(map(SchedulerKey.parse, words))
    except BadKey:
        raise _fault(path, "keys as `zen workers keys create` writes them") from None
    if not 0 < len(keys) <= SCHEDULER_KEYS_MAX:
        raise _fault(path, f"1 to {SCHEDULER_KEYS_MAX} keys, one a line (it has {len(keys)})")
    return keys


def new_key(ids: Ids) -> SchedulerKey:
    return SchedulerKey.from_seeds(ids.seed(), ids.seed())


def create_scheduler_keys(path: Path, ids: Ids) -> bool:
    """A file with one new key, for its owner alone; False: there is a file, which stays as it
    is."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f"{_HEAD}{new_key(ids).text}\n")
    return True


def add_scheduler_key(path: Path, ids: Ids) -> tuple[SchedulerKey, ...]:
    """One more key at the end of the file, which is made if there is none. BadInput if it is full.
    Workers use the first key of their template: the order in the file says when that changes."""
    if create_scheduler_keys(path, ids):
        return read_scheduler_keys(path)
    keys = read_scheduler_keys(path)
    if len(keys) == SCHEDULER_KEYS_MAX:
        raise _fault(path, f"fewer than {SCHEDULER_KEYS_MAX} keys: take one out that is not in use")
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{new_key(ids).text}\n")
    return read_scheduler_keys(path)


def public_text(keys: tuple[SchedulerKey, ...]) -> str:
    """For the instance template: what workers know of the keys."""
    return " ".join(key.public.text for key in keys)
