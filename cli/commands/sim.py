"""zen sim …: faults of the pretend cloud, set while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import AsJson, ConfigFile, takes
from cli.output.durations import seconds, short
from cli.output.printing import console, emit, fitted, say
from cli.paths import PROGRAM

if TYPE_CHECKING:
    from cli.client import Client, Json

app = typer.Typer(
    help="The pretend cloud: see it, set faults, clear them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

For = Annotated[str | None, typer.Option("--for", metavar="10m", help="Default: until cleared.")]
After = Annotated[str | None, typer.Option("--after", metavar="30s", help="Begins later.")]


@app.command()
def serve(
    config: ConfigFile = None,
    host: Annotated[str, typer.Option("--host", help="Where it listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0 takes a free one.")] = 8090,
    state_dir: Annotated[
        str, typer.Option("--state-dir", metavar="DIR", help="For its VMs.")
    ] = "/tmp/zen-cloud",  # noqa: S108  # a default for containers, where it is private
) -> None:
    """Runs a pretend cloud of its own for a configuration, in the foreground.

    zen up does this by itself; this is for stacks that are put together by hand.

    \b
    Example:
      PUBSUB_EMULATOR_HOST=localhost:8085 zen sim serve --config zen.yaml --port 8090
    """
    import json
    import os
    import sys
    from pathlib import Path

    from cli.commands.operate import load
    from cli.local.config import this_machine
    from cli.local.pretend_cloud import build_world

    directory = Path(state_dir)
    directory.mkdir(parents=True, exist_ok=True)
    world = directory / "world.json"
    words = build_world(load(config), this_machine().vms)
    world.write_text(json.dumps(words, indent=1), encoding="utf-8")
    options = ["--world", str(world), "--state-dir", state_dir, "--host", host, "--port", str(port)]
    os.execv(sys.executable, [sys.executable, "-m", "sim", *options])  # noqa: S606  # we become it


@app.command()
def stockout(
    place: Annotated[str, typer.Argument(metavar="ZONE_OR_REGION")],
    machine: Annotated[
        str, typer.Argument(metavar="MACHINE", help="A machine type, or * for all.")
    ] = "*",
    spot: Annotated[
        bool | None, typer.Option("--spot/--standard", help="Default: both kinds.")
    ] = None,
    lasts: For = None,
    after: After = None,
    as_json: AsJson = False,
) -> None:
    """No capacity in a zone or a whole region.

    \b
    Examples:
      zen sim stockout us-central1-a a2-highgpu-2g --for 10m
      zen sim stockout us-central1 g2-standard-4 --spot --for 1h
    """
    where = "zone" if place[-2:-1] == "-" and place[-1:].isalpha() else "region"
    fault: Json = {"kind": "stockout", where: place, "machine_type": machine}
    if spot is not None:
        fault["spot"] = spot
    _set(fault, lasts, after, as_json)


@app.command()
def preempt(
    vm: Annotated[str | None, typer.Argument(metavar="VM", help="A spot VM.")] = None,
    zone: Annotated[
        str | None, typer.Option("--zone", metavar="Z", help="All spot VMs of a zone.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The cloud takes a spot VM back: notice first, power off after.

    \b
    Examples:
      zen sim preempt pipeline-zen-jobs-4xt4-us-central1-vm-b4kz
      zen sim preempt --zone us-central1-a
    """
    if (vm is None) == (zone is None):
        raise typer.BadParameter("name one VM, or a zone with --zone")
    _hit({"kind": "preempt", **({"vm": _whole(vm)} if vm else {"zone": zone})}, as_json)


@app.command()
def crash(vm: Annotated[str, typer.Argument(metavar="VM")], as_json: AsJson = False) -> None:
    """The VM loses power without notice.

    \b
    Example:
      zen sim crash pipeline-zen-jobs-1xl4-us-central1-vm-b4kz
    """
    _hit({"kind": "crash", "vm": _whole(vm)}, as_json)


@app.command()
def maintain(vm: Annotated[str, typer.Argument(metavar="VM")], as_json: AsJson = False) -> None:
    """The VM's host is to be maintained: the VM is told, and stopped later."""
    _hit({"kind": "maintain", "vm": _whole(vm)}, as_json)


