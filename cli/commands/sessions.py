"""zen sessions …: who has signed in with a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.client import Client, path
from cli.options import Limit, command, group
from cli.output.durations import clock_time
from cli.output.printing import Answer, fitted
from core.clock import SystemClock


@command
def list_sessions(
    client: Client,
    principal: Annotated[
        str | None,
        typer.Option("--principal", metavar="NAME", help="Of this one alone."),
    ] = None,
    limit: Limit = 100,
) -> Answer:
    """Sessions of browsers, with the ones of the last days.

    \b
    Examples:
      zen sessions list
      zen sessions list --principal user:ada@example.com
    """
    query = {"page_size": limit, "principal": principal}
    page = client.get("/sessions", query)
    client.read_on(page, "/sessions", query, "sessions", limit)
    now = SystemClock().now()
    rows = [
        [
            one["session_id"],
            one["principal"],
            one["issuer"] or "key",
            clock_time(one["created_at"], now),
            clock_time(one["last_seen_at"], now),
            "ended" if one.get("ended_at") else clock_time(one["expires_at"], now),
        ]
        for one in page["sessions"]
    ]
    headings = ("SESSION", "PRINCIPAL", "BY", "SINCE", "LAST SEEN", "ENDS")
    more = ["more with --limit"] if page.get("next_page_token") else []
    return Answer(page, [fitted(headings, rows)], more)


sessions_app = group("Sessions of browsers: list (also alone), revoke.", list_sessions)


@sessions_app.command("revoke")
@command
def revoke_session(
    client: Client,
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="The id, as the list shows it.")
    ],
) -> Answer:
    """Ends a session, on every replica within 5 seconds.

    \b
    Example:
      zen sessions revoke SESSION
    """
    found = client.delete(path("sessions", session))
    return Answer(found, [f"session {found['session_id']} of {found['principal']} has ended"])
