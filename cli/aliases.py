"""`tgpu` and `gpu-cli`: the same commands under the names and with the words that people's scripts
already use. Arguments are translated; everything else is `zen`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from cli.client import Client, Json
from cli.options import Limit, command
from cli.output.client_words import GPU_CLI, TGPU, in_words_of
from cli.output.durations import between
from cli.output.printing import Answer, fitted, not_all
from cli.output.tables import Fitted
from core.client_statuses import WORDS, priority_of_tgpu
from core.clock import SystemClock

_COMMANDS = {"cancel": "stop", "get": "show"}
_OPTIONS = {"--tenant-id": "--tenant", "--api-url": "--api"}
_OF_TENANTS = ("submit", "list")
"""gpu-cli takes --tenant-id with every command; only these ask for it."""
DEFAULT_SCRIPT = "nvidia-smi"
"""What gpu-cli runs when nothing is said."""
HEADINGS = ("ID", "NAME", "STATE", "GPUS", "PRIORITY", "TENANT", "AGE")


@command
def list_jobs(
    client: Client,
    words: Annotated[str, typer.Option("--words", hidden=True)] = GPU_CLI,
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="ID")] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="Only in this state.")
    ] = None,
    limit: Limit = 50,
) -> Answer:
    """The jobs, newest first, one word for the state of each (`zen jobs` says more).

    \b
    Examples:
      tgpu list
      gpu-cli list --tenant-id vision --state running
      tgpu list --json
    """
    asked = {"tenant_id": tenant, "page_size": limit, **_asked_state(state, words)}
    page = client.get("/jobs", asked)
    jobs = page["jobs"] = [{**job, **in_words_of(job, words)} for job in page["jobs"]]
    return Answer(page, [_table(jobs)] if jobs else ["no jobs"], not_all(page, len(jobs)))


@command
def create_tenant(
    client: Client,
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="For people.")],
    max_gpus: Annotated[
        int, typer.Option("--max-gpus", min=0, metavar="N", help="GPUs at once.")
    ] = 10,
    priority: Annotated[
        str, typer.Option("--priority", metavar="TIER", help="low, medium, high or critical.")
    ] = "medium",
) -> Answer:
    """Sets up a tenant under a new id (`zen tenants set ID` chooses the id and says more).

    \b
    Examples:
      gpu-cli create-tenant --name my-team --max-gpus 10 --priority high
    """
    body = {"name": name, "max_gpus": max_gpus, "priority_tier": priority}
    found = client.post("/tenants", body)
    return Answer(found, ["Tenant created successfully!", f"Tenant ID: {found['id']}"])


def _asked_state(state: str | None, words: str) -> dict[str, object]:
    """The filter of the API for a state in the words of that command line."""
    if state is None:
        return {}
    if words != TGPU:
        return {"state": state}
    known = {said.tgpu for said in WORDS.values()}
    if state not in known:
        raise typer.BadParameter(f"--state: got {state!r}, expected one of {sorted(known)}")
    return {"status": [status for status, said in WORDS.items() if said.tgpu == state]}


def _table(jobs: Sequence[Json]) -> Fitted:
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
    shared, arguments = _shared(arguments)
    if not arguments:
        return [*shared]
    command, *words = arguments
    command = _COMMANDS.get(command, command)
    words = [*shared, *words]
    if name == GPU_CLI and command not in _OF_TENANTS:
        words = _without("--tenant-id", words)[1]
    if command == "submit":
        words, job = _parted(words)
        if name == GPU_CLI:
            words, job = _with_script(words, job)
        words = [_option(word) for word in words]
        if name == TGPU:
            words = _with_our_priority(words)
        if len(job) == 1 and job[0].startswith("cmd="):
            job = _words(job[0].removeprefix("cmd="))
        return [command, *words, *(["--", *job] if job else [])]
    words = [_option(word) for word in words]
    if command in ("list", "show") and name == TGPU:
        words = ["--words", TGPU, *words]
    return [command, *words]


def _shared(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """(options that stand before the command, the rest): gpu-cli takes them there as well."""
    at = 0
    while at < len(arguments) and arguments[at].partition("=")[0] in _OPTIONS:
        at += 1 if "=" in arguments[at] else 2
    return list(arguments[:at]), list(arguments[at:])


def _without(option: str, words: Sequence[str]) -> tuple[str | None, list[str]]:
    """(the last value of an option, the words without it)."""
    value, rest, at = None, [], 0
    while at < len(words):
        name, equals, attached = words[at].partition("=")
        if name != option:
            rest.append(words[at])
        elif equals:
            value = attached
        else:
            value, at = (words[at + 1] if at + 1 < len(words) else ""), at + 1
        at += 1
    return value, rest


def _with_script(words: Sequence[str], job: Sequence[str]) -> tuple[list[str], list[str]]:
    """A script is one line for the shell. Without a command, a script or a file gpu-cli runs
    nvidia-smi."""
    script, rest = _without("--script", words)
    if script is None and (job or {"-h", "--help", "-f", "--file"} & set(rest)):
        return rest, list(job)
    if job:
        raise typer.BadParameter("--script: nothing may follow it; it is all that runs")
    return [*rest, "--shell"], [script or DEFAULT_SCRIPT]


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


if __name__ == "__main__":  # the launcher of a checkout: python -m cli.aliases NAME …
    _end(sys.argv[1], sys.argv[2:])