@app.command()
def quota(
    region: Annotated[str, typer.Argument(metavar="REGION")],
    metric: Annotated[str, typer.Argument(metavar="METRIC")],
    limit: Annotated[float, typer.Option("--limit", min=0, metavar="N")] = 0,
    lasts: For = None,
    after: After = None,
    as_json: AsJson = False,
) -> None:
    """A quota of the project in a region, or over all of them (global GPUS_ALL_REGIONS).

    \b
    Examples:
      zen sim quota us-central1 NVIDIA_L4_GPUS --limit 2 --for 10m
      zen sim quota global GPUS_ALL_REGIONS --limit 4 --for 10m
    """
    fault: Json = {"kind": "quota", "region": region, "metric": metric, "limit": limit}
    _set(fault, lasts, after, as_json)


@app.command("slow-boots")
def slow_boots(
    region: Annotated[str, typer.Argument(metavar="REGION")],
    factor: Annotated[float | None, typer.Option("--factor", min=0.01, metavar="X")] = None,
    by: Annotated[str | None, typer.Option("--by", metavar="30s", help="Added.")] = None,
    lasts: For = None,
    after: After = None,
    as_json: AsJson = False,
) -> None:
    """VMs of a region take longer to boot.

    \b
    Example:
      zen sim slow-boots us-central1 --factor 10 --for 5m
    """
    if factor is None and by is None:
        raise typer.BadParameter("say how slow: --factor 10 or --by 30s")
    fault: Json = {"kind": "slow-boots", "region": region}
    if factor is not None:
        fault["factor"] = factor
    if by is not None:
        fault["seconds"] = seconds(by, "--by")
    _set(fault, lasts, after, as_json)


@app.command("api-errors")
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
    lasts: For = None,
    after: After = None,
    as_json: AsJson = False,
) -> None:
    """Calls to the Compute API fail or are slow.

    \b
    Examples:
      zen sim api-errors --rate 0.2 --kind 503 --for 1m
      zen sim api-errors --kind timeout-after-success --region us-east1
    """
    fault: Json = {"kind": "api-errors", "rate": rate, "kinds": kind or ["503"], "region": region}
    if latency is not None:
        fault["latency_s"] = seconds(latency, "--latency")
    _set(fault, lasts, after, as_json)


@app.command()
def unsupported(
    zone: Annotated[str, typer.Argument(metavar="ZONE")],
    machine: Annotated[str, typer.Argument(metavar="MACHINE")],
    lasts: For = None,
    after: After = None,
    as_json: AsJson = False,
) -> None:
    """The zone does not have that machine type.

    \b
    Example:
      zen sim unsupported us-central1-a g2-standard-4 --for 10m
    """
    _set({"kind": "unsupported", "zone": zone, "machine_type": machine}, lasts, after, as_json)


@app.command("address-space")
def address_space(
    region: Annotated[str, typer.Argument(metavar="REGION")],
    lasts: For = None,
    after: After = None,
    as_json: AsJson = False,
) -> None:
    """The region's subnet has no address left.

    \b
    Example:
      zen sim address-space us-central1 --for 10m
    """
    _set({"kind": "address-space", "region": region}, lasts, after, as_json)


@app.command()
def permissions(
    region: Annotated[str, typer.Argument(metavar="REGION")],
    lasts: For = None,
    after: After = None,
    as_json: AsJson = False,
) -> None:
    """We are not allowed to create VMs in the region.

    \b
    Example:
      zen sim permissions us-central1 --for 10m
    """
    _set({"kind": "permissions", "region": region}, lasts, after, as_json)


@app.command("create-error")
def create_error(
    region: Annotated[str, typer.Argument(metavar="REGION")],
    code: Annotated[str, typer.Argument(metavar="CODE")],
    message: Annotated[str, typer.Argument(metavar="[MESSAGE]")] = "",
    lasts: For = None,
    after: After = None,
    as_json: AsJson = False,
) -> None:
    """Google refuses new VMs of a region with this error, in its own words.

    \b
    Examples:
      zen sim create-error us-central1 CONDITION_NOT_MET 'Constraint X violated' --for 10m
      zen sim create-error us-east1 UNSUPPORTED_OPERATION 'due to preemption' --for 10m
    """
    fault: Json = {"kind": "create-error", "region": region, "code": code, "message": message}
    _set(fault, lasts, after, as_json)


@app.command("no-driver")
def no_driver(
    region: Annotated[str, typer.Argument(metavar="REGION")],
    lasts: For = None,
    after: After = None,
    as_json: AsJson = False,
) -> None:
    """New VMs of a region come up without their GPUs' driver, as from a bad image."""
    _set({"kind": "no-driver", "region": region}, lasts, after, as_json)


