"""zen submit: one job from options, a file, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.client import Client, Json, api_address
from cli.commands import prices
from cli.commands.groups import wait_for_group
from cli.commands.sending import SendOptions, send_job
from cli.defaults import with_defaults
from cli.env_file import read_env_file
from cli.job_options import body_of, submit_options
from cli.options import Api, AsJson, Given, command, pairs
from cli.output.printing import note
from cli.paths import PROGRAM, home
from cli.workdir.choice import COPY, NONE, chosen, user_home

if TYPE_CHECKING:
    from cli.workdir.upload import Sent


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """The options that are no field of a job."""

    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD…", help="The program and its arguments.")
    ] = None
    shell: Annotated[
        bool, typer.Option("--shell", help="Run the words as one line with /bin/sh -c.")
    ] = False
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="YAML or JSON; - is stdin.")
    ] = None
    params: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="K=V", help="A parameter of the file; repeatable."),
    ] = None
    batch: Annotated[
        Path | None,
        typer.Option("--batch", metavar="FILE", help="A job in each line, as JSON; - is stdin."),
    ] = None
    env_file: Annotated[
        Path | None,
        typer.Option(
            "--env-file", metavar="FILE", help="NAME=VALUE lines (dotenv); --env wins over it."
        ),
    ] = None
    workdir: Annotated[
        str | None,
        typer.Option(
            "--workdir",
            metavar="DIR",
            help="Send this directory, and start in it; none: send nothing. Default: the current "
            "one, if the command names a file in it.",
        ),
    ] = None
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the log; end with the job's exit code.")
    ] = False
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show where it could run and at what price; buy nothing."),
    ] = False
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Agree to a price that must be confirmed.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the id alone.")] = False
    api: Api = None
    as_json: AsJson = False

    @property
    def sending(self) -> SendOptions:
        return SendOptions(self.wait, self.yes, self.quiet, self.as_json)


@partial(command, made=submit_options())
def run(own: SubmitOptions, given: Given) -> None:
    """Submits a job, follows its log, and ends with its exit code: submit --wait.

    \b
    Examples:
      zen run --workdir examples -- python3 train.py --steps 5
      zen run --gpu-type l4 -- python3 -c 'print(42)'
    """
    _submit(replace(own, wait=True), given)


@partial(command, made=submit_options())
def submit(own: SubmitOptions, given: Given) -> None:
    """Submits a job. Options win over the same fields of a file.

    \b
    Examples:
      zen submit -- python3 -c 'print(42)'
      zen submit --wait --shell -- 'echo GPUs: $CUDA_VISIBLE_DEVICES'
      zen submit --gpus 2 --gpu-type a100-40gb --max-runtime 2h -- sleep 30
      zen submit -e SEED=7 -l team=vision --shell -- 'echo $SEED > $ZEN_OUTPUT_DIR/seed.txt'
      zen submit --secret HF_TOKEN=zen://HF_TOKEN --env-file .env -- python3 -c 'print(42)'
      zen submit --gpu-type a100-80gb --gpu-type a100-40gb --not-region us-west1 -- hostname
      zen submit --max-price 2.50 --deadline 12h -- sleep 30
      zen submit --spot --gpus 4 --gpu-type t4 --deadline 12h -- sleep 30
      zen submit --image python:3.12 --memory 16 -- python3 -c 'print(42)'
      zen submit --workdir examples -- python3 train.py --steps 5
      zen submit --array 1-20 --id sweep --shell -- 'echo seed $ZEN_ARRAY_INDEX'
      zen submit --after sweep:ok -- echo 'all of them are done'
      zen submit --dry-run --gpu-type l4 -- python3 -c 'print(42)'
      zen submit --gpus 3 --gpu-type l4 --allow-larger -- hostname
      zen submit --replicas 2 --gpus 8 --shell -- 'echo $ZEN_RANK of $ZEN_WORLD_SIZE'
      zen submit --replicas 2-8 --shell -- 'echo $ZEN_RANK of $ZEN_WORLD_SIZE'
      zen submit -f examples/train.yaml --wait
      zen submit -f examples/unifiedjob.yaml --gpu-type l4
      zen submit -f examples/sweep.yaml -p epochs=2
      zen submit --batch examples/batch.jsonl
    """
    _submit(own, given)


def _submit(own: SubmitOptions, given: Given) -> None:
    if own.batch is not None:
        _lines(own, given)
        return
    bodies, matrix = _bodies(own, given)
    body = bodies[0]
    # Of a file the service names every fault: a misspelt field is the likelier one.
    if own.file is None and not {"command", "script", "workflow", "image"} & set(body):
        raise typer.BadParameter(
            f"no command; put it after --, for example: {PROGRAM} submit -- python3 -c 'print(42)'"
        )
    address = api_address(own.api)
    body, sent = with_defaults(body), None
    if _runs_in_place(own, body, address):
        body = {**body, **_directory(own, body)}
    elif not own.dry_run and (sent := _send_code(own, body, address)) is not None:
        body = {**body, "code": sent.tree_id}
    with Client(address) as client:
        if own.dry_run:
            prices.dry_run(client, body).print(own.as_json)
        elif matrix:
            if sent is not None and not own.quiet:
                note(sent.words())
            _together(client, bodies, body, own.sending)
        else:
            send_job(client, body, own.sending, sent)


def _bodies(own: SubmitOptions, given: Given) -> tuple[list[Json], bool]:
    """The submissions of the line and the file; and whether there is one for each combination of a
    matrix."""
    found: Sequence[Json] = ({},)
    matrix = False
    if own.file is not None:
        from cli.job_files.submissions import read_job_file

        file = read_job_file(own.file, pairs(own.params, "--param"))
        found, matrix = file.bodies, file.matrix
    elif own.params:
        raise typer.BadParameter("--param: only with a file (-f) that declares it")
    made = [
        _program(own, _gpu_types(body_of(given, _with_env_file(body, own)), given))
        for body in found
    ]
    if matrix and any(given[name] for name in ("array", "group")):
        raise typer.BadParameter("--array, --group: not with a matrix, which is a group itself")
    return made, matrix


def _lines(own: SubmitOptions, given: Given) -> None:
    from cli.commands.batch import read_lines, send_batch

    if own.command or own.file or own.wait or own.dry_run or any(given.values()):
        raise typer.BadParameter("--batch: not with a command, -f, --wait, --dry-run or fields")
    assert own.batch is not None
    jobs = [(number, with_defaults(body)) for number, body in read_lines(own.batch)]
    with Client(api_address(own.api)) as client:
        send_batch(client, jobs, own.sending).print(own.as_json)


def _with_env_file(body: Json, own: SubmitOptions) -> Json:
    if own.env_file is None:
        return body
    stated = body.get("environment")
    return {**body, "environment": {**(stated or {}), **read_env_file(own.env_file)}}


def _gpu_types(body: Json, given: Given) -> Json:
    """One or several types: either takes the place of what the file says."""
    found = given["gpu_types"]
    if not isinstance(found, list) or not found:
        return body
    rest = {key: value for key, value in body.items() if key not in ("gpu_type", "gpu_types")}
    return {**rest, "gpu_type": found[0]} if len(found) == 1 else {**rest, "gpu_types": found}


def _program(own: SubmitOptions, body: Json) -> Json:
    """The command of the line takes the place of all that the file says of its program."""
    if own.command:
        body = {k: v for k, v in body.items() if k not in ("script", "args", "shell")}
        body["command"] = [" ".join(own.command)] if own.shell else own.command
    return {**body, "shell": True} if own.shell else body


def _runs_in_place(own: SubmitOptions, body: Json, address: str) -> bool:
    """On `zen node` a process runs where it was submitted: the machine is the same."""
    running = home().read()
    if running is None or not running.node or address not in (running.api, *running.apis):
        return False
    return not body.get("image") and own.workdir != COPY


def _directory(own: SubmitOptions, body: Json) -> Json:
    if body.get("working_dir") or own.workdir == NONE:
        return {}
    try:
        return {"working_dir": str(Path.cwd() / (own.workdir or ""))}
    except FileNotFoundError:
        return {}  # it was deleted meanwhile


def _send_code(own: SubmitOptions, body: Json, address: str) -> Sent | None:
    """The directory that the job is given, if it is given one."""
    try:
        here = Path.cwd().resolve()
    except FileNotFoundError:
        return None
    root = chosen(own.workdir, body, here, user_home())
    if root is None:
        return None
    from cli.workdir.upload import send_directory

    tenant_id = body.get("tenant_id")
    return send_directory(lambda: Client(address), root, str(tenant_id) if tenant_id else None)


def _together(client: Client, bodies: Sequence[Json], first: Json, own: SendOptions) -> None:
    """The jobs of a matrix, as the group of their id. `first` is the first one as it is sent: what
    it was given for this place is given to all."""
    from cli.commands.batch import send_batch
    from core.ids import RandomIds

    added = {name: value for name, value in first.items() if name not in bodies[0]}
    name = first.get("job_id") or f"m-{RandomIds().token()[:10]}"
    jobs = [
        (number, {**body, **added, "job_id": f"{name}-{number}", "group": name})
        for number, body in enumerate(bodies, 1)
    ]
    answer = send_batch(client, jobs, own)
    if not own.wait:
        answer.print(own.as_json)
        return
    if answer.code:
        answer.print(own.as_json)
    raise typer.Exit(wait_for_group(client, {"job_id": name}, own.quiet, own.as_json))
