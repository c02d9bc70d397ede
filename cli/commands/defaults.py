"""zen defaults …: the tenant, the user and the cluster of submissions that name none."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.defaults import FIELDS, defaults_file, keep_defaults, kept_defaults, read_defaults
from cli.options import command, group
from cli.output.printing import Answer, fitted
from core.errors import BadInput, Fault
from core.job_fields import FIELDS as JOB_FIELDS

Name = Annotated[str, typer.Argument(metavar="NAME", help="tenant, user or cluster.")]


def _answer(words: str = "") -> Answer:
    found = read_defaults()
    rows = [[name, found[name].value, found[name].source] for name in FIELDS if name in found]
    json = {
        name: {"value": found[name].value, "source": found[name].source}
        for name in FIELDS
        if name in found
    }
    nothing = "no defaults; set one: zen defaults set tenant vision"
    table = fitted(("NAME", "VALUE", "FROM"), rows) if rows else nothing
    return Answer({"defaults": json}, [words, table] if words else [table])


@command
def show() -> Answer:
    """The defaults in force, and where each comes from.

    Each has a variable, which wins over `zen defaults set`: ZEN_DEFAULT_TENANT, ZEN_DEFAULT_USER,
    ZEN_DEFAULT_CLUSTER. An option or a job file wins over both. A submission that asks for a GPU
    type or a number of GPUs gets no default cluster.

    \b
    Examples:
      zen defaults show
      ZEN_DEFAULT_CLUSTER=1xl4 zen defaults show --json
    """
    return _answer()


app = group(
    "Tenant, user and cluster of submissions that name none: show (also alone), set, unset.",
    show,
    name="show",
)


@app.command("set")
@command
def set_default(
    name: Name,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Taken when none is named.")],
) -> Answer:
    """Keeps a default: in $ZEN_HOME/defaults.json if ZEN_HOME is set, else in ~/.config/zen.

    \b
    Examples:
      zen defaults set tenant default
      zen defaults set user alice
      zen defaults set cluster 1xl4
    """
    field = JOB_FIELDS[FIELDS[_known(name)]]
    if field.kind is not None and (expected := field.kind.check(value)) is not None:
        raise BadInput([Fault(name, repr(value), expected)])
    keep_defaults({**kept_defaults(), name: value})
    return _answer(f"{name} is {value} where no other is named; kept in {defaults_file()}")


@app.command("unset")
@command
def unset(name: Name) -> Answer:
    """Forgets a default; safe to repeat.

    \b
    Examples:
      zen defaults unset tenant
      zen defaults unset user
      zen defaults unset cluster
    """
    kept = kept_defaults()
    kept.pop(_known(name), None)
    keep_defaults(kept)
    return _answer(f"{name} has no default in {defaults_file()}")


def _known(name: str) -> str:
    if name not in FIELDS:
        raise typer.BadParameter(f"NAME: got {name!r}, expected one of {', '.join(FIELDS)}")
    return name
