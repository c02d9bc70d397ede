"""zen resubmit: a new job from what an old one asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from cli.client import Client, Json, Refused, path
from cli.commands.sending import SendOptions, send_job
from cli.options import AsJson, User, command, pairs
from cli.output.durations import moment
from cli.output.printing import emit, note
from core.clock import SystemClock
from core.errors import ZenError
from core.job_fields import FIELDS


class HiddenValues(ZenError):
    """Values that the caller may not see would be missing in the new job."""

    code = "hidden_values"


@dataclass(frozen=True, slots=True)
class ResubmitOptions:
    """What differs from the old job, and how it is sent."""

    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="K=V",
            help="A field of a job file: gpu_type=l4, retries=2, environment.SEED=7; K= alone "
            "leaves it out. Repeatable.",
        ),
    ] = None
    job_id: Annotated[str | None, typer.Option("--id", metavar="JOB", help="Of the new job.")] = (
        None
    )
    print_only: Annotated[
        bool, typer.Option("--print", help="Print what would be submitted, as JSON.")
    ] = False
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the log; end with the job's exit code.")
    ] = False
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Agree to a price that must be confirmed.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the id alone.")] = False
    user: User = None
    as_json: AsJson = False


@command
def resubmit(
    client: Client,
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job id, or that of an array.")],
    own: ResubmitOptions,
) -> None:
    """Submits a job again, as a new one with an id of its own.

    All fields are those of the old job, secrets as references. A deadline that has passed is left
    out. Values of the environment that you may not see must be named again with --set.

    \b
    Examples:
      zen resubmit train-7
      zen resubmit train-7 --set gpu_type=a100-40gb --set environment.SEED=7
      zen resubmit train-7 --id train-7b --set max_runtime_minutes=90 --wait
      zen resubmit sweep --print
    """
    found = stored_submission(client, job, own.user)
    body = found["submission"]
    if (at := moment(body.get("deadline"))) is not None and at <= SystemClock().now():
        del body["deadline"]
        note("its deadline has passed and is left out; another one: --set deadline=TIME")
    body = changed(body, pairs(own.changes, "--set"))
    missing = [name for name in found["hidden"] if name not in body.get("environment", {})]
    if missing:
        options = " ".join(f"--set environment.{name}=VALUE" for name in missing)
        raise HiddenValues(
            f"job {job} has variables whose values you may not see: say them ({options}), or ask "
            "the job's owner to submit it"
        )
    if own.job_id is not None:
        body["job_id"] = own.job_id
    if own.print_only:
        emit(body)
        return
    send_job(client, body, SendOptions(own.wait, own.yes, own.quiet, own.as_json))


def stored_submission(client: Client, job: str, user: str | None) -> Json:
    """What a job, or an array as a whole, asked for."""
    owner = {"user_id": user}
    try:
        return client.get(path("jobs", job, "submission"), owner)
    except Refused as error:
        from cli.commands.arrays import group_of

        group = group_of(client, job, user, error)
        page = client.get("/jobs", {"group": job, "user_id": group["user_id"], "limit": 1})
        first = page["jobs"][0]["job_id"]
        query = {"user_id": group["user_id"], "whole_array": "true"}
        try:
            return client.get(path("jobs", first, "submission"), query)
        except Refused as other:
            if other.code != "bad_input":
                raise
            raise ZenError(f"{job} is a group of single jobs: name one of them") from other


def changed(body: Json, words: dict[str, str]) -> Json:
    """The submission with these fields. A value is read as JSON where that fits the field: 2, true,
    [a, b]; else it is the text as it stands."""
    made: dict[str, Any] = dict(body)
    for key, word in words.items():
        name, dot, inner = key.partition(".")
        if dot:
            held = made.get(name)
            mapping = dict(held) if isinstance(held, dict) else {}
            _put(mapping, inner, word or None)
            _put(made, name, mapping or None)
        else:
            _put(made, name, _value(name, word) if word else None)
    for one, other in (("gpu_type", "gpu_types"), ("script", "command"), ("command", "script")):
        if one in words and other not in words:
            made.pop(other, None)
    return made


def _put(made: dict[str, Any], name: str, value: object) -> None:
    if value is None:
        made.pop(name, None)
    else:
        made[name] = value


def _value(name: str, word: str) -> object:
    """As the field takes it; what no reading makes right is the service's to refuse."""
    kind = FIELDS[name].kind if name in FIELDS else None
    try:
        read = json.loads(word)
    except ValueError:
        read = word
    if kind is not None and kind.check(read) is not None and kind.check(word) is None:
        return word
    return read
