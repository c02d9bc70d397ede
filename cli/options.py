"""What a command is made of: the options that many share, the client, the answer."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from cli.client import Client, api_address
from cli.output.printing import Answer

T = TypeVar("T")
IN_TENANT = "in_tenant"
Given = Mapping[str, object]
"""What was given on the command line, by the name of the field of a job."""

Api = Annotated[
    str | None,
    typer.Option("--api", envvar="ZEN_API", metavar="URL", help="Address of the API."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine readable, for scripts.")]
User = Annotated[
    str | None,
    typer.Option("--user", metavar="ID", help="Whose job, if several users have that id."),
]
InTenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="ID", help="Whose job, if several tenants have that id."),
]
JobOrArray = Annotated[
    str, typer.Argument(metavar="JOB", help="A job id, or that of an array or a group.")
]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job id.")]
Cluster = Annotated[str | None, typer.Option("--cluster", metavar="C", help="Only this cluster.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=500, help="Newest first.")]
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


def command(
    function: Callable[..., Answer | None], made: Sequence[inspect.Parameter] = ()
) -> Callable[..., None]:
    """The function as typer calls it. The fields of a parameter that is a dataclass are options;
    `client` is the API's, at the address of --api (where a user can be named, for one tenant if
    --tenant names it); `given` has the options of `made`; an Answer is printed, by --json for
    scripts."""
    hints = get_type_hints(function, include_extras=True)
    returned = hints.pop("return")
    shapes: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    options = [*made]
    for one in inspect.signature(function).parameters.values():
        if one.name in shapes:
            options += _declared(shapes[one.name])
        elif one.name not in ("client", "given"):
            options.append(option(one.name, hints[one.name], one.default))
    if any(one.name == "user" and one.annotation == User for one in options):
        options.append(option(IN_TENANT, InTenant, None))
    if "client" in hints:
        options.append(option("api", Api, None))
    if Answer in (returned, *get_args(returned)):
        options.append(option("as_json", AsJson, False))
    options.sort(key=lambda one: one.name == "as_json")

    def run(**words: Any) -> None:
        words = {one.name: one.default for one in options} | words
        _refuse_unsaid(options, words)
        api, as_json = words.get("api"), words.get("as_json", False)
        taken: dict[str, Any] = {
            name: shape(**{field.name: words[field.name] for field in fields(shape)})
            for name, shape in shapes.items()
        }
        taken |= {name: words[name] for name in hints if name in words}
        if made:
            taken["given"] = {one.name: words[one.name] for one in made}
        with Client(api_address(api)) if "client" in hints else nullcontext() as client:
            if client and words.get(IN_TENANT):
                client.speak_for(words[IN_TENANT])
            answer = function(**taken, **({"client": client} if client else {}))
        if answer is not None:
            answer.print(as_json)

    return signed(run, options, function)


def signed(
    run: Callable[..., T], options: Sequence[inspect.Parameter], function: Callable[..., Any]
) -> Callable[..., T]:
    """`run` with these parameters, under the name and the help text of `function`."""
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    returns = run.__annotations__["return"]
    run.__annotations__ = {one.name: one.annotation for one in options} | {"return": returns}
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    return run


def group(words: str, alone: Callable[..., None] | None = None, name: str = "list") -> typer.Typer:
    """A command with commands of its own; `alone` is what it does without one of them, and under
    that name."""
    app = typer.Typer(
        help=words,
        no_args_is_help=alone is None,
        invoke_without_command=alone is not None,
        rich_markup_mode=None,
        add_completion=False,
    )

    def callback(context: typer.Context, as_json: AsJson = False) -> None:
        verb = context.invoked_subcommand
        if as_json and verb is not None:
            raise typer.BadParameter(f"--json: put it behind {verb}")
        if alone is not None and verb is None:
            context.invoke(alone, **({"as_json": True} if as_json else {}))

    app.callback()(callback if alone is not None else lambda: None)
    if alone is not None:
        app.command(name)(alone)
    return app


def option(name: str, annotation: Any, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _declared(shape: type) -> list[inspect.Parameter]:
    """The fields of a dataclass as parameters that typer reads."""
    hints = get_type_hints(shape, include_extras=True)
    nothing = inspect.Parameter.empty
    return [
        option(one.name, hints[one.name], nothing if one.default is MISSING else one.default)
        for one in fields(shape)
    ]


def _refuse_unsaid(options: Sequence[inspect.Parameter], words: Mapping[str, Any]) -> None:
    """An option with an empty value, as an unset variable of a script leaves it, is not taken for
    one that was left out; and no number is infinite."""
    for one in options:
        value = words[one.name]
        if one.default == "" or not isinstance(one.annotation.__metadata__[-1], OptionInfo):
            continue
        if value == "" or (isinstance(value, list) and "" in value):
            raise typer.BadParameter(
                f"{_flag(one)}: got '', expected a value; leave it out for none"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise typer.BadParameter(f"{_flag(one)}: got {value}, expected a finite number")


def _flag(one: inspect.Parameter) -> str:
    """Its first spelling, which typer keeps where a default would stand."""
    said = one.annotation.__metadata__[-1].default
    return said if isinstance(said, str) else "--" + one.name.replace("_", "-")
