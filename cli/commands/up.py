"""zen up and zen down: the local stack in the foreground or detached."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import AsJson, Detach, Port, command
from cli.output.next_steps import next_steps
from cli.output.printing import Answer, note
from cli.paths import PROGRAM

if TYPE_CHECKING:
    from cli.local.stack import Options
    from cli.paths import Home

DOWN_S = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a stack is brought up."""

    detach: Detach = False
    port: Port = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.")] = False
    as_json: AsJson = False
    parent_fd: Annotated[int | None, typer.Option("--parent-fd", hidden=True)] = None
    ready_fd: Annotated[int | None, typer.Option("--ready-fd", hidden=True)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions(Manner):
    """What `zen up` is given."""

    replicas: Annotated[
        int, typer.Option("--replicas", min=1, max=5, metavar="N", help="Schedulers.")
    ] = 1
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Instead of the default configuration."),
    ] = None
    changes: Annotated[str | None, typer.Option("--changes", hidden=True)] = None


@command
def up(wanted: UpOptions) -> None:
    """Starts everything on this machine: database, bus, pretend cloud, scheduler.

    State is kept in .zen in the checkout (ZEN_HOME names another directory): jobs are
    found again at the next start. Ctrl-C stops it all.

    \b
    Examples:
      zen up
      zen up --detach --replicas 2
      ZEN_HOME=/tmp/other zen up --port 0
    """
    import json

    from cli.local.stack import Options

    changes = json.loads(wanted.changes) if wanted.changes else {}
    config = wanted.config.absolute() if wanted.config else None
    bring_up(Options(wanted.replicas, wanted.port, config, changes), wanted)


def bring_up(options: Options, manner: Manner) -> None:
    """In the foreground until it is stopped, or detached."""
    from cli.local.stack import BadPort, port_is_free
    from cli.paths import alive, home

    place, port = home(), options.port
    place.make()
    running = place.read()
    ours = running is not None and alive(running.pid)
    if port and not ours and not port_is_free(port):
        raise BadPort(f"port {port} cannot be used: it is taken, or you are not allowed to")
    if manner.detach:
        _detach(place, options, manner)
        return
    from cli.local.foreground import run

    raise typer.Exit(
        run(place, options, manner.quiet, manner.as_json, manner.parent_fd, manner.ready_fd)
    )


def _detach(place: Home, options: Options, manner: Manner) -> None:
    from cli.local.background import launch

    running = launch(place, options)
    background = f"it runs in the background; stop it with: {PROGRAM} down"
    lines = () if manner.quiet else (*next_steps(running), background)
    Answer(asdict(running), lines).print(manner.as_json)


@command
def down(as_json: AsJson = False) -> None:
    """Stops what zen up started here; does nothing if nothing runs.

    \b
    Example:
      zen down
    """
    from cli.local.background import stop
    from cli.paths import home

    stopped = stop(home(), DOWN_S, note if not as_json else lambda _: None)
    words = "stopped" if stopped else "nothing runs"
    Answer({"stopped": stopped}, [words]).print(as_json)
