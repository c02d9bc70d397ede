"""zen sim …: faults of the pretend cloud, set while it runs."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.client import Json, path, sim_client
from cli.options import ConfigFile, command, group, option, signed
from cli.output.durations import seconds, short
from cli.output.printing import Answer, fitted
from cli.paths import PROGRAM

app = group("The pretend cloud: see it, set faults, clear them.")

For = Annotated[str | None, typer.Option("--for", metavar="10m", help="Default: until cleared.")]
After = Annotated[str | None, typer.Option("--after", metavar="30s", help="Begins later.")]
Region = Annotated[str, typer.Argument(metavar="REGION")]
Vm = Annotated[str, typer.Argument(metavar="VM")]
Code = Annotated[str, typer.Argument(metavar="CODE")]
Message = Annotated[str, typer.Argument(metavar="[MESSAGE]")]


def fault(function: Callable[..., Json]) -> Callable[..., Json]:
    """A command that sets the fault of its name, with what the function says of it. It lasts
    until it is cleared, or --for a while."""
    kind = function.__name__.replace("_", "-")

    def run(lasts: str | None, after: str | None, **words: Any) -> Answer:
        timed = _span("for_s", lasts, "--for") | _span("after_s", after, "--after")
        with sim_client() as sim:
            answer = sim.post("/faults", {"kind": kind, **function(**words), **timed})
        what = f"{answer['id']}: {kind} {_details(answer)}, {_left(answer)}"
        return Answer(answer, [what, f"  end it: {PROGRAM} sim clear {answer['id']}"])

    own = inspect.signature(function, eval_str=True).parameters.values()
    made = [option(one.name, one.annotation, one.default) for one in own]
    made += [option("lasts", For, None), option("after", After, None)]
    app.command(kind)(command(signed(run, made, function)))
    return function


@app.command()
@command
def serve(
    config: ConfigFile = None,
    host: Annotated[str, typer.Option("--host", help="Where it listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0 takes a free one.")] = 8090,
    state_dir: Annotated[
        str, typer.Option("--state-dir", metavar="DIR", help="For its VMs.")
    ] = "/tmp/zen-cloud",  # noqa: S108  # a default for containers, where it is private
    scheduler_keys: Annotated[
        Path | None,
        typer.Option(
            "--scheduler-keys",
            metavar="FILE",
            help="What zen workers keys show prints. Default: from workers.key_file.",
        ),
    ] = None,
) -> None:
    """Runs a pretend cloud of its own for a configuration, in the foreground.

    zen up does this by itself; this is for stacks that are put together by hand.

    \b
    Example:
      PUBSUB_EMULATOR_HOST=localhost:8085 zen sim serve --config zen.yaml --port 8090
    """
    from cli.commands.operate import load
    from cli.local.config import this_machine
    from cli.local.pretend_cloud import build_world
    from cli.local.templates import scheduler_keys as keys_of

    directory = Path(state_dir)
    directory.mkdir(parents=True, exist_ok=True)
    world = directory / "world.json"
    settings = load(config)
    public = scheduler_keys.read_text("utf-8").strip() if scheduler_keys else keys_of(settings)
    words = build_world(settings, this_machine().vms, public)
    world.write_text(json.dumps(words, indent=1), encoding="utf-8")
    options = ["--world", str(world), "--state-dir", state_dir, "--host", host, "--port", str(port)]
    os.execv(sys.executable, [sys.executable, "-m", "sim", *options])  # noqa: S606  # we become it


@fault
def stockout(
    place: Annotated[str, typer.Argument(metavar="ZONE_OR_REGION")],
    machine: Annotated[
        str, typer.Argument(metavar="MACHINE", help="A machine type, or * for all.")
    ] = "*",
    spot: Annotated[
        bool | None, typer.Option("--spot/--standard", help="Default: both kinds.")
    ] = None,
) -> Json:
    """No capacity in a zone or a whole region.

    \b
    Examples:
      zen sim stockout us-central1-a a2-highgpu-2g --for 10m
      zen sim stockout us-central1 g2-standard-4 --spot --for 1h
    """
    where = "zone" if place[-2:-1] == "-" and place[-1:].isalpha() else "region"
    kinds = {} if spot is None else {"spot": spot}
    return {where: place, "machine_type": machine, **kinds}


@app.command()
@command
def preempt(
    vm: Annotated[str | None, typer.Argument(metavar="VM", help="A spot VM.")] = None,
    zone: Annotated[
        str | None, typer.Option("--zone", metavar="Z", help="All spot VMs of a zone.")
    ] = None,
) -> Answer:
    """The cloud takes a spot VM back: notice first, power off after.

    \b
    Examples:
      zen sim preempt pipeline-zen-jobs-4xt4-us-central1-vm-b4kz
      zen sim preempt --zone us-central1-a
    """
    if (vm is None) == (zone is None):
        raise typer.BadParameter("name one VM, or a zone with --zone")
    return _hit("preempt", vm, zone)


@app.command()
@command
def crash(vm: Vm) -> Answer:
    """The VM loses power without notice.

    \b
    Example:
      zen sim crash pipeline-zen-jobs-1xl4-us-central1-vm-b4kz
    """
    return _hit("crash", vm)


@app.command()
@command
def maintain(vm: Vm) -> Answer:
    """The VM's host is to be maintained: the VM is told, and stopped later."""
    return _hit("maintain", vm)


