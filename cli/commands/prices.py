"""zen submit: the price of a job before it is bought, and its confirmation."""

from __future__ import annotations

import sys

import typer

from cli.client import Client, Json, Refused
from cli.connection import Response
from cli.output.durations import short
from cli.output.printing import Answer, fitted, note
from cli.output.tables import Fitted

NOT_CONFIRMED = "price_not_confirmed"
OTHERS_MAX = 4
"""Rows of clusters that the job has not agreed to."""
NO_SPOT = "no_spot"
FLAGS = {"allow_larger": "--allow-larger", "spot": "--spot"}


def send(client: Client, body: Json, yes: bool) -> Response:
    """Submits; a price that must be confirmed is shown and asked about. Without a terminal the
    command ends with 2, unless `yes`."""
    try:
        return client.call("POST", "/jobs", body=body)
    except Refused as error:
        if error.code != NOT_CONFIRMED or error.usd_per_hour is None:
            raise
        if not yes:
            _ask(str(error))
        # Another price in the meantime is another question.
        price = {"confirmed_usd_per_hour": f"{error.usd_per_hour:.4f}"}
        return client.call("POST", "/jobs", query=price, body=body)


def _ask(why: str) -> None:
    note(why)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        note("not submitted: nobody can be asked here; agree with --yes")
        raise typer.Exit(2)
    if not typer.confirm("Submit it?", default=False, err=True):
        note("not submitted")
        raise typer.Exit(1)


def dry_run(client: Client, body: Json) -> Answer:
    """Where the job could run; 1 if it would be refused."""
    answer = client.post("/jobs", body, {"dry_run": "true"})
    found, taken = answer["candidates"], answer["cluster"] is not None
    first = [row for row in found if not row["needs"]]
    others = [row for row in found if row["needs"]]
    lines = [f"would be {'queued for ' if taken else 'refused: '}{answer['message']}"]
    if answer["confirm"]:
        lines.append(f"to be confirmed: {answer['confirm']}")
    return Answer(
        answer,
        [
            candidates_table([*first, *others[:OTHERS_MAX]]),
            *lines,
            "dry run: nothing was submitted, nothing is bought",
        ],
        [f"{len(others) - OTHERS_MAX} more need consent; all of them with --json"]
        if len(others) > OTHERS_MAX
        else (),
        code=0 if taken else 1,
    )


def candidates_table(found: list[Json]) -> Fitted:
    """One line for each cluster, in the order in which they would be taken."""
    headings = ("CLUSTER", "GPUS", "OPEN", "$/H", "TOTAL", "SPOT", "CHANCE", "ETA", "NOTE")
    rows: list[list[object]] = [
        [
            row["cluster"],
            row["gpus_per_vm"],
            f"{row['regions_open']}/{row['regions']}",
            _range(row["usd_per_hour"], row["usd_per_hour_max"]),
            f"{row['total_usd_per_hour']:.2f}" if row["vms"] > 1 else "",
            "spot" if row["spot"] else "no",
            f"{row['success_probability']:.0%}",
            _eta(row),
            _note(row),
        ]
        for row in found
    ]
    return fitted(headings, rows, right=("GPUS", "OPEN", "$/H", "TOTAL", "CHANCE", "ETA"))


def _range(low: float, high: float) -> str:
    least, most = f"{low:.2f}", f"{high:.2f}"
    return least if least == most else f"{least}-{most}"


def _eta(row: Json) -> str:
    seconds = row["eta_s"]
    if seconds is None:
        return "?"
    return "now" if seconds < 1 else short(seconds)


def _note(row: Json) -> str:
    """Whether it would be taken; else what that needs."""
    if row["drained"]:
        return "drained"
    if row["chosen"]:
        return "chosen"
    flags = " ".join(FLAGS.get(need, need) for need in row["needs"] if need != NO_SPOT)
    with_flags = [f"with {flags}"] if flags else []
    without = ["without --spot"] if NO_SPOT in row["needs"] else []
    return ", ".join([*with_flags, *without]) or "fits"
