"""zen demo: a short workload over several regions, with a stockout and a spot preemption in it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import AsJson
from cli.output.printing import emit, note, say

if TYPE_CHECKING:
    from cli.commands.demo_run import DemoSummary

STOP_S = 20.0


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
    from cli.paths import Home

    place = Home(Path(tempfile.mkdtemp(prefix="zen-demo-")))
    try:
        summary = _run(place, as_json)
    finally:
        if keep:
            note(f"state and logs are kept in {place.path}")
        else:
            shutil.rmtree(place.path, ignore_errors=True)
    if as_json:
        emit(summary.as_json())
    else:
        for line in summary.lines():
            say(line)
    raise typer.Exit(0 if summary.ok else 1)


def _run(place: object, as_json: bool) -> DemoSummary:
    from cli.client import Client
    from cli.commands.demo_run import CHANGES, Play
    from cli.local.background import launch, stop
    from cli.local.stack import Options
    from cli.paths import Home

    assert isinstance(place, Home)
    place.make()
    if not as_json:
        say("starting a stack of its own (database, bus, pretend cloud, scheduler) …")
    theirs, ours = os.pipe()
    try:
        running = launch(place, Options(port=0, changes=CHANGES), parent_fd=theirs).running
        try:
            with (
                Client(running.api) as api,
                Client(running.sim, prefix="/sim/v1", what="pretend cloud") as sim,
            ):
                return Play(api, sim, live=sys.stdout.isatty(), silent=as_json).run()
        finally:
            if not as_json:
                say("stopping the stack …")
            stop(place, STOP_S, lambda _: None)
    finally:
        os.close(theirs)
        os.close(ours)
