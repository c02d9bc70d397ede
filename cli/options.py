"""Options that many commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Api = Annotated[
    str | None,
    typer.Option("--api", envvar="ZEN_API", metavar="URL", help="Address of the API."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine readable, for scripts.")]
User = Annotated[
    str | None,
    typer.Option("--user", metavar="ID", help="Whose job, if several users have that id."),
]
JobOrArray = Annotated[
    str, typer.Argument(metavar="JOB", help="A job id, or that of an array or a group.")
]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job id.")]
ConfigFile = Annotated[
    str | None,
    typer.Option("--config", envvar="ZEN_CONFIG", metavar="FILE", help="Configuration file."),
]
Detach = Annotated[
    bool, typer.Option("--detach", "-d", help="Return when ready; stop it with zen down.")
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        metavar="N",
        help="Of the API; 0 takes a free one. Default: 8080, or a free one if that is taken.",
    ),
]


def pairs(words: list[str] | None, option: str) -> dict[str, str]:
    """K=V words of a repeatable option as a mapping."""
    found: dict[str, str] = {}
    for word in words or []:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"{option}: got {word!r}, expected NAME=VALUE")
        found[key] = value
    return found