@fault
def quota(
    region: Region,
    metric: Annotated[str, typer.Argument(metavar="METRIC")],
    limit: Annotated[float, typer.Option("--limit", min=0, metavar="N")] = 0,
) -> Json:
    """A quota of the project in a region, or over all of them (global GPUS_ALL_REGIONS).

    \b
    Examples:
      zen sim quota us-central1 NVIDIA_L4_GPUS --limit 2 --for 10m
      zen sim quota global GPUS_ALL_REGIONS --limit 4 --for 10m
    """
    return {"region": region, "metric": metric, "limit": limit}


@fault
def slow_boots(
    region: Region,
    factor: Annotated[float | None, typer.Option("--factor", min=0.01, metavar="X")] = None,
    by: Annotated[str | None, typer.Option("--by", metavar="30s", help="Added.")] = None,
) -> Json:
    """VMs of a region take longer to boot.

    \b
    Example:
      zen sim slow-boots us-central1 --factor 10 --for 5m
    """
    if factor is None and by is None:
        raise typer.BadParameter("say how slow: --factor 10 or --by 30s")
    slower = {} if factor is None else {"factor": factor}
    return {"region": region, **slower, **_span("seconds", by, "--by")}


@fault
def api_errors(
    rate: Annotated[
        float, typer.Option("--rate", min=0, max=1, metavar="0.2", help="Share of the calls.")
    ] = 0.2,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="503", help="503, 500, 429, rateLimitExceeded, …"),
    ] = None,
    region: Annotated[str, typer.Option("--region", metavar="R")] = "*",
    latency: Annotated[
        str | None, typer.Option("--latency", metavar="2s", help="Added to every call.")
    ] = None,
) -> Json:
    """Calls to the Compute API fail or are slow.

    \b
    Examples:
      zen sim api-errors --rate 0.2 --kind 503 --for 1m
      zen sim api-errors --kind timeout-after-success --region us-east1
    """
    slow = _span("latency_s", latency, "--latency")
    return {"rate": rate, "kinds": kind or ["503"], "region": region, **slow}


@fault
def unsupported(
    zone: Annotated[str, typer.Argument(metavar="ZONE")],
    machine: Annotated[str, typer.Argument(metavar="MACHINE")],
) -> Json:
    """The zone does not have that machine type.

    \b
    Example:
      zen sim unsupported us-central1-a g2-standard-4 --for 10m
    """
    return {"zone": zone, "machine_type": machine}


@fault
def address_space(region: Region) -> Json:
    """The region's subnet has no address left.

    \b
    Example:
      zen sim address-space us-central1 --for 10m
    """
    return {"region": region}


@fault
def permissions(region: Region) -> Json:
    """We are not allowed to create VMs in the region.

    \b
    Example:
      zen sim permissions us-central1 --for 10m
    """
    return {"region": region}


@fault
def create_error(region: Region, code: Code, message: Message = "") -> Json:
    """Google refuses new VMs of a region with this error, in its own words.

    \b
    Examples:
      zen sim create-error us-central1 CONDITION_NOT_MET 'Constraint X violated' --for 10m
      zen sim create-error us-east1 UNSUPPORTED_OPERATION 'due to preemption' --for 10m
    """
    return {"region": region, "code": code, "message": message}


