"""zen submit: one job from options, a file, or both; and waiting for it."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.groups import wait_for_group
from cli.options import Api, AsJson, pairs
from cli.output.durations import between, is_span, moment, seconds
from cli.output.follow import FINAL
from cli.output.printing import emit, note, say
from cli.paths import PROGRAM, home
from core.clock import SystemClock
from core.errors import ZenError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cli.client import Client, Json

FILE_BYTES_MAX = 1024 * 1024
# Options that are not called as the field is.
_OPTIONS = {
    "gpu_types": "--gpu-type",
    "tenant_id": "--tenant",
    "user_id": "--user",
    "job_id": "--id",
    "regions": "--region",
    "regions_denied": "--not-region",
    "working_dir": "--workdir",
}


class BadFile(ZenError):
    """The submission file cannot be used; fix it."""

    code = "bad_file"


def submit(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD…", help="The program and its arguments.")
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option("--gpus", "-g", metavar="N", help="Default: 1; 0: a VM without GPUs."),
    ] = None,
    gpu_type: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu-type",
            metavar="T",
            help="Default: the cheapest that fits. Repeatable: the preferred one first.",
        ),
    ] = None,
    gpu_memory: Annotated[
        float | None, typer.Option("--gpu-memory", metavar="GB", help="Of each GPU, at least.")
    ] = None,
    cpus: Annotated[
        float | None, typer.Option("--cpus", metavar="N", help="Cores, at least.")
    ] = None,
    memory: Annotated[
        float | None, typer.Option("--memory", metavar="GB", help="Of the VM, at least.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="C", help="Exactly this cluster.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="TEXT", help="For people.")] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="N", help="Higher runs earlier (500).")
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="ID", help="Who pays.")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="ID", help="Who asks.")] = None,
    job_id: Annotated[
        str | None,
        typer.Option("--id", metavar="JOB", help="Your own id; a repeat submits nothing new."),
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="K=V", help="Repeatable.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", "-l", metavar="K=V", help="Repeatable.")
    ] = None,
    max_runtime: Annotated[
        str | None, typer.Option("--max-runtime", metavar="2h", help="Stopped after this long.")
    ] = None,
    queue_timeout: Annotated[
        str | None, typer.Option("--queue-timeout", metavar="1d", help="Fails if still waiting.")
    ] = None,
    grace: Annotated[
        str | None, typer.Option("--grace", metavar="60s", help="From SIGTERM to SIGKILL.")
    ] = None,
    retries: Annotated[
        int | None, typer.Option("--retries", metavar="N", help="After a non-zero exit.")
    ] = None,
    region: Annotated[
        list[str] | None, typer.Option("--region", metavar="R", help="Only there; repeatable.")
    ] = None,
    not_region: Annotated[
        list[str] | None, typer.Option("--not-region", metavar="R", help="Never there; repeatable.")
    ] = None,
    max_price: Annotated[
        float | None,
        typer.Option("--max-price", metavar="USD", help="Most that the VM may cost per hour."),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline", metavar="TIME", help="Result wanted by: 12h, or 2030-09-01T18:00Z."
        ),
    ] = None,
    spot: Annotated[
        bool | None,
        typer.Option("--spot/--no-spot", help="Cheaper VMs that may be taken back: yes or never."),
    ] = None,
    allow_larger: Annotated[
        bool | None,
        typer.Option(
            "--allow-larger/--no-allow-larger",
            help="VMs with more GPUs than asked for may be taken, and are paid for.",
        ),
    ] = None,
    array: Annotated[
        str | None,
        typer.Option("--array", metavar="1-1000", help="One job per index: 1-9, 1,5,9 or 0-90:10."),
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option("--after", metavar="JOB", help="JOB[:ok|:any] or a group; repeatable."),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="G", help="To watch and stop several as one.")
    ] = None,
    replicas: Annotated[
        str | None,
        typer.Option("--replicas", metavar="N", help="On N VMs at once; 2-8: elastic."),
    ] = None,
    resize_signal: Annotated[
        str | None,
        typer.Option("--resize-signal", metavar="S", help="USR1, USR2 or none: it has a new size."),
    ] = None,
    reschedulable: Annotated[
        bool | None,
        typer.Option(
            "--reschedulable/--not-reschedulable",
            help="May be asked to yield, and begins again after a lost VM.",
        ),
    ] = None,
    same_zone: Annotated[
        bool, typer.Option("--same-zone", help="The VMs of a gang are in one zone.")
    ] = False,
    replace_members: Annotated[
        bool,
        typer.Option("--replace-members", help="A lost VM of a gang is replaced while it runs."),
    ] = False,
    image: Annotated[
        str | None, typer.Option("--image", metavar="IMG", help="In a container of this image.")
    ] = None,
    workdir: Annotated[
        str | None,
        typer.Option(
            "--workdir",
            metavar="DIR",
            help="Where the container (on zen node: the process) starts.",
        ),
    ] = None,
    shell: Annotated[
        bool, typer.Option("--shell", help="Run the words as one line with /bin/sh -c.")
    ] = False,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="YAML or JSON; - is stdin.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the log; end with the job's exit code.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show where it could run and at what price; buy nothing."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Agree to a price that must be confirmed.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the id alone.")] = False,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Submits a job. Options win over the same fields of a file.

    \b
    Examples:
      zen submit -- python3 -c 'print(42)'
      zen submit --wait --shell -- 'echo GPUs: $CUDA_VISIBLE_DEVICES'
      zen submit --gpus 2 --gpu-type a100-40gb --max-runtime 2h -- sleep 30
      zen submit -e SEED=7 -l team=vision --shell -- 'echo $SEED > $ZEN_OUTPUT_DIR/seed.txt'
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
    body = native(read_file(file)) if file else {}
    given: dict[str, object] = {
        "gpu_count": gpus,
        "gpu_type": gpu_type[0] if gpu_type and len(gpu_type) == 1 else None,
        "gpu_types": gpu_type if gpu_type and len(gpu_type) > 1 else None,
        "gpu_memory_mb": None if gpu_memory is None else round(gpu_memory * 1024),
        "cpu_cores": cpus,
        "memory_mb": None if memory is None else round(memory * 1024),
        "cluster": cluster,
        "name": name,
        "priority": priority,
        "tenant_id": tenant,
        "user_id": user,
        "job_id": job_id,
        "max_runtime_minutes": _span("--max-runtime", max_runtime, 60),
        "queue_timeout_s": _span("--queue-timeout", queue_timeout),
        "stop_grace_s": _span("--grace", grace),
        "retries": retries,
        "regions": region or None,
        "regions_denied": not_region or None,
        "max_usd_per_hour": max_price,
        "deadline": None if deadline is None else _deadline(deadline),
        "spot": spot,
        "allow_larger": allow_larger,
        "array": array,
        "after": after or None,
        "group": group,
        "replicas": None if replicas is None else parse_replicas(replicas),
        "resize_signal": resize_signal,
        "reschedulable": reschedulable,
        "image": image,
        "working_dir": workdir,
        "same_zone": same_zone or None,
        "replace_members": replace_members or None,
    }
    _refuse_empty(given)
    if gpu_type:  # one or several: either takes the place of what the file says
        body = {key: value for key, value in body.items() if key not in ("gpu_type", "gpu_types")}
    body |= {key: value for key, value in given.items() if value is not None}
    _merge(body, "environment", pairs(env, "--env"))
    _merge(body, "labels", pairs(label, "--label"))
    if command:
        for field in ("script", "args", "shell"):  # all of what the file says of its program
            body.pop(field, None)
        body["command"] = [" ".join(command)] if shell else command
    if shell:
        body["shell"] = True
    if not {"command", "script", "workflow", "image"} & set(body):
        raise typer.BadParameter(
            f"no command; put it after --, for example: {PROGRAM} submit -- python3 -c 'print(42)'"
        )
    from cli.client import api_address

    address = api_address(api)
    body |= _directory(body, address)
    if dry_run:
        _dry_run(body, address, as_json)
    else:
        _send(body, address, yes, wait, quiet, as_json)


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


def _dry_run(body: Json, address: str, as_json: bool) -> None:
    from cli.client import Client
    from cli.commands import prices

    with Client(address) as client:
        prices.dry_run(client, body, as_json)


def _send(body: Json, address: str, yes: bool, wait: bool, quiet: bool, as_json: bool) -> None:
    from cli.client import Client
    from cli.commands import prices

    with Client(address) as client:
        response = prices.send(client, body, yes)
        if response.headers.get("Zen-New-Tenant") == "true":
            note(f"tenant {body['tenant_id']} is new: it has no limits")
        answer = client.json(response)
        # The answer to a repeat is that of the first time; what became of the job since is not in
        # it.
        repeated = response.headers.get("Zen-Repeat") == "true"
        array = "array" in body
        if wait and array:
            raise typer.Exit(wait_for_group(client, answer, quiet, as_json))
        if wait:
            raise typer.Exit(_wait(client, answer, quiet, as_json))
        if repeated and not array:
            answer["message"] = _existing(client, answer)
    if as_json:
        emit({**answer, "repeated": True} if repeated else answer)
    elif quiet:
        say(answer["job_id"])
    else:
        job_id = answer["job_id"]
        say(job_id)
        say(f"  {answer.get('message', 'submitted')}")
        if array:
            look, follow = f"{PROGRAM} show {job_id}", f"{PROGRAM} logs -f {job_id}"
            say(f"  look: {look}   logs: {follow}   stop: {PROGRAM} stop {job_id}")
        else:
            follow, show = f"{PROGRAM} logs -f {job_id}", f"{PROGRAM} show {job_id}"
            say(f"  follow its log: {follow}   its timeline: {show}")


def _existing(client: Client, answer: Json) -> str:
    """What became of the job that was submitted before."""
    from cli.client import path

    job = client.get(path("jobs", answer["job_id"]), {"user_id": answer["user_id"]})
    ago = between(job["submitted_at"], SystemClock().now())
    reason = f" ({job['reason']})" if job["status"] in FINAL and job["reason"] else ""
    return (
        f"nothing new was submitted: this job came {ago} ago and is {job['status']}{reason}; "
        "another id, or none, makes another job"
    )


def _span(option: str, text: str | None, unit_s: float = 1) -> float | None:
    return None if text is None else seconds(text, option) / unit_s


def _deadline(text: str) -> str:
    """A moment as it was written, or from now on: 12h."""
    if moment(text) is not None or text == "":
        return text
    if not (is_span(text) or text.strip().isdecimal()):
        expected = "12h, or a moment with its offset such as 2030-09-01T18:00Z"
        raise typer.BadParameter(f"--deadline: got {text!r}, expected {expected}")
    at = SystemClock().now() + timedelta(seconds=seconds(text, "--deadline"))
    return at.isoformat(timespec="seconds")


def _refuse_empty(given: Mapping[str, object]) -> None:
    """An option with an empty value, as an unset variable of a script leaves it, is not taken for
    one that was left out."""
    for field, value in given.items():
        if value == "" or (isinstance(value, list) and "" in value):
            option = _OPTIONS.get(field, "--" + field.replace("_", "-"))
            raise typer.BadParameter(f"{option}: got '', expected a value; leave it out for none")


def _wait(client: Client, answer: Json, quiet: bool, as_json: bool) -> int:
    """Follows the job; its log owns stdout, unless the JSON answer does."""
    from cli.output.follow import Follower, ending, exit_code, to_stderr, to_stdout

    job_id = answer["job_id"]
    if not quiet:
        note(f"job {job_id}: {answer.get('message', 'submitted')}")
    follower = Follower(client, job_id, answer.get("user_id"))
    try:
        ended = follower.follow(to_stderr if as_json else to_stdout, quiet=quiet)
    except KeyboardInterrupt:
        follow, stop = f"{PROGRAM} logs -f {job_id}", f"{PROGRAM} stop {job_id}"
        note(f"job {job_id} goes on; follow it: {follow}, stop it: {stop}")
        return 130
    if as_json:
        emit(ended)
    code = exit_code(ended)
    if code != 0 or not quiet:
        note(ending(ended))
    return code


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
        raise BadFile(f"{file}: got {type(found).__name__}, expected the fields of one job")
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


def parse_replicas(text: str) -> object:
    """4, or 2-8: an elastic job."""
    least, dash, most = text.partition("-")
    if not least.isdecimal() or (dash and not most.isdecimal()):
        raise typer.BadParameter(
            f"{text!r} is neither a number of VMs nor a range of it, such as 4 or 2-8",
            param_hint="--replicas",
        )
    return {"min": int(least), "max": int(most)} if dash else int(least)


def _merge(body: Json, field: str, given: dict[str, str]) -> None:
    if not given:
        return
    present = body.get(field)
    body[field] = {**(present if isinstance(present, dict) else {}), **given}
