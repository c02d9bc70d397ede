"""Commands about the machines: clusters, vms, alerts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer

from cli.client import Client, Json
from cli.commands.known_names import refuse_unknown
from cli.options import AsJson, Cluster, command
from cli.output.durations import between, clock_time, moment, short
from cli.output.printing import Answer, Printable, fitted, money, not_all, price, watch
from cli.output.tables import Fitted
from core.clock import SystemClock
from core.vm import vm_word

CLUSTER_HEADINGS = (
    *("CLUSTER", "VMS", "WAIT", "RUN", "REGION", "PRICE/H"),
    *("TARGET", "BOOT", "IDLE", "BUSY", "LEAVE", "WHY"),
)
NUMBERS = "VMS WAIT RUN PRICE/H TARGET BOOT IDLE BUSY LEAVE"


@command
def clusters(
    client: Client,
    watched: Annotated[
        bool, typer.Option("--watch", "-w", help="Live; shows only what is in use or blocked.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also the regions where nothing happens.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Clusters × regions: target, booting, idle, busy, and what blocks a region.

    Regions where nothing happens are summed up in one row for their cluster.

    \b
    Examples:
      zen clusters
      zen clusters --all
      zen clusters --watch
      zen clusters --json
    """
    if watched:
        watch(
            lambda: client.get("/clusters"),
            lambda page, height: clusters_table(page["clusters"], _now(), height, busy_only=True),
            lambda page: _cluster_lines(page["clusters"]),
            as_json,
        )
    found = client.get("/clusters")
    Answer(found, _clusters_text(found["clusters"], everything)).print(as_json)


def _clusters_text(found: list[Json], everything: bool) -> Iterator[Printable]:
    yield clusters_table(found, _now(), every_region=everything)
    if burn := sum(cluster.get("burn_usd_per_hour", 0) for cluster in found):
        yield f"burn rate: {price(burn)}/h now"


