"""zen dead-letters …: messages that could not be used: see them, send them again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer

from cli.client import Client, Json, path
from cli.commands.groups import one_by_one
from cli.options import Limit, command, group
from cli.output.durations import clock_time
from cli.output.printing import Answer, clean, fitted, not_all
from cli.output.tables import Fitted
from cli.paths import PROGRAM
from core.clock import SystemClock


@command
def list_dead_letters(
    client: Client,
    source: Annotated[
        str | None,
        typer.Option(
            "--source", metavar="S", help="submit, heartbeats, or a topic that we send to."
        ),
    ] = None,
    limit: Limit = 50,
) -> Answer:
    """The dead letters, newest first, each with every fault that was found in it.

    \b
    Examples:
      zen dead-letters list
      zen dead-letters list --source submit --json
    """
    page = client.get("/dead-letters", {"source": source, "page_size": limit})
    found = page["dead_letters"]
    if not found:
        return Answer(page, ["no dead letters: every message could be used"])
    table = _dead_letters_table(found, SystemClock().now())
    return Answer(page, [table], not_all(page, len(found)))


app = group(
    "Messages that could not be used, with the reason: list (also alone), show, send again.",
    list_dead_letters,
)


@app.command()
@command
def show(
    client: Client,
    dead_letter: Annotated[str, typer.Argument(metavar="ID", help="As the list shows it.")],
) -> Answer:
    """One dead letter whole: what came, from where, and why it could not be used.

    \b
    Examples:
      zen dead-letters show 4711
      zen dead-letters show 4711 --json
    """
    found = client.get(path("dead-letters", dead_letter))
    return Answer(found, _whole(found))


def _whole(found: Json) -> Iterator[str]:
    now = SystemClock().now()
    lines = {
        "id": found["id"],
        "source": f"{found['source']} ({found['topic']})",
        "came": clock_time(found["at"], now),
        "reason": found["reason"],
        "attributes": ", ".join(f"{k}={v}" for k, v in found["attributes"].items()),
        "sent again": clock_time(found["replayed_at"], now)
        if found.get("replayed_at")
        else "never",
        "body": f"{found['size']} bytes, {found['encoding']}:",
    }
    yield from (f"{name + ':':<13}{value}" for name, value in lines.items() if value)
    yield from (f"  {clean(line)}" for line in found["body"].splitlines())
    if not found.get("replayed_at"):
        yield f"send it again with: {PROGRAM} dead-letters replay {found['id']}"


@app.command()
@command
def replay(
    client: Client,
    dead_letter: Annotated[
        list[str], typer.Argument(metavar="ID…", help="One or more of the list.")
    ],
) -> Answer:
    """Sends dead letters again, each once; one that fails again becomes a new dead letter.

    \b
    Examples:
      zen dead-letters replay 4711
      zen dead-letters replay 4711 4712 --json
    """

    def again(one: str) -> Json:
        return client.post(path("dead-letters", one, "replay"))

    return one_by_one(dead_letter, again, "id", "dead_letters")


def _dead_letters_table(found: list[Json], now: datetime) -> Fitted:
    rows = [
        [
            dead_letter["id"],
            dead_letter["source"],
            clock_time(dead_letter["at"], now),
            dead_letter["size"],
            "yes" if dead_letter.get("replayed_at") else "no",
            dead_letter["preview"][:40],
            dead_letter["reason"],
        ]
        for dead_letter in found
    ]
    headings = ("ID", "SOURCE", "CAME", "BYTES", "SENT AGAIN", "BODY", "REASON")
    return fitted(headings, rows, right="BYTES", drop=("SENT AGAIN", "BODY"), below="REASON")
