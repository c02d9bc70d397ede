"""zen artifacts and zen fetch: what a job stored, and bringing it here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from cli.client import Client, Json, Unreachable
from cli.client import path as where
from cli.options import AsJson, JobId, User, command
from cli.output.printing import Answer, clean, fitted, say
from cli.output.sizes import size_words
from cli.paths import PROGRAM
from core.errors import ZenError

PAGE = 1000
FILES_MAX = 100_000
TRIES = 5
CHUNK = 1024 * 1024
Attempt = Annotated[
    int | None,
    typer.Option("--attempt", min=1, metavar="N", help="Default: the newest that stored some."),
]


class BadFetch(ZenError):
    """What came cannot be kept as it should; nothing was overwritten by it."""

    code = "bad_fetch"


@command
def artifacts(client: Client, job: JobId, attempt: Attempt = None, user: User = None) -> Answer:
    """The files that a job stored: what it left in $ZEN_OUTPUT_DIR.

    \b
    Examples:
      zen artifacts train-7
      zen artifacts train-7 --attempt 1 --json
    """
    found = read_all(client, job, attempt, user)
    skipped = [f"not stored: {skip['path']}: {skip['why']}" for skip in found["skipped"]]
    rows = [
        (size_words(row["size"]), row["sha256"][:12], row["path"]) for row in found["artifacts"]
    ]
    if not rows:
        nothing = f"job {job} has stored nothing (yet)"
        return Answer(
            found, [f"{nothing}: a job stores what it leaves in $ZEN_OUTPUT_DIR"], skipped
        )
    table = fitted(("SIZE", "SHA256", "PATH"), rows, right="SIZE", below="PATH")
    files = "1 file" if found["total"] == 1 else f"{found['total']} files"
    fetch_them = f"get them: {PROGRAM} fetch {job} --to DIR"
    whole = f"{files}, {size_words(found['bytes'])}, of attempt {found['attempt']}; {fetch_them}"
    return Answer(found, [table, whole], skipped)


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """What `zen fetch` is given."""

    job: JobId
    path: Annotated[
        str | None, typer.Argument(metavar="[PATH]", help="A file or a directory; default: all.")
    ] = None
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="Where to put them; made if needed.")
    ] = Path()
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that are there and differ.")
    ] = False
    attempt: Attempt = None
    user: User = None
    as_json: AsJson = False


@command
def fetch(client: Client, wanted: FetchOptions) -> None:
    """Brings stored files here; each is checked against its checksum before it takes its name.

    \b
    Examples:
      zen fetch train-7 --to results
      zen fetch train-7 checkpoints/last --to results
      zen fetch train-7 metrics.json --to . --force
    """
    job, to = wanted.job, wanted.to
    found = read_all(client, job, wanted.attempt, wanted.user)
    files = plan_files(chosen(found["artifacts"], wanted.path, job), Placing(to, wanted.force))
    query = {"user_id": wanted.user, "attempt": found["attempt"]}
    missing = [file for file in files if not file.here]
    for file in missing:
        bring(client, job, query, file)
        if not wanted.as_json:
            say(f"{size_words(file.size):>10}  {file.path}")
    fetched = f"{len(missing)} fetched ({size_words(sum(file.size for file in missing))})"
    Answer(
        {
            "job_id": job,
            "attempt": found["attempt"],
            "to": str(to),
            "files": [told(file) for file in files],
        },
        [f"{fetched}, {len(files) - len(missing)} already there, in {to}"],
    ).print(wanted.as_json)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A stored file, and where it goes."""

    path: str
    size: int
    sha256: str
    target: Path
    here: bool
    """The same bytes are there already."""


def told(file: StoredFile) -> Json:
    return {
        "path": file.path,
        "size": file.size,
        "sha256": file.sha256,
        "file": str(file.target),
        "fetched": not file.here,
    }


def read_all(client: Client, job: str, attempt: int | None, user: str | None) -> Json:
    query: dict[str, object] = {"user_id": user, "attempt": attempt, "limit": PAGE}
    found: Json = client.get(where("jobs", job, "artifacts"), query)
    # The pages that follow are of the same attempt, also if a newer one stores something now.
    query["attempt"] = found["attempt"]
    client.read_on(found, where("jobs", job, "artifacts"), query, "artifacts", FILES_MAX)
    return found


def chosen(rows: list[Json], path: str | None, job: str) -> list[Json]:
    wanted = (path or "").strip("/")
    chosen = [row for row in rows if not wanted or _is_below(row["path"], wanted)]
    if not chosen:
        what = f"nothing at {wanted}" if wanted else "nothing (yet)"
        raise BadFetch(f"job {job} has stored {what}; look: {PROGRAM} artifacts {job}")
    return chosen


def _is_below(path: str, wanted: str) -> bool:
    return path == wanted or path.startswith(f"{wanted}/")


@dataclass(frozen=True, slots=True)
class Placing:
    """Where files go."""

    to: Path
    force: bool = False
    """Files that are there and differ are replaced."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Path of a stored file → what it becomes below the directory; without it: the same."""


def plan_files(rows: list[Json], placing: Placing) -> list[StoredFile]:
    """Where each goes. Whatever the service says, nothing is put outside of the directory."""
    wanted = []
    for row in rows:
        parts = PurePosixPath(placing.names.get(row["path"], row["path"])).parts
        if not parts or ".." in parts or parts[0] == "/":
            raise BadFetch(f"{clean(row['path'])!r} is no path below a directory")
        target = placing.to.joinpath(*parts)
        here = _is_same(target, row["size"], row["sha256"])
        if not here and not placing.force and target.exists():
            raise BadFetch(f"{target} is there and differs: --force replaces it")
        wanted.append(StoredFile(row["path"], row["size"], row["sha256"], target, here))
    return wanted


def _is_same(file: Path, size: int, sha256: str) -> bool:
    try:
        if file.stat().st_size != size:
            return False
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest() == sha256
    except OSError:
        return False


def bring(client: Client, job: str, query: Json, file: StoredFile) -> None:
    part = file.target.with_name(f".{file.target.name}.zen-part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        try:
            digest = _download(client, job, query, file, part)
            if digest != file.sha256:
                raise BadFetch(f"{file.path}: other bytes came than were stored; try again")
            part.replace(file.target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise BadFetch(f"cannot write {error.filename or part}: {error.strerror}") from error


def _download(client: Client, job: str, query: Json, file: StoredFile, part: Path) -> str:
    """A connection that breaks is taken up where it broke."""
    digest, have = hashlib.sha256(), 0
    with part.open("wb") as out:
        for left in reversed(range(TRIES)):
            head = {"Range": f"bytes={have}-"} if have else {}
            asked = {**query, "path": file.path}
            try:
                url = where("jobs", job, "artifacts", "file")
                with client.stream(url, asked, head) as answer:
                    for data in answer.iter_bytes(CHUNK):
                        out.write(data)
                        digest.update(data)
                        have += len(data)
                if have == file.size:
                    break
            except Unreachable:
                if not left or not have:
                    raise
    return digest.hexdigest()
