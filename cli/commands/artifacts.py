"""zen artifacts and zen fetch: what a job stored, and bringing it here."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Api, AsJson, JobId, User, takes
from cli.output.printing import clean, console, emit, fitted, note, say
from cli.paths import PROGRAM
from core.errors import ZenError

if TYPE_CHECKING:
    from cli.client import Client, Json

PAGE = 1000
TRIES = 5
CHUNK = 1024 * 1024
Attempt = Annotated[
    int | None,
    typer.Option("--attempt", min=1, metavar="N", help="Default: the newest that stored some."),
]


class BadFetch(ZenError):
    """What came cannot be kept as it should; nothing was overwritten by it."""

    code = "bad_fetch"


def artifacts(
    job: JobId,
    attempt: Attempt = None,
    user: User = None,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """The files that a job stored: what it left in $ZEN_OUTPUT_DIR.

    \b
    Examples:
      zen artifacts train-7
      zen artifacts train-7 --attempt 1 --json
    """
    from cli.client import Client, api_address

    with Client(api_address(api)) as client:
        found = _read_all(client, job, attempt, user)
    if as_json:
        emit(found)
        return
    rows = [(_size(row["size"]), row["sha256"][:12], row["path"]) for row in found["artifacts"]]
    if rows:
        console().print(fitted(("SIZE", "SHA256", "PATH"), rows, right="SIZE", below="PATH"))
        files = "1 file" if found["total"] == 1 else f"{found['total']} files"
        say(
            f"{files}, {_size(found['bytes'])}, of attempt {found['attempt']}; "
            f"get them: {PROGRAM} fetch {job} --to DIR"
        )
    else:
        say(f"job {job} has stored nothing (yet): a job stores what it leaves in $ZEN_OUTPUT_DIR")
    for skip in found["skipped"]:
        note(f"not stored: {skip['path']}: {skip['why']}")


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
    api: Api = None
    as_json: AsJson = False


@takes(FetchOptions)
def fetch(given: FetchOptions) -> None:
    """Brings stored files here; each is checked against its checksum before it takes its name.

    \b
    Examples:
      zen fetch train-7 --to results
      zen fetch train-7 checkpoints/last --to results
      zen fetch train-7 metrics.json --to . --force
    """
    from cli.client import Client, api_address

    with Client(api_address(given.api)) as client:
        found = _read_all(client, given.job, given.attempt, given.user)
        wanted = _plan(_chosen(found["artifacts"], given.path, given.job), given.to, given.force)
        query = {"user_id": given.user, "attempt": found["attempt"]}
        for file in wanted:
            if not file.here:
                _bring(client, given.job, query, file)
                if not given.as_json:
                    say(f"{_size(file.size):>10}  {file.path}")
    if given.as_json:
        emit(
            {
                "job_id": given.job,
                "attempt": found["attempt"],
                "to": str(given.to),
                "files": [_told(file) for file in wanted],
            }
        )
    else:
        fresh = [file for file in wanted if not file.here]
        say(
            f"{len(fresh)} fetched ({_size(sum(file.size for file in fresh))}), "
            f"{len(wanted) - len(fresh)} already there, in {given.to}"
        )


@dataclass(frozen=True, slots=True)
class _Wanted:
    path: str
    size: int
    sha256: str
    target: Path
    here: bool
    """The same bytes are there already."""


def _told(file: _Wanted) -> Json:
    return {
        "path": file.path,
        "size": file.size,
        "sha256": file.sha256,
        "file": str(file.target),
        "fetched": not file.here,
    }


def _read_all(client: Client, job: str, attempt: int | None, user: str | None) -> Json:
    from cli.client import path as where

    query: dict[str, object] = {"user_id": user, "attempt": attempt, "limit": PAGE}
    found: Json = client.get(where("jobs", job, "artifacts"), query)
    # The pages that follow are of the same attempt, also if a newer one stores something now.
    query["attempt"] = found["attempt"]
    token = found["next_page_token"]
    while token is not None:
        page = client.get(where("jobs", job, "artifacts"), {**query, "page_token": token})
        found["artifacts"] += page["artifacts"]
        token = page["next_page_token"]
    found["next_page_token"] = None
    return found


def _chosen(rows: list[Json], path: str | None, job: str) -> list[Json]:
    wish = (path or "").strip("/")
    chosen = [row for row in rows if not wish or _is_below(row["path"], wish)]
    if not chosen:
        what = f"nothing at {wish}" if wish else "nothing (yet)"
        raise BadFetch(f"job {job} has stored {what}; look: {PROGRAM} artifacts {job}")
    return chosen


def _is_below(path: str, wish: str) -> bool:
    return path == wish or path.startswith(f"{wish}/")


def _plan(rows: list[Json], to: Path, force: bool) -> list[_Wanted]:
    """Where each goes. Whatever the service says, nothing is put outside of the directory."""
    wanted = []
    for row in rows:
        parts = PurePosixPath(row["path"]).parts
        if not parts or ".." in parts or parts[0] == "/":
            raise BadFetch(f"{clean(row['path'])!r} is no path below a directory")
        target = to.joinpath(*parts)
        here = _is_same(target, row["size"], row["sha256"])
        if not here and not force and target.exists():
            raise BadFetch(f"{target} is there and differs: --force replaces it")
        wanted.append(_Wanted(row["path"], row["size"], row["sha256"], target, here))
    return wanted


def _is_same(file: Path, size: int, sha256: str) -> bool:
    try:
        if file.stat().st_size != size:
            return False
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest() == sha256
    except OSError:
        return False


def _bring(client: Client, job: str, query: Json, file: _Wanted) -> None:
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


def _download(client: Client, job: str, query: Json, file: _Wanted, part: Path) -> str:
    """A connection that breaks is taken up where it broke."""
    from cli.client import Unreachable
    from cli.client import path as where

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


def _size(count: int) -> str:
    """For people: 3 B, 12.5 KB, 1.2 GB."""
    value, unit = float(count), "B"
    for bigger in ("KB", "MB", "GB", "TB"):
        if value < 1024:
            break
        value, unit = value / 1024, bigger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
