"""The file of the keys that stored secrets are sealed with: one a line, the first seals, all of
them open. Every replica has the same file; nobody but its owner may read it."""

from __future__ import annotations

import base64
import binascii
import os
import stat
from contextlib import suppress
from pathlib import Path

from core.errors import BadInput, Fault
from core.ports import Ids

FIELD = "secrets.key_file"
KEY_BYTES = 32
KEYS_MAX = 16
FILE_BYTES_MAX = 16 * 1024
MAKE = "`zen secrets key FILE` makes one"
_HEAD = "# Keys that tenants' secrets are sealed with. Keep them out of the database's backups.\n"


def read_keys(path: Path) -> list[bytes]:
    """The keys, or BadInput that says what to do."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _fault(path, f"a readable file ({error.strerror}); {MAKE}") from error
    with os.fdopen(handle, "rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise _fault(path, f"a file for its owner alone: chmod 600 (it is {mode:o})")
        lines = file.read(FILE_BYTES_MAX).decode(errors="replace").splitlines()
    words = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not 0 < len(words) <= KEYS_MAX:
        raise _fault(path, f"1 to {KEYS_MAX} keys, one a line (it has {len(words)}); {MAKE}")
    return [_key(path, word) for word in words]


def make_key(path: Path, ids: Ids) -> None:
    """A file with one key, unless there is a file."""
    if not path.exists():
        fresh = _written(path, ids, "")
        with suppress(FileExistsError):  # of two that make it at once one wins
            path.hardlink_to(fresh)
        fresh.unlink()


def add_key(path: Path, ids: Ids) -> int:
    """A new key before the ones that the file has; how many it has now. A reader sees the old file
    or the new one."""
    known = read_keys(path)
    if len(known) >= KEYS_MAX:
        raise _fault(path, f"fewer than {KEYS_MAX} keys: take out the ones that seal nothing")
    _written(path, ids, path.read_text(encoding="utf-8").removeprefix(_HEAD)).rename(path)
    return len(known) + 1


def _written(path: Path, ids: Ids, rest: str) -> Path:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    line = base64.urlsafe_b64encode(ids.seed()).decode()
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as out:
        out.write(f"{_HEAD}{line}\n{rest}")
    return fresh


def _key(path: Path, word: str) -> bytes:
    try:
        key = base64.b64decode(word, altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise _fault(path, f"keys as they were written ({MAKE})")
    return key


def _fault(path: Path, expected: str) -> BadInput:
    return BadInput([Fault(FIELD, str(path), expected)])
