"""Options that many commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

T = TypeVar("T")
Parameters = Sequence[inspect.Parameter]

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


def takes(own: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """A command whose arguments and options are the fields of the dataclass `own`."""

    def wrap(command: Callable[[T], None]) -> Callable[..., None]:
        def run(**words: Any) -> None:
            command(own(**words))

        return as_command(run, declared(own), command)

    return wrap


def declared(own: type) -> list[inspect.Parameter]:
    """The fields of a dataclass as parameters that typer reads."""
    hints = get_type_hints(own, include_extras=True)
    return [
        parameter(
            field.name,
            hints[field.name],
            inspect.Parameter.empty if field.default is MISSING else field.default,
        )
        for field in fields(own)
    ]


def parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def as_command(
    run: Callable[..., None], parameters: Parameters, command: Callable[..., None]
) -> Callable[..., None]:
    """`run` with these parameters, under the name and the help text of `command`."""
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run