@command
def vms(
    client: Client,
    cluster: Cluster = None,
    region: Annotated[str | None, typer.Option("--region", metavar="R")] = None,
    gone: Annotated[bool, typer.Option("--gone", help="Also deleted VMs.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=20_000)] = 500,
) -> Answer:
    """The VMs: where, since when, what runs on them, what they cost.

    \b
    Examples:
      zen vms
      zen vms --cluster 1xl4 --gone
    """
    query: dict[str, object] = {
        "cluster": cluster,
        "region": region,
        "gone": "true" if gone else None,
        "page_size": min(limit, 500),
    }
    page = client.get("/vms", query)
    client.read_on(page, "/vms", query, "vms", limit)
    if not page["vms"]:
        refuse_unknown(client, cluster=cluster, region=region)
        return Answer(
            page, ["no VMs: they are started when there is work and given back when idle"]
        )
    del page["vms"][limit:]
    return Answer(page, [_vms_table(page["vms"], _now())], not_all(page, limit))


@command
def alerts(
    client: Client,
    everything: Annotated[bool, typer.Option("--all", help="Also cleared alerts.")] = False,
) -> Answer:
    """What a human should know: permissions, quotas, missing groups, silent fleets.

    \b
    Examples:
      zen alerts
      zen alerts --all --json
    """
    answer = client.get("/alerts", {"all": "true" if everything else None})
    found = answer["alerts"]
    if not found:
        return Answer(answer, ["no alerts" if everything else "no open alerts"])
    actions = {alert["kind"]: alert["action"] for alert in found if alert.get("action")}
    what_to_do = (f"{kind}: {action}" for kind, action in sorted(actions.items()))
    return Answer(answer, [alerts_table(found, _now()), *what_to_do])


# --- tables -------------------------------------------------------------------------------------


def alerts_table(found: list[Json], now: datetime) -> Fitted:
    """One row each; the message may take lines of its own."""
    rows = [
        [
            alert["id"],
            alert["severity"],
            alert["kind"],
            alert["subject"],
            clock_time(alert["raised_at"], now),
            alert["count"],
            "over" if alert.get("cleared_at") else "open",
            alert["message"],
        ]
        for alert in found
    ]
    headings = ("ID", "SEVERITY", "KIND", "SUBJECT", "SINCE", "COUNT", "STATE", "MESSAGE")
    return fitted(headings, rows, right="ID COUNT", below="MESSAGE")


def clusters_table(
    found: list[Json],
    now: datetime,
    height: int | None = None,
    *,
    busy_only: bool = False,
    every_region: bool = False,
) -> Fitted:
    """A row for each region where something happens, one for the rest of the cluster's; what is
    the cluster's own stands in its first row."""
    rows: list[list[object]] = []
    hidden = 0
    for cluster in found:
        regions = [r for r in cluster["regions"] if every_region or _matters(r)]
        jobs = cluster["jobs"]
        if busy_only and not regions and not any(jobs.values()):
            hidden += 1
            continue
        waiting = jobs.get("queued", 0) + jobs.get("provisioning", 0)
        head: list[object] = [
            cluster["name"] + _kind(cluster),
            f"{cluster['vms']}/{cluster['vm_max']}",
            waiting,
            sum(jobs.values()) - waiting,
        ]
        cells = [_region_cells(region, now) for region in regions]
        if len(regions) < len(cluster["regions"]) and not (busy_only and regions):
            cells.append(_quiet_cells([r for r in cluster["regions"] if r not in regions]))
        for index, shown in enumerate(cells):
            mine = head if index == 0 else [head[0], *[" "] * (len(head) - 1)]
            rows.append([*mine, *shown])
    return fitted(
        CLUSTER_HEADINGS,
        rows,
        right=NUMBERS,
        drop="PRICE/H TARGET",
        below="WHY",
        foot=[f"… {hidden} clusters without work"] if hidden else (),
        height=height,
    )


def _kind(cluster: Json) -> str:
    kinds = {"spot": "spot", "share": "shared", "drain": "draining"}
    words = [word for key, word in kinds.items() if cluster.get(key)]
    return f" ({', '.join(words)})" if words else ""


def _matters(region: Json) -> bool:
    counts = ("target", "requested", "booting", "idle", "busy", "draining", "deleting")
    return bool(region.get("blocked")) or any(region.get(name) for name in counts)


def _quiet_cells(regions: list[Json]) -> list[object]:
    """Regions of one cluster where nothing happens."""
    cheapest = min(region["usd_per_hour"] for region in regions)
    words = regions[0]["region"] if len(regions) == 1 else f"{len(regions)} quiet regions"
    return [words, price(cheapest), 0, 0, 0, 0, 0, ""]


def _region_cells(region: Json, now: datetime) -> list[object]:
    usd = region["usd_per_hour"]
    return [
        region["region"],
        "" if usd is None else price(usd),
        region["target"],
        region["requested"] + region["booting"],
        region["idle"],
        region["busy"],
        region["draining"] + region["deleting"],
        _region_why(region, now),
    ]


def _region_why(region: Json, now: datetime) -> str:
    """In one cell: on a narrow terminal it gets a line of its own."""
    block = blocked(region, now)
    words = (f"blocked: {block}" if block else "", str(region["why"] or ""))
    return "; ".join(word for word in words if word)


def blocked(region: Json, now: datetime) -> str:
    """What blocks the region and for how long still."""
    block = region.get("blocked")
    if not block:
        return ""
    until = moment(block.get("until"))
    left = f" {short((until - now).total_seconds())}" if until else ""
    return f"{block['kind']}{left}"


def _cluster_lines(found: list[Json]) -> dict[str, str]:
    lines = {}
    for cluster in found:
        for region in filter(_matters, cluster["regions"]):
            block = region.get("blocked")
            words = [
                f"{cluster['name']} {region['region']}:",
                f"target {region['target']}, booting {region['requested'] + region['booting']},",
                f"idle {region['idle']}, busy {region['busy']}",
                f"blocked by {block['kind']}" if block else "",
                str(region["why"] or ""),
            ]
            key = f"{cluster['name']} {region['region']}"
            lines[key] = "  ".join(word for word in words if word)
    return lines


def _vms_table(found: list[Json], now: datetime) -> Fitted:
    rows = [
        [
            vm["name"],
            vm_word(str(vm["state"]), bool(vm["busy"])),
            vm["zone"] or vm["region"],
            "spot" if vm["spot"] else "standard",
            between(vm["requested_at"], moment(vm.get("gone_at")) or now),
            between(vm.get("last_beat_at"), now),
            money(vm["cost_usd"]),
            ", ".join(vm["jobs"]),
            _vm_why(vm),
        ]
        for vm in found
    ]
    headings = ("VM", "STATE", "ZONE", "KIND", "AGE", "HEARD", "COST", "JOBS", "WHY")
    return fitted(headings, rows, right="AGE HEARD COST", drop="KIND HEARD AGE ZONE", below="WHY")


def _vm_why(vm: Json) -> str:
    reason, health = str(vm["reason"]), str(vm.get("health") or "")
    return reason if health in reason else f"{reason}; {health}"


def _now() -> datetime:
    return SystemClock().now()
