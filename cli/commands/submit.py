"""zen submit: one job from options, a file, or both."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cli.client import Client, Json, api_address
from cli.commands import prices
from cli.commands.sending import SendOptions, send_job
from cli.defaults import with_defaults
from cli.env_file import read_env_file
from cli.job_options import body_of, submit_options
from cli.options import Api, AsJson, Given, command
from cli.paths import PROGRAM, home
from core.errors import ZenError

FILE_BYTES_MAX = 1024 * 1024


class BadFile(ZenError):
    """The submission file cannot be used; fix it."""

    code = "bad_file"


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
    env_file: Annotated[
        Path | None,
        typer.Option(
            "--env-file", metavar="FILE", help="NAME=VALUE lines (dotenv); --env wins over it."
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
      zen submit --array 1-20 --id sweep --shell -- 'echo seed $ZEN_ARRAY_INDEX'
      zen submit --after sweep:ok -- echo 'all of them are done'
      zen submit --dry-run --gpu-type l4 -- python3 -c 'print(42)'
      zen submit --gpus 3 --gpu-type l4 --allow-larger -- hostname
      zen submit --replicas 2 --gpus 8 --shell -- 'echo $ZEN_RANK of $ZEN_WORLD_SIZE'
      zen submit --replicas 2-8 --shell -- 'echo $ZEN_RANK of $ZEN_WORLD_SIZE'
      zen submit -f examples/train.yaml --wait
      zen submit -f examples/unifiedjob.yaml --gpu-type l4
    """
    body = body_of(given, _with_env_file(native(read_file(own.file)) if own.file else {}, own))
    body = _program(own, _gpu_types(body, given))
    # Of a file the service names every fault: a misspelt field is the likelier one.
    if own.file is None and not {"command", "script", "workflow", "image"} & set(body):
        raise typer.BadParameter(
            f"no command; put it after --, for example: {PROGRAM} submit -- python3 -c 'print(42)'"
        )
    address = api_address(own.api)
    body = with_defaults(body | _directory(body, address))
    with Client(address) as client:
        if own.dry_run:
            prices.dry_run(client, body).print(own.as_json)
        else:
            send_job(client, body, SendOptions(own.wait, own.yes, own.quiet, own.as_json))


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


def _directory(body: Json, address: str) -> Json:
    """On `zen node` a process runs where it was submitted: the machine is the same."""
    running = home().read()
    if running is None or not running.node or address not in (running.api, *running.apis):
        return {}
    if body.get("image") or body.get("working_dir"):
        return {}
    try:
        return {"working_dir": str(Path.cwd())}
    except FileNotFoundError:
        return {}  # it was deleted meanwhile


def read_file(file: Path) -> Json:
    """A submission from a YAML or JSON file (JSON is YAML too)."""
    try:
        if str(file) == "-":
            text = sys.stdin.read(FILE_BYTES_MAX + 1)
        else:
            with file.open(encoding="utf-8") as opened:
                text = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadFile(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadFile(f"{file}: not UTF-8 text") from error
    if len(text) > FILE_BYTES_MAX:
        raise BadFile(f"{file}: more than {FILE_BYTES_MAX} characters")
    found = _parse(file, text)
    if not isinstance(found, dict):
        got = "nothing" if found is None else "a list" if isinstance(found, list) else "one value"
        raise BadFile(
            f"{file}: got {got}, expected the fields of one job, e.g. command: [hostname]"
        )
    # YAML knows moments, JSON does not.
    return {
        str(key): value.isoformat() if isinstance(value, datetime) else value
        for key, value in found.items()
    }


def _parse(file: Path, text: str) -> object:
    if file.suffix == ".json":
        try:
            return json.loads(text)
        except ValueError as error:
            raise BadFile(f"{file}: not JSON: {error}") from error
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise BadFile(f"{file}: not YAML{line}: {problem}") from error


def native(document: Json) -> Json:
    """A manifest of another system is read as a submission, so that options can win over it."""
    from core.unified_job import is_manifest, native_of_manifest

    return native_of_manifest(document) if is_manifest(document) else document
