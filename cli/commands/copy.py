"""zen cp: stored files of a job, by the words that scp and kubectl cp take."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from cli.client import Client, Json
from cli.commands.artifacts import (
    Attempt,
    BadFetch,
    Placing,
    bring,
    chosen,
    plan_files,
    read_all,
    told,
)
from cli.options import User, command
from cli.output.printing import Answer
from cli.output.sizes import size_words
from core.job_status import FINAL


@command
def copy(
    client: Client,
    source: Annotated[
        str, typer.Argument(metavar="JOB:PATH", help="What a job stored; JOB: alone is all.")
    ],
    to: Annotated[Path, typer.Argument(metavar="TO", help="A directory, or the name of the copy.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that are there and differ.")
    ] = False,
    attempt: Attempt = None,
    user: User = None,
) -> Answer:
    """Copies stored files of a job here, each checked against its checksum.

    A job stores what it leaves in $ZEN_OUTPUT_DIR when an attempt ends: of a job that runs there is
    nothing to copy yet, unless an attempt before stored some.

    \b
    Examples:
      zen cp train-7:metrics.json .
      zen cp train-7:metrics.json last.json --force
      zen cp train-7:checkpoints results --force
    """
    job, path = _named(source)
    try:
        found = read_all(client, job, attempt, user)
        rows = chosen(found["artifacts"], path, job)
    except BadFetch as nothing:
        raise _explained(client, job, user, nothing) from nothing
    base, names = _target(rows, path, to)
    files = plan_files(rows, Placing(base, force, names))
    query = {"user_id": user, "attempt": found["attempt"]}
    missing = [file for file in files if not file.here]
    for file in missing:
        bring(client, job, query, file)
    lines = [f"{size_words(file.size):>10}  {file.target}" for file in missing]
    if len(files) > len(missing):
        lines.append(f"{len(files) - len(missing)} already there")
    json = {"job_id": job, "attempt": found["attempt"], "files": [told(file) for file in files]}
    return Answer(json, lines)


def _named(source: str) -> tuple[str, str]:
    """(job, path below its outputs)."""
    job, colon, path = source.partition(":")
    if not colon or not job:
        example = f"for example {job or 'train-7'}:metrics.json, or {job or 'train-7'}: for all"
        raise typer.BadParameter(f"JOB:PATH: got {source!r}, expected a job and a path, {example}")
    return job, path.strip("/")


def _target(rows: list[Json], path: str, to: Path) -> tuple[Path, dict[str, str]]:
    """The directory, and what the paths become below it: as cp -r does it."""
    above = PurePosixPath(path).parent
    names = {row["path"]: str(PurePosixPath(row["path"]).relative_to(above)) for row in rows}
    one_file = len(rows) == 1 and rows[0]["path"] == path
    if one_file and not to.is_dir():
        return to.parent, {path: to.name}
    return to, names


def _explained(client: Client, job: str, user: str | None, nothing: BadFetch) -> BadFetch:
    """Of a job that has not ended: why there is nothing."""
    from cli.client import path as where

    status = client.get(where("jobs", job), {"user_id": user})["status"]
    if status in FINAL:
        return nothing
    return BadFetch(
        f"{nothing}; it is {status}, and files are stored when an attempt ends: "
        f"zen wait {job}, or have the job write them to a bucket itself"
    )
