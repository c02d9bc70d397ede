"""`tgpu` and `gpu-cli`: the same commands under the names and with the words that people's scripts
already use. Arguments are translated; everything else is `zen`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from cli.options import Api, AsJson
from cli.screen import console, emit, fitted, note, say
from cli.spans import between
from core.vocabularies import priority_of_tgpu

if TYPE_CHECKING:
    from cli.client import Json
    from cli.fitted import Fitted

TGPU = "tgpu"
GPU_CLI = "gpu-cli"
_COMMANDS = {"cancel": "stop"}
_OPTIONS = {"--tenant-id": "--tenant"}
HEADINGS = ("ID", "NAME", "STATE", "GPUS", "PRIORITY", "TENANT", "AGE")


def list_jobs(
    words: Annotated[str, typer.Option("--words", hidden=True)] = GPU_CLI,
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="ID")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Newest first.")] = 50,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """The jobs, newest first, one word for the state of each (`zen jobs` says more).

    \b
    Examples:
      tgpu list
      gpu-cli list --tenant-id vision
      tgpu list --json
    """
    from cli.client import Client, api_address

    with Client(api_address(api)) as client:
        page = client.get("/jobs", {"tenant_id": tenant, "page_size": limit})
    for job in page["jobs"]:
        job["state"] = _state(job, words)
    if as_json:
        emit(page)
    elif not page["jobs"]:
        say("no jobs")
    else:
        console().print(_table(page["jobs"]))
        if page["total"] > len(page["jobs"]):
            note(f"{len(page['jobs'])} of {page['total']} shown; more with --limit")


def _state(job: Json, words: str) -> str:
    from core.job import JobStatus
    from core.vocabularies import WORDS

    told = WORDS[JobStatus(job["status"])]
    return told.tgpu if words == TGPU else told.multi_tenant


def _table(jobs: Sequence[Json]) -> Fitted:
    from core.clock import SystemClock

    now = SystemClock().now()
    rows: list[list[object]] = [
        [
            job["job_id"],
            job.get("name"),
            job["state"],
            job["gpu_count"],
            job["priority"],
            job["tenant_id"],
            between(job["submitted_at"], now),
        ]
        for job in jobs
    ]
    return fitted(HEADINGS, rows, right="GPUS PRIORITY AGE", drop="TENANT PRIORITY NAME")


def translated(name: str, arguments: Sequence[str]) -> list[str]:
    """What `zen` is asked for. Nothing of a job's command is touched but `cmd=…`, which stands for
    a command line: its words, by the shell's rules of quoting, without a shell."""
    if not arguments:
        return []
    command, *words = arguments
    command = _COMMANDS.get(command, command)
    if command == "submit":
        words, job = _parted(words)
        words = [_option(word) for word in words]
        if name == TGPU:
            words = _with_our_priority(words)
        if len(job) == 1 and job[0].startswith("cmd="):
            job = _words(job[0].removeprefix("cmd="))
        return [command, *words, *(["--", *job] if job else [])]
    words = [_option(word) for word in words]
    if command == "list" and name == TGPU:
        words = ["--words", TGPU, *words]
    return [command, *words]


def _parted(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(options of submit, the job's command): it begins behind `--`, or with the first word that
    is neither an option nor the value of one."""
    flags, at = _flags(), 0
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "--":
            return list(words[:at]), list(words[at + 1 :])
        attached = "=" in words[at] or (words[at][1:2] != "-" and len(words[at]) > 2)
        at += 1 if attached or words[at] in flags else 2
    return list(words[:at]), list(words[at:])


def _flags() -> frozenset[str]:
    """Options of submit that take no value, as they are declared."""
    from typer.main import get_command

    from cli.main import app

    submit = get_command(app).commands["submit"]  # type: ignore[attr-defined]
    shown = [p for p in submit.params if getattr(p, "is_flag", False)]
    return frozenset({"-h", "--help"}.union(*((*p.opts, *p.secondary_opts) for p in shown)))


def _option(word: str) -> str:
    name, equals, value = word.partition("=")
    return f"{_OPTIONS[name]}{equals}{value}" if name in _OPTIONS else word


def _with_our_priority(words: list[str]) -> list[str]:
    """What is no number stays as it is: the option itself says what is wrong."""
    found = list(words)
    for at, word in enumerate(words):
        if word == "--priority" and at + 1 < len(words):
            found[at + 1] = _scaled(words[at + 1])
        elif word.startswith("--priority="):
            found[at] = f"--priority={_scaled(word.removeprefix('--priority='))}"
    return found


def _scaled(text: str) -> str:
    return str(priority_of_tgpu(int(text))) if text.isascii() and text.isdigit() else text


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise typer.BadParameter(f"cmd={line}: {str(error).lower()}") from error


def run_as(name: str, arguments: Sequence[str]) -> int:
    """Runs one command under that name; returns its exit code."""
    from cli.main import run, usage

    try:
        words = translated(name, arguments)
    except typer.BadParameter as error:
        return usage(error, name)
    return run(words, name)


def tgpu() -> NoReturn:
    """The console script `tgpu`."""
    _end(TGPU, sys.argv[1:])


def gpu_cli() -> NoReturn:
    """The console script `gpu-cli`."""
    _end(GPU_CLI, sys.argv[1:])


def _end(name: str, arguments: Sequence[str]) -> NoReturn:
    from cli.main import finish

    finish(run_as(name, arguments))


if __name__ == "__main__":  # the launcher of a checkout: python -m cli.names NAME …
    _end(sys.argv[1], sys.argv[2:])
