"""zen tenants …: who shares the GPUs, what each may have, what each has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Api, AsJson, takes
from cli.output.printing import console, emit, fitted, money, say
from core.errors import BadInput, Fault

if TYPE_CHECKING:
    from cli.client import Json
    from cli.output.tables import Fitted

NONE = "none"
_LIMIT = f"A number, or {NONE} for no limit."
app = typer.Typer(
    help="Who shares the GPUs: weights, quotas and priorities of tenants. Alone: the list.",
    invoke_without_command=True,
    rich_markup_mode=None,
    add_completion=False,
)
Name = Annotated[str, typer.Argument(metavar="TENANT")]


@app.callback()
def _tenants(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_tenants()


@app.command("list")
def list_tenants(api: Api = None, as_json: AsJson = False) -> None:
    """All tenants: what they may have and what they have now.

    \b
    Examples:
      zen tenants list
      zen tenants list --json
    """
    from cli.client import Client, api_address

    with Client(api_address(api)) as client:
        found = client.get("/tenants")
    if as_json:
        emit(found)
    else:
        console().print(tenants_table(found["tenants"]))


@app.command()
def show(tenant: Name, api: Api = None, as_json: AsJson = False) -> None:
    """One tenant: every limit beside what is used of it.

    \b
    Examples:
      zen tenants show vision
    """
    from cli.client import Client, api_address, path

    with Client(api_address(api)) as client:
        found = client.get(path("tenants", tenant))
    if as_json:
        emit(found)
    else:
        _say_tenant(found)


@dataclass(frozen=True, slots=True)
class TenantOptions:
    """What `zen tenants set` is given."""

    tenant: Name
    weight: Annotated[
        float | None, typer.Option("--weight", help="Its part beside the others' weights.")
    ] = None
    priority_max: Annotated[
        int | None, typer.Option("--priority-max", help="Its jobs may not ask for more.")
    ] = None
    may_preempt: Annotated[
        bool | None,
        typer.Option("--may-preempt/--may-not-preempt", help="May its jobs take others' place?"),
    ] = None
    preemptible: Annotated[
        bool | None,
        typer.Option("--preemptible/--not-preemptible", help="May its jobs be preempted?"),
    ] = None
    spot: Annotated[
        bool | None,
        typer.Option("--spot/--no-spot", help="Spot VMs for jobs that do not say."),
    ] = None
    allow_larger: Annotated[
        bool | None,
        typer.Option(
            "--allow-larger/--no-allow-larger",
            help="More GPUs than asked for, for jobs that do not say.",
        ),
    ] = None
    confirm_above: Annotated[
        str | None,
        typer.Option(
            "--confirm-above",
            metavar="USD",
            help="Dearer submissions must be confirmed, per hour; none: as the configuration says.",
        ),
    ] = None
    gpus: Annotated[str | None, typer.Option("--gpus", metavar="N", help=_LIMIT)] = None
    gpus_of: Annotated[
        list[str] | None,
        typer.Option("--gpus-of", metavar="TYPE=N", help="GPUs of one type. Repeatable."),
    ] = None
    gpu_memory_gb: Annotated[
        str | None, typer.Option("--gpu-memory-gb", metavar="N", help=_LIMIT)
    ] = None
    cpus: Annotated[str | None, typer.Option("--cpus", metavar="N", help=_LIMIT)] = None
    memory_gb: Annotated[str | None, typer.Option("--memory-gb", metavar="N", help=_LIMIT)] = None
    jobs: Annotated[
        str | None, typer.Option("--jobs", metavar="N", help=f"Jobs at once. {_LIMIT}")
    ] = None
    usd_per_day: Annotated[str | None, typer.Option("--usd-per-day", metavar="N", help=_LIMIT)] = (
        None
    )
    usd_per_month: Annotated[
        str | None, typer.Option("--usd-per-month", metavar="N", help=_LIMIT)
    ] = None
    api: Api = None
    as_json: AsJson = False


@app.command("set")
@takes(TenantOptions)
def set_tenant(given: TenantOptions) -> None:
    """Create a tenant or change it. What is not named stays as it is.

    \b
    Examples:
      zen tenants set vision --weight 2 --gpus 64
      zen tenants set vision --gpus-of h100-80gb=16 --usd-per-day 5000
      zen tenants set vision --gpus none --priority-max 999
      zen tenants set vision --spot --confirm-above 40
    """
    from cli.client import Client, api_address, path

    limits = {
        "gpus": given.gpus,
        "gpu_memory_gb": given.gpu_memory_gb,
        "cpus": given.cpus,
        "memory_gb": given.memory_gb,
        "jobs": given.jobs,
        "usd_per_day": given.usd_per_day,
        "usd_per_month": given.usd_per_month,
    }
    settings = {
        "weight": given.weight,
        "priority_max": given.priority_max,
        "may_preempt": given.may_preempt,
        "preemptible": given.preemptible,
        "spot": given.spot,
        "allow_larger": given.allow_larger,
    }
    body: dict[str, object] = {k: v for k, v in settings.items() if v is not None}
    if given.confirm_above is not None:
        body["confirm_above_usd_per_hour"] = _number("confirm_above", given.confirm_above)
    quota: dict[str, object] = {k: _number(k, v) for k, v in limits.items() if v is not None}
    if given.gpus_of:
        quota["gpus_by_type"] = dict(_of_type(word) for word in given.gpus_of)
    if quota:
        body["quota"] = quota
    if not body:
        raise BadInput([Fault("options", "none", "at least one setting (see --help)")])
    with Client(api_address(given.api)) as client:
        response = client.call("PATCH", path("tenants", given.tenant), body=body)
    found = response.json()
    if given.as_json:
        emit(found)
        return
    say(f"tenant {given.tenant} {'created' if response.status_code == 201 else 'changed'}")
    _say_tenant(found)


@app.command()
def delete(tenant: Name, api: Api = None, as_json: AsJson = False) -> None:
    """Delete a tenant: its settings and limits go, its jobs and its bill stay.

    Refused while it has jobs that have not ended. `zen cost --by tenant` goes on showing what it
    cost, for as long as the retention keeps it; a tenant that is set up later under the same id
    begins with the defaults and with the share that was used.

    \b
    Examples:
      zen tenants delete vision
    """
    from cli.client import Client, api_address, path

    with Client(api_address(api)) as client:
        found = client.delete(path("tenants", tenant))
    if as_json:
        emit(found)
    else:
        say(found["message"])


def _number(name: str, word: str) -> float | int | None:
    if word == NONE:
        return None
    try:
        number = float(word)
    except ValueError:
        option = "--" + name.replace("_", "-")
        raise BadInput([Fault(option, word[:80], f"a number, or {NONE}")]) from None
    return int(number) if number.is_integer() else number


def _of_type(word: str) -> tuple[str, float | int | None]:
    name, found, number = word.partition("=")
    if not found or not name:
        raise BadInput([Fault("--gpus-of", word[:80], "TYPE=N, e.g. h100-80gb=16")])
    return name, _number("gpus_of", number)


def tenants_table(rows: list[Json]) -> Fitted:
    """One line each."""
    numbers = ("WEIGHT", "USED GPU-H", "JOBS", "GPUS", "TODAY", "MONTH")
    headings = ("TENANT", "NAME", *numbers, "MAX CLASS")
    rows_ = [_line(row) for row in rows]
    return fitted(headings, rows_, right=numbers, drop=("MAX CLASS", "NAME", "WEIGHT"))


def _line(row: Json) -> list[object]:
    limits = {limit["resource"]: limit for limit in row["limits"]}
    cells = [_of(limits.get(name), name) for name in ("jobs", "gpus")]
    dollars = [_of(limits.get(name), name) for name in ("usd_per_day", "usd_per_month")]
    used = f"{row['gpu_hours']:.2f}"
    max_class = row["priority_class_max"]
    name = row["name"] if row["name"] != row["tenant_id"] else "-"
    return [row["tenant_id"], name, f"{row['weight']:g}", used, *cells, *dollars, max_class]


def _of(limit: Json | None, name: str) -> str:
    """Used of how much."""
    if limit is None:
        return "0"
    dollars = name.startswith("usd")
    used = money(limit["used"]) if dollars else f"{limit['used']:g}"
    if limit["quota"] is None:
        return used
    return f"{used} of {'$' if dollars else ''}{limit['quota']:g}"


def _consent(found: Json) -> str:
    confirm = found["confirm_above_usd_per_hour"]
    words = [
        "spot VMs" if found["spot"] else "no spot VMs",
        "larger VMs" if found["allow_larger"] else "no larger VMs",
        "price confirmed as configured" if confirm is None else f"confirms above ${confirm:g}/h",
    ]
    return ", ".join(words) + " (jobs that say nothing)"


def _say_tenant(found: Json) -> None:
    yields = "may be preempted" if found["preemptible"] else "is never preempted"
    takes = "may preempt" if found["may_preempt"] else "may not preempt"
    name = f", {found['name']}" if found["name"] != found["tenant_id"] else ""
    say(f"tenant:    {found['tenant_id']}{name}  (version {found['version']})")
    say(f"weight:    {found['weight']:g}; {found['gpu_hours']:.2f} GPU-hours used, decayed")
    say(f"priority:  at most {found['priority_max']} ({found['priority_class_max']})")
    say(f"           {takes}; {yields}")
    say(f"consent:   {_consent(found)}")
    for limit in found["limits"]:
        name = limit["resource"]
        what = _of(limit, name) + ("" if limit["quota"] is not None else ", no limit")
        say(f"  {name + ':':<16} {what}")
