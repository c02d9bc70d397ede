"""What of a directory is sent: all that .gitignore and .zenignore leave."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from cli.workdir.choice import BadWorkdir
from stores.code_trees import TreeLink, link_fault, path_fault

IGNORE_FILES = (".gitignore", ".zenignore")
"""In this order: the second may take back what the first leaves out."""
NEVER = frozenset({".git", "__pycache__"})
IGNORE_BYTES_MAX = 1024 * 1024
LARGEST = 5


class SeenFile(NamedTuple):
    """A file as it was seen."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    executable: bool


class Scanned(NamedTuple):
    """Files and links by path."""

    root: Path
    files: list[SeenFile]
    links: list[TreeLink]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class _Rules(NamedTuple):
    """The patterns of one directory. They judge a path from there: without its first `below`
    letters, or with `above` before it."""

    below: int
    spec: GitIgnoreSpec
    above: str = ""


def scan(root: Path, files_max: int) -> Scanned:
    """BadWorkdir for what cannot be sent, and for more than `files_max` files."""
    root = root.resolve()
    files: list[SeenFile] = []
    links: list[TreeLink] = []
    ahead: list[tuple[str, list[_Rules]]] = [("", _rules_above(root))]
    while ahead:
        directory, rules = ahead.pop()
        rules = rules + _rules_of(root / directory, len(directory))
        with _listed(root / directory) as entries:
            for entry in entries:
                path = f"{directory}{entry.name}"
                if entry.name in NEVER:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if not _ignored(f"{path}/", rules):
                        ahead.append((f"{path}/", rules))
                elif not _ignored(path, rules):
                    _take(entry, path, files, links)
        if len(files) > files_max:
            raise BadWorkdir(_too_many(root, files, files_max))
    files.sort()
    links.sort(key=lambda link: link.path)
    return Scanned(root, files, links)


def refuse_large(found: Scanned, bytes_max: int) -> None:
    """BadWorkdir that names the largest files."""
    if (size := found.size) <= bytes_max:
        return
    most = sorted(found.files, key=lambda file: -file.size)[:LARGEST]
    named = ", ".join(f"{file.path} ({amount(file.size)})" for file in most)
    raise BadWorkdir(
        f"{found.root} has {amount(size)} to send, and {amount(bytes_max)} are taken "
        f"(code.tree_max_gb); the largest are {named}: leave out what the job does not need with "
        "a .zenignore (as .gitignore), and let it read data from a bucket"
    )


def _too_many(root: Path, files: Sequence[SeenFile], files_max: int) -> str:
    counts: dict[str, int] = {}
    for file in files:
        top = file.path.rpartition("/")[0] or "."
        counts[top] = counts.get(top, 0) + 1
    most = sorted(counts.items(), key=lambda one: -one[1])[:LARGEST]
    named = ", ".join(f"{directory} ({count})" for directory, count in most)
    return (
        f"{root} has more than {files_max} files to send (code.tree_max_files); most are in "
        f"{named}: leave out what the job does not need with a .zenignore (as .gitignore)"
    )


def amount(size: float) -> str:
    """Bytes for people."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _listed(directory: Path) -> os._ScandirIterator[str]:
    try:
        return os.scandir(directory)
    except OSError as error:
        raise BadWorkdir(
            f"{directory} cannot be read: {error.strerror}; leave it out with a .zenignore"
        ) from error


def _take(entry: os.DirEntry[str], path: str, files: list[SeenFile], links: list[TreeLink]) -> None:
    seen = entry.stat(follow_symlinks=False)
    if stat.S_ISLNK(seen.st_mode):
        target = str(Path(entry.path).readlink())
        if (why := link_fault(path, target) or _text_fault(target)) is not None:
            raise BadWorkdir(
                f"the link {path} points to {target}: expected {why}; leave it out with a "
                ".zenignore, or copy what it points to"
            )
        links.append(TreeLink(path, target))
        return
    if (why := _text_fault(path) or path_fault(path)) is not None:
        raise BadWorkdir(f"{path!a} cannot be sent: expected {why}")
    if stat.S_ISREG(seen.st_mode):  # sockets, pipes and devices stay here
        runs = bool(seen.st_mode & stat.S_IXUSR)
        kept = (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino)
        files.append(SeenFile(path, *kept, runs))


def _text_fault(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return "a name in UTF-8"
    return None


def _rules_of(directory: Path, below: int) -> list[_Rules]:
    lines: list[str] = []
    for name in IGNORE_FILES:
        try:
            with (directory / name).open(encoding="utf-8", errors="replace") as opened:
                lines += opened.read(IGNORE_BYTES_MAX).splitlines()
        except (FileNotFoundError, IsADirectoryError):
            continue
        except OSError as error:
            raise BadWorkdir(f"{directory / name} cannot be read: {error.strerror}") from error
    if not lines:
        return []
    try:
        return [_Rules(below, GitIgnoreSpec.from_lines(lines))]
    except ValueError as error:
        raise BadWorkdir(f"an ignore file in {directory} has a wrong pattern: {error}") from error


def _rules_above(root: Path) -> list[_Rules]:
    """Of the repository around the directory, from its top down: paths are judged from there."""
    above: list[Path] = []
    for parent in (root, *root.parents):
        above.append(parent)
        if (parent / ".git").exists():
            break
    else:
        return []
    made: list[_Rules] = []
    for parent in reversed(above[1:]):
        prefix = f"{root.relative_to(parent).as_posix()}/"
        made += [rules._replace(above=prefix) for rules in _rules_of(parent, 0)]
    # A directory that the repository itself leaves out was named on purpose.
    return [] if _ignored("", made) else made


def _ignored(path: str, rules: Sequence[_Rules]) -> bool:
    """The deepest directory that has a pattern for it decides, as in git."""
    for below, spec, above in reversed(rules):
        verdict = spec.check_file(f"{above}{path[below:]}").include
        if verdict is not None:
            return verdict
    return False