@dataclass(frozen=True, slots=True)
class OperationErrorOptions:
    """What `zen sim operation-error` is given."""

    region: Annotated[str, typer.Argument(metavar="REGION")]
    code: Annotated[str, typer.Argument(metavar="CODE")]
    message: Annotated[str, typer.Argument(metavar="[MESSAGE]")] = ""
    call: Annotated[
        str,
        typer.Option(
            "--call",
            metavar="CALL",
            help="createInstances, deleteInstances or resizeRequests.insert. Default: all.",
        ),
    ] = "*"
    takes: Annotated[
        str | None, typer.Option("--takes", metavar="SPAN", help="Until it has failed, e.g. 5s.")
    ] = None
    lasts: For = None
    after: After = None
    as_json: AsJson = False


@app.command("operation-error")
@takes(OperationErrorOptions)
def operation_error(given: OperationErrorOptions) -> None:
    """Google accepts calls about a region's groups, and their operations end with this error.

    \b
    Example:
      zen sim operation-error us-central1 INTERNAL_ERROR 'try again' --for 10m
    """
    fault: Json = {"kind": "operation-error", "region": given.region, "call": given.call}
    fault |= {"code": given.code, "message": given.message}
    if given.takes is not None:
        fault["takes_s"] = seconds(given.takes, "--takes")
    _set(fault, given.lasts, given.after, given.as_json)


@app.command()
def faults(as_json: AsJson = False) -> None:
    """The faults in force.

    \b
    Example:
      zen sim faults
    """
    with _sim() as sim:
        found = sim.get("/state")["faults"]
    if as_json:
        emit({"faults": found})
    elif not found:
        say(f"no faults; set one, for example: {PROGRAM} sim stockout us-central1 '*' --for 10m")
    else:
        rows = [[fault["id"], fault["kind"], _left(fault), _details(fault)] for fault in found]
        console().print(fitted(("ID", "KIND", "LEFT", "WHAT"), rows, below="WHAT"))


@app.command()
def clear(
    fault_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Default: all of them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ends one fault, or all of them.

    \b
    Examples:
      zen sim clear f3
      zen sim clear
    """
    from cli.client import path

    with _sim() as sim:
        answer = sim.delete(path("faults", fault_id) if fault_id else "/faults")
    if as_json:
        emit(answer)
    else:
        say(f"cleared {', '.join(answer['hit']) or 'nothing: no fault was set'}")


@app.command()
def state(as_json: AsJson = False) -> None:
    """What the pretend cloud holds: groups with members, VMs, faults.

    \b
    Examples:
      zen sim state
      zen sim state --json
    """
    with _sim() as sim:
        answer = sim.get("/state")
    if as_json:
        emit(answer)
        return
    rows = [
        [
            member["name"],
            member["zone"],
            member["action"],
            member["status"],
            "spot" if group["spot"] else "standard",
            member["trouble"],
        ]
        for group in answer["migs"]
        for member in group["members"]
    ]
    sizes = sum(group["target_size"] for group in answer["migs"])
    say(
        f"{len(answer['migs'])} groups, target size {sizes} together,"
        f" {len(answer['vms'])} VMs, {len(answer['faults'])} faults"
    )
    if rows:
        headings = ("MEMBER", "ZONE", "ACTION", "STATUS", "KIND", "TROUBLE")
        console().print(fitted(headings, rows, drop="KIND ZONE", below="TROUBLE"))


# --- calls --------------------------------------------------------------------------------------


def _sim() -> Client:
    from cli.client import Client, sim_address

    return Client(sim_address(), prefix="/sim/v1", what="pretend cloud")


def _set(fault: Json, lasts: str | None, after: str | None, as_json: bool) -> None:
    if lasts is not None:
        fault["for_s"] = seconds(lasts, "--for")
    if after is not None:
        fault["after_s"] = seconds(after, "--after")
    with _sim() as sim:
        answer = sim.post("/faults", fault)
    if as_json:
        emit(answer)
    else:
        say(f"{answer['id']}: {answer['kind']} {_details(answer)}, {_left(answer)}")
        say(f"  end it: {PROGRAM} sim clear {answer['id']}")


def _whole(vm: str) -> str:
    """The VM's whole name: tables show its last four characters, and those may be typed."""
    if "-" in vm:
        return vm
    with _sim() as sim:
        groups = sim.get("/state")["migs"]
    names = [member["name"] for group in groups for member in group["members"]]
    fitting = [name for name in names if name.endswith(f"-{vm}")]
    return fitting[0] if len(fitting) == 1 else vm


def _hit(fault: Json, as_json: bool) -> None:
    with _sim() as sim:
        answer = sim.post("/faults", fault)
    if as_json:
        emit(answer)
    else:
        say(f"{answer['kind']}: {', '.join(answer['hit']) or 'nothing was hit'}")


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
