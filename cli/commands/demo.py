"""zen demo: a short workload over several regions, with a stockout and a spot preemption in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.client import Client, sim_client
from cli.credentials import read_key
from cli.options import AsJson, command
from cli.output.printing import Answer, say


@command
def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the state directory, to look at logs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Shows it all in a minute: jobs over several regions, a stockout, a spot preemption.

    It starts a stack of its own in a temporary directory and stops it at the end; what zen up
    runs is not disturbed.

    \b
    Examples:
      zen demo
      zen demo --json
    """
    from cli.commands.demo_run import CHANGES, Play
    from cli.local.background import own_stack
    from cli.local.stack import Options

    tell = (lambda _: None) if as_json else say
    tell("starting a stack of its own (database, bus, pretend cloud, scheduler) …")
    with (
        own_stack(Options(port=0, changes=CHANGES), "demo", tell, keep=keep) as (_, running),
        Client(running.api, key=read_key(Path(running.key_file))) as api,
        sim_client(running.sim) as sim,
    ):
        summary = Play(api, sim, live=sys.stdout.isatty(), silent=as_json).run()
    Answer(summary.as_json(), summary.lines(), code=0 if summary.ok else 1).print(as_json)
