"""zen cost: what was spent, on what, and what is being spent now."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import typer

from cli.client import Client, Json
from cli.commands.known_names import refuse_unknown
from cli.options import Cluster, command
from cli.output.printing import Answer, fitted, money
from cli.output.tables import Fitted

By = Literal["kind", "job", "tenant", "user", "cluster", "region", "spot", "day"]
WASTED = ("boot", "idle", "hedge", "preempted", "lost")
NOBODY = {"tenant": "(no tenant)", "user": "(no user)", "job": "(no job)"}


@dataclass(frozen=True, slots=True)
class CostOptions:
    """What `zen cost` is given."""

    by: Annotated[By, typer.Option("--by", help="What to group by.")] = "kind"
    since: Annotated[
        str, typer.Option("--since", metavar="7d|DATE", help="First day (UTC), included.")
    ] = "7d"
    until: Annotated[
        str | None, typer.Option("--until", metavar="DATE", help="Last day, included.")
    ] = None
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="T", help="Only what its jobs cost.")
    ] = None
    cluster: Cluster = None
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, help="Most jobs with --by job.")
    ] = 50


@command
def cost(client: Client, wanted: CostOptions) -> Answer:
    """What VMs cost: useful work, and what was wasted on what. VMs that live count up to now.

    Days are UTC. Waste is boot (until the worker is ready), idle, hedge (VMs that never ran a
    job), and what attempts lost after their last checkpoint (preempted, lost). All of it is the
    tenant's whose job caused it; (no tenant) is what nobody caused: VMs that a floor keeps.

    \b
    Examples:
      zen cost
      zen cost --by tenant --since 30d
      zen cost --by day --cluster 1xl4 --since 2026-01-01 --until 2026-01-31
      zen cost --by job --since 0d --json
    """
    found = client.get("/cost", asdict(wanted))
    if wanted.by == "job":
        _name_jobs(found["rows"])
    if found["rows"]:
        return Answer(found, [cost_table(found), *_below(found)])
    refuse_unknown(client, cluster=wanted.cluster, tenant=wanted.tenant)
    nothing = f"nothing was spent from {found['since']} to {found['until']} (UTC)"
    return Answer(found, [nothing, *_below(found)])


def cost_table(found: Json) -> Fitted:
    """A row for each group, and their sum."""
    by = found["by"]
    if by == "kind":
        return _kinds_table(found)
    digits = _digits(found)
    rows = [
        _cells(row.get("job_id") or row["key"] or NOBODY.get(by, "-"), row["amount"], digits)
        for row in found["rows"]
    ]
    if found.get("others"):
        rows.append(_cells("(other jobs)", found["others"], digits))
    rows.append(_cells("TOTAL", found["total"], digits))
    headings = (by.upper(), "USD", "USEFUL", *map(str.upper, WASTED), "WASTE", "VM-H", "GPU-H")
    return fitted(headings, rows, right=headings[1:], drop="WASTE")


def _name_jobs(rows: list[Json]) -> None:
    """The key is JOB or JOB@USER; commands take the job, and --user where several have it."""
    for row in rows:
        if row["key"]:
            row["job_id"], _, user = row["key"].partition("@")
            row["user_id"] = user or "0"


def _digits(found: Json) -> int:
    """As the service has rounded; an older one does not say."""
    return int(found.get("decimals") or (2 if found["total"]["usd"] >= 100 else 4))


def _dollars(value: float, digits: int) -> str:
    """All of a table as finely, so that it adds up as printed."""
    return f"${value:.{digits}f}"


def _cells(name: str, amount: Json, digits: int) -> list[object]:
    kinds = amount["kinds"]
    return [
        name,
        _dollars(amount["usd"], digits),
        _dollars(amount["useful_usd"], digits),
        *(_dollars(kinds[kind], digits) if kinds[kind] else "" for kind in WASTED),
        f"{amount['waste_share']:.1%}",
        f"{amount['vm_hours']:.2f}",
        f"{amount['gpu_hours']:.2f}",
    ]


def _kinds_table(found: Json) -> Fitted:
    total, digits = found["total"], _digits(found)
    rows: list[list[object]] = [
        [row["key"], *_plain_cells(row["amount"], total["usd"], digits)] for row in found["rows"]
    ]
    rows.append(["TOTAL", *_plain_cells(total, total["usd"], digits)])
    headings = ("KIND", "USD", "SHARE", "VM-H", "GPU-H")
    return fitted(headings, rows, right="USD SHARE VM-H GPU-H")


def _plain_cells(amount: Json, everything: float, digits: int) -> list[object]:
    share = amount["usd"] / everything if everything else 0.0
    hours = (f"{amount['vm_hours']:.3f}", f"{amount['gpu_hours']:.3f}")
    return [_dollars(amount["usd"], digits), f"{share:.1%}", *hours]


def _below(found: Json) -> list[str]:
    total, digits = found["total"], _digits(found)
    parts = (_dollars(total["wasted_usd"], digits), _dollars(total["usd"], digits))
    wasted = f"{' of '.join(parts)} ({total['waste_share']:.1%})"
    forecast = f"{money(found['forecast_usd'])} by 24:00 UTC if all goes on as it is"
    return [
        f"wasted:    {wasted}, {found['since']} to {found['until']} (UTC)",
        f"burn rate: ${found['burn_usd_per_hour']:.2f}/h now",
        f"today:     {money(found['today_usd'])} so far, {forecast}",
        *(_budget(budget) for budget in found["budgets"]),
    ]


def _budget(budget: Json) -> str:
    parts = [
        f"{money(budget[used])} of ${budget[limit]:g} {words}"
        for used, limit, words in (
            ("day_usd", "usd_per_day", "today"),
            ("month_usd", "usd_per_month", "this month"),
        )
        if budget[limit] is not None
    ]
    held = "; new work is held" if budget["held"] else ""
    return f"budget:    tenant {budget['tenant']}: {', '.join(parts) or 'no limit'}{held}"
