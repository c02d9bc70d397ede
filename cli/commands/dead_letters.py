"""zen dead-letters …: messages that could not be used: see them, send them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Api, AsJson
from cli.output.durations import clock_time
from cli.output.printing import clean, console, emit, fitted, note, say
from cli.paths import PROGRAM
from core.clock import SystemClock

if TYPE_CHECKING:
    from datetime import datetime

    from cli.client import Json
    from cli.output.tables import Fitted

app = typer.Typer(
    help="Messages that could not be used, with the reason: list (also alone), show, send again.",
    invoke_without_command=True,
    rich_markup_mode=None,
    add_completion=False,
)


@app.callback()
def _dead_letters(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_dead_letters()


@app.command("list")
def list_dead_letters(
    source: Annotated[
        str | None,
        typer.Option(
            "--source", metavar="S", help="submit, heartbeats, or a topic that we send to."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Newest first.")] = 50,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """The dead letters, newest first, each with every fault that was found in it.

    \b
    Examples:
      zen dead-letters list
      zen dead-letters list --source submit --json
    """
    from cli.client import Client, api_address

    with Client(api_address(api)) as client:
        page = client.get("/dead-letters", {"source": source, "page_size": limit})
    if as_json:
        emit(page)
    elif not page["dead_letters"]:
        say("no dead letters: every message could be used")
    else:
        console().print(_dead_letters_table(page["dead_letters"], SystemClock().now()))
        if page["total"] > len(page["dead_letters"]):
            note(f"{len(page['dead_letters'])} of {page['total']} shown; more with --limit")


@app.command()
def show(
    dead_letter: Annotated[str, typer.Argument(metavar="ID", help="As the list shows it.")],
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """One dead letter whole: what came, from where, and why it could not be used.

    \b
    Examples:
      zen dead-letters show 4711
      zen dead-letters show 4711 --json
    """
    from cli.client import Client, api_address, path

    with Client(api_address(api)) as client:
        found = client.get(path("dead-letters", dead_letter))
    if as_json:
        emit(found)
        return
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
    for name, value in lines.items():
        if value:
            say(f"{name + ':':<13}{value}")
    for line in found["body"].splitlines():
        say(f"  {clean(line)}")
    if not found.get("replayed_at"):
        say(f"send it again with: {PROGRAM} dead-letters replay {found['id']}")


@app.command()
def replay(
    dead_letter: Annotated[
        list[str], typer.Argument(metavar="ID…", help="One or more of the list.")
    ],
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Sends dead letters again, each once; one that fails again becomes a new dead letter.

    \b
    Examples:
      zen dead-letters replay 4711
      zen dead-letters replay 4711 4712 --json
    """
    from cli.client import Client, Refused, api_address, path

    answers: list[Json] = []
    failed = False
    with Client(api_address(api)) as client:
        for dead_letter_id in dead_letter:
            try:
                answer = client.post(path("dead-letters", dead_letter_id, "replay"))
            except Refused as error:
                failed = True
                note(str(error))
                answers.append({"id": dead_letter_id, "error": str(error), "code": error.code})
                continue
            answers.append(answer)
            if not as_json:
                say(f"{dead_letter_id}: {answer['message']}")
    if as_json:
        emit(answers[0] if len(dead_letter) == 1 else {"dead_letters": answers})
    if failed:
        raise typer.Exit(1)


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
