"""zen tenants …: who shares the GPUs, what each may have, what each has."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any

import typer

from cli.client import Client, Json, path
from cli.commands.known_names import every_tenant
from cli.options import Given, command, group, option
from cli.output.printing import Answer, fitted, money
from cli.output.tables import Fitted
from core.errors import BadInput, Fault
from core.field_options import Said
from core.tenant_settings import LIMITS, SETTINGS
from core.tenants import TenantSetting

NONE = "none"
Name = Annotated[str, typer.Argument(metavar="TENANT")]


@command
def list_tenants(client: Client) -> Answer:
    """All tenants: what they may have and what they have now.

    \b
    Examples:
      zen tenants list
      zen tenants list --json
    """
    found = every_tenant(client)
    return Answer({"tenants": found, "total": len(found)}, [tenants_table(found)])


app = group(
    "Who shares the GPUs: weights, quotas and priorities of tenants. Alone: the list.",
    list_tenants,
)


@app.command()
@command
def show(client: Client, tenant: Name) -> Answer:
    """One tenant: every limit beside what is used of it.

    \b
    Examples:
      zen tenants show vision
    """
    found = client.get(path("tenants", tenant))
    return Answer(found, _lines(found))


def _options() -> list[inspect.Parameter]:
    """One for each setting: yes or no, or a word."""
    made = []
    for name, setting in {**SETTINGS, **LIMITS}.items():
        said = setting.option
        told = typer.Option(*said.flags.split(), metavar=said.metavar, help=said.help)
        shape = bool if "/" in said.flags else str
        made.append(option(name, Annotated[shape | None, told], None))
    return made


@app.command("set")
@partial(command, made=_options())
def set_tenant(
    client: Client,
    given: Given,
    tenant: Name,
    gpus_of: Annotated[
        list[str] | None,
        typer.Option("--gpus-of", metavar="TYPE=N", help="GPUs of one type. Repeatable."),
    ] = None,
) -> Answer:
    """Create a tenant or change it. What is not named stays as it is.

    \b
    Examples:
      zen tenants set vision --weight 2 --gpus 64
      zen tenants set vision --gpus-of h100-80gb=16 --usd-per-day 5000
      zen tenants set vision --gpus none --priority-max 999
      zen tenants set vision --spot --confirm-above 40
    """
    body: Json = _said(given, SETTINGS)
    quota: Json = _said(given, LIMITS)
    if gpus_of:
        quota["gpus_by_type"] = dict(_of_type(word) for word in gpus_of)
    if quota:
        body["quota"] = quota
    if not body:
        raise BadInput([Fault("options", "none", "at least one setting (see --help)")])
    response = client.call("PATCH", path("tenants", tenant), body=body)
    found = response.json()
    done = f"tenant {tenant} {'created' if response.status_code == 201 else 'changed'}"
    return Answer(found, [done, *_lines(found)])


@app.command()
@command
def delete(client: Client, tenant: Name) -> Answer:
    """Delete a tenant: its settings and limits go, its jobs and its bill stay.

    Refused while it has jobs that have not ended. `zen cost --by tenant` goes on showing what it
    cost, for as long as the retention keeps it; a tenant that is set up later under the same id
    begins with the defaults and with the share that was used.

    \b
    Examples:
      zen tenants delete vision
    """
    found = client.delete(path("tenants", tenant))
    return Answer(found, [found["message"]])


def _said(given: Given, settings: Mapping[str, TenantSetting]) -> Json:
    """What was given of these settings, as the API reads it."""
    return {
        name: _value(setting, given[name])
        for name, setting in settings.items()
        if given[name] is not None
    }


def _value(setting: TenantSetting, word: Any) -> object:
    if isinstance(word, bool) or setting.kind.schema["type"] == "string":
        return word
    if setting.option.said is Said.NAMED and not word.isdecimal():
        return word
    return _number(setting.option.flag, word)


def _number(flag: str, word: str) -> float | int | None:
    if word == NONE:
        return None
    try:
        number = float(word)
    except ValueError:
        raise BadInput([Fault(flag, word[:80], f"a number, or {NONE}")]) from None
    return int(number) if number.is_integer() else number


def _of_type(word: str) -> tuple[str, float | int | None]:
    name, found, number = word.partition("=")
    if not found or not name:
        raise BadInput([Fault("--gpus-of", word[:80], "TYPE=N, e.g. h100-80gb=16")])
    return name, _number("--gpus-of", number)


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


def _lines(found: Json) -> Iterator[str]:
    yields = "may be preempted" if found["preemptible"] else "is never preempted"
    takes = "may preempt" if found["may_preempt"] else "may not preempt"
    name = f", {found['name']}" if found["name"] != found["tenant_id"] else ""
    yield f"tenant:    {found['tenant_id']}{name}  (version {found['version']})"
    yield f"weight:    {found['weight']:g}; {found['gpu_hours']:.2f} GPU-hours used, decayed"
    yield f"priority:  at most {found['priority_max']} ({found['priority_class_max']})"
    yield f"           {takes}; {yields}"
    yield f"consent:   {_consent(found)}"
    for limit in found["limits"]:
        name = limit["resource"]
        what = _of(limit, name) + ("" if limit["quota"] is not None else ", no limit")
        yield f"  {name + ':':<16} {what}"
