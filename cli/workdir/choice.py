"""Which directory a job is given. Pure but for looking at files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from core.errors import ZenError

NONE = "none"
COPY = "copy"


class BadWorkdir(ZenError):
    """The directory cannot be sent as it is; the text says what to change."""

    code = "bad_workdir"


def chosen(named: str | None, body: Mapping[str, Any], here: Path, home: Path) -> Path | None:
    """`named`: a directory, `none`, `copy` (the current one), or nothing: then the current one, if
    the command names a file in it. A job that brings code or runs a workflow needs none."""
    if named == NONE:
        return None
    if named == COPY:
        return here
    if named is not None:
        return _directory(named, here)
    if body.get("code") or body.get("workflow") or body.get("working_dir"):
        return None
    found = next((word for word in _words(body) if _is_ours(word, here)), None)
    if found is None:
        return None
    if here in (home, Path("/")):
        raise BadWorkdir(
            f"{found} is in {here}, which is not sent by itself: go to the directory of your "
            "project, or say --workdir . (send it all) or --workdir none (send nothing)"
        )
    return here


def user_home() -> Path:
    """A user without an entry in the list of users has none of its own."""
    try:
        return Path.home().resolve()
    except RuntimeError:
        return Path("/")


def _directory(named: str, here: Path) -> Path:
    path = (here / Path(named).expanduser()).resolve()
    if not path.is_dir():
        raise BadWorkdir(
            f"--workdir {named}: there is no such directory here; where a container starts is "
            "--working-dir"
        )
    return path


def _words(body: Mapping[str, Any]) -> Iterator[str]:
    """The words of its command; of a module (`-m a.b`) the file it is in."""
    said = [body.get(field) or () for field in ("command", "args", "script")]
    words = [word for part in said for word in ([part] if isinstance(part, str) else part)]
    words = [str(word) for word in words]
    if body.get("shell") or body.get("script"):
        words = [word for text in words for word in _shell_words(text)]
    yield from words
    for flag, module in pairwise(words):
        if flag == "-m":
            path = module.replace(".", "/")
            yield from (f"{path}.py", f"{path}/__main__.py", f"{path}/__init__.py")


def _shell_words(text: str) -> Sequence[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # quotes that only a shell makes sense of
        return text.split()


def _is_ours(word: str, here: Path) -> bool:
    """Whether it names a file below the directory; --config=FILE does too."""
    path = word.partition("=")[2] if word.startswith("-") else word
    if not path or path.startswith("/") or len(path) > 1024 or "\0" in path:
        return False
    try:
        found = (here / path).resolve()
        return found.is_relative_to(here) and found.is_file()
    except (OSError, RuntimeError):  # a name that is too long, or a circle of links
        return False
