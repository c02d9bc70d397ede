"""zen capacity: what regions have delivered and refused."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from cli.client import Client, Json
from cli.commands.known_names import refuse_unknown
from cli.options import Cluster, command
from cli.output.durations import between, clock_time, short
from cli.output.printing import Answer, fitted, price
from cli.output.tables import Fitted
from cli.paths import PROGRAM
from core.clock import SystemClock

HEADINGS = (
    *("CLUSTER", "REGION", "PRICE/H", "CHANCE", "LAST", "AGO"),
    *("DELIVERY", "BOOT", "RECLAIMS/H", "BLOCKED", "UNTIL", "WHY"),
)
NUMBERS = "PRICE/H CHANCE AGO DELIVERY BOOT RECLAIMS/H"
DROPPABLE = "DELIVERY BOOT RECLAIMS/H AGO LAST PRICE/H"


@command
def capacity(
    client: Client,
    cluster: Cluster = None,
    zones: Annotated[bool, typer.Option("--zones", "-z", help="Also each zone by itself.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also the regions that were never asked.")
    ] = False,
) -> Answer:
    """What each region has delivered and refused, how likely it is to deliver, and what blocks it.

    CHANCE is the probability that a VM can be had now; DELIVERY and BOOT are the usual times from
    the request to RUNNING, and from there to READY; RECLAIMS/H is how often Google takes a spot
    VM back. LAST is the newest observation: hit (it delivered), miss (it had none), hint
    (Google's own advice), taken (it took spot VMs back, so it had none). BLOCKED says why it is
    not asked now, or that there is an open alert about it.

    \b
    Examples:
      zen capacity
      zen capacity --cluster 1xl4 --zones
      zen capacity --all --json
    """
    answer = client.get("/capacity", {"cluster": cluster, "zones": "true" if zones else None})
    if not answer["places"]:
        refuse_unknown(client, cluster=cluster)
    found = [place for place in answer["places"] if everything or _is_known(place)]
    if not found:
        nothing = "nothing is known yet: no region was asked for a VM"
        return Answer(answer, [f"{nothing} (all regions: {PROGRAM} capacity --all)"])
    return Answer(answer, [capacity_table(found, SystemClock().now())])


def capacity_table(places: list[Json], now: datetime) -> Fitted:
    """One row for each region, or zone."""
    rows = [_row(place, now) for place in places]
    return fitted(HEADINGS, rows, right=NUMBERS, drop=DROPPABLE, below="WHY")


def _is_known(place: Json) -> bool:
    told = place["last_outcome"] is not None or place["blocked"] is not None
    return told or bool(place.get("alerts"))


def _row(place: Json, now: datetime) -> tuple[str, ...]:
    block = place["blocked"] or {}
    taken = place["preemptions_per_hour"]
    return (
        place["cluster"],
        f"  {place['zone']}" if place["zone"] else place["region"],
        price(place["usd_per_hour"]),
        f"{place['belief']:.0%}",
        place["last_outcome"] or "-",
        between(place["last_at"], now),
        _span(place["usual_delivery_s"]),
        _span(place["usual_boot_s"]),
        "-" if taken is None else f"{taken:.2f}",
        block.get("kind") or ("alert" if place.get("alerts") else "-"),
        clock_time(block["until"], now) if block else "-",
        _why(place, now),
    )


def _why(place: Json, now: datetime) -> str:
    """What blocks it, and what a human was told and has not mended yet."""
    message = str((place["blocked"] or {}).get("message", ""))
    alerts = [
        f"open alert {alert['kind']} since {clock_time(alert['since'], now).partition('.')[0]}"
        + (f": {alert['message']}" if alert["message"] != message else "")
        for alert in place.get("alerts") or ()
    ]
    return "; ".join(word for word in (message, *alerts) if word)


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else short(seconds)