@fault
def no_driver(region: Region) -> Json:
    """New VMs of a region come up without their GPUs' driver, as from a bad image."""
    return {"region": region}


@fault
def operation_error(
    region: Region,
    code: Code,
    message: Message = "",
    call: Annotated[
        str,
        typer.Option(
            "--call",
            metavar="CALL",
            help="createInstances, deleteInstances or resizeRequests.insert. Default: all.",
        ),
    ] = "*",
    takes: Annotated[
        str | None, typer.Option("--takes", metavar="SPAN", help="Until it has failed, e.g. 5s.")
    ] = None,
) -> Json:
    """Google accepts calls about a region's groups, and their operations end with this error.

    \b
    Example:
      zen sim operation-error us-central1 INTERNAL_ERROR 'try again' --for 10m
    """
    ends = _span("takes_s", takes, "--takes")
    return {"region": region, "call": call, "code": code, "message": message, **ends}


@app.command()
@command
def faults() -> Answer:
    """The faults in force.

    \b
    Example:
      zen sim faults
    """
    with sim_client() as sim:
        found = sim.get("/state")["faults"]
    rows = [[fault["id"], fault["kind"], _left(fault), _details(fault)] for fault in found]
    none = f"no faults; set one, for example: {PROGRAM} sim stockout us-central1 '*' --for 10m"
    table = fitted(("ID", "KIND", "LEFT", "WHAT"), rows, below="WHAT")
    return Answer({"faults": found}, [table if found else none])


@app.command()
@command
def clear(
    fault_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Default: all of them.")
    ] = None,
) -> Answer:
    """Ends one fault, or all of them.

    \b
    Examples:
      zen sim clear f3
      zen sim clear
    """
    with sim_client() as sim:
        answer = sim.delete(path("faults", fault_id) if fault_id else "/faults")
    hit = ", ".join(answer["hit"]) or "nothing: no fault was set"
    return Answer(answer, [f"cleared {hit}"])


@app.command()
@command
def state() -> Answer:
    """What the pretend cloud holds: groups with members, VMs, faults.

    \b
    Examples:
      zen sim state
      zen sim state --json
    """
    with sim_client() as sim:
        answer = sim.get("/state")
    rows = [
        [
            member["name"],
            member["zone"],
            member["action"],
            member["status"],
            "spot" if group["spot"] else "standard",
            member["error"],
        ]
        for group in answer["migs"]
        for member in group["members"]
    ]
    sizes = sum(group["target_size"] for group in answer["migs"])
    counts = (
        f"{len(answer['migs'])} groups, target size {sizes} together,"
        f" {len(answer['vms'])} VMs, {len(answer['faults'])} faults"
    )
    headings = ("MEMBER", "ZONE", "ACTION", "STATUS", "KIND", "ERROR")
    table = fitted(headings, rows, drop="KIND ZONE", below="ERROR")
    return Answer(answer, [counts, table] if rows else [counts])


# --- calls --------------------------------------------------------------------------------------


def _span(key: str, text: str | None, flag: str) -> Json:
    return {} if text is None else {key: seconds(text, flag)}


def _hit(kind: str, vm: str | None, zone: str | None = None) -> Answer:
    """At once, and over: one VM, or all of a zone. Tables show the last four characters of a VM's
    name, and those may be typed."""
    with sim_client() as sim:
        if vm and "-" not in vm:
            groups = sim.get("/state")["migs"]
            names = [member["name"] for group in groups for member in group["members"]]
            fitting = [name for name in names if name.endswith(f"-{vm}")]
            vm = fitting[0] if len(fitting) == 1 else vm
        answer = sim.post("/faults", {"kind": kind, **({"vm": vm} if vm else {"zone": zone})})
    return Answer(answer, [f"{answer['kind']}: {', '.join(answer['hit']) or 'nothing was hit'}"])


def _left(fault: Json) -> str:
    if fault.get("left_s") is None:
        return "until cleared"
    return f"for {short(fault['left_s'])}"


def _details(fault: Json) -> str:
    known = ("id", "kind", "left_s", "starts_in_s", "for_s", "after_s")
    words = (
        f"{key}={','.join(value) if isinstance(value, list) else value}"
        for key, value in fault.items()
        if key not in known and value is not None
    )
    return " ".join(words)
