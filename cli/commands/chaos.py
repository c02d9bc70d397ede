"""zen chaos: real processes are killed and frozen while jobs flow; then everything is checked."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.chaos.scenarios import Scenario
from cli.options import AsJson
from cli.output.printing import console, emit, fitted, note, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.chaos.scenarios import ChaosPlan
    from cli.chaos.verdict import ChaosVerdict

STOP_S = 30.0
FAULTS_SHOWN = 20


def chaos(
    scenario: Annotated[
        Scenario, typer.Option("--scenario", help="What goes wrong.")
    ] = Scenario.GENERAL,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            min=0.1,
            max=600,
            help="How long jobs flow, or how long the part is away. "
            "Default: 10; no-database 5, no-bus 30, frozen-leader 3 (one freeze a minute).",
        ),
    ] = None,
    replicas: Annotated[int, typer.Option("--replicas", min=2, max=5)] = 3,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=100_000, help="Default: by scenario, 200 a minute."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Which faults, in which order.")] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the state directory, to look at logs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Kills and freezes leaders, workers, database and bus of a stack of its own, with jobs in it.

    Afterwards every accepted job must have ended, no job may have run twice at once, and no leader
    may have written after its time. Exit code 1 if anything of that is not so.

    \b
    Scenarios:
      general        everything, by dice
      leader-deaths  the leader is killed 5 s after each election until all jobs have ended
      frozen-leader  the leader stands still for 60 s and thaws beside its successor
      no-database    the database is killed and stays away
      no-bus         the bus is killed and stays away

    \b
    Examples:
      zen chaos --minutes 2
      zen chaos --scenario leader-deaths --jobs 2000
      zen chaos --scenario no-bus --minutes 30 --json
    """
    from cli.chaos.scenarios import plan_for

    plan = plan_for(scenario, minutes, jobs, replicas, seed)
    verdict = unleash(plan, say if not as_json else lambda _: None, keep=keep)
    if as_json:
        emit(verdict.as_json())
    else:
        console().print(fitted(("WHAT", "MEASURED", "MUST HOLD"), verdict.rows()))
        for fault in verdict.faults[:FAULTS_SHOWN]:
            say(f"NOT AS IT MUST BE: {fault}")
        if verdict.faults:
            say(f"{len(verdict.faults)} in all; again with:")
            say(f"  zen chaos --scenario {scenario} --seed {seed}")
    raise typer.Exit(0 if verdict.ok else 1)


def unleash(plan: ChaosPlan, tell: Callable[[str], None], *, keep: bool = False) -> ChaosVerdict:
    """The whole run in a directory of its own, which is removed at the end. From the main thread:
    SIGTERM ends it in order."""
    from cli.paths import Home

    place = Home(Path(tempfile.mkdtemp(prefix="zen-chaos-")))
    try:
        return _run(place, plan, tell)
    finally:
        if keep:
            note(f"state and logs are kept in {place.path}")
        else:
            shutil.rmtree(place.path, ignore_errors=True)


def _run(place: object, plan: ChaosPlan, tell: Callable[[str], None]) -> ChaosVerdict:
    from cli.local.background import launch, stop
    from cli.local.stack import Options
    from cli.paths import Home

    assert isinstance(place, Home)
    place.make()
    tell(f"starting a stack of its own with {plan.replicas} schedulers …")
    config = _small_config(place.path / "chaos.yaml")
    options = Options(replicas=plan.replicas, port=0, config=config, changes=plan.changes())
    theirs, ours = os.pipe()
    try:
        launch(place, options, parent_fd=theirs)
        try:
            return asyncio.run(_judged(place, plan, tell))
        except asyncio.CancelledError:
            raise typer.Exit(128 + signal.SIGTERM) from None
        finally:
            tell("stopping the stack …")
            stop(place, STOP_S, lambda _: None)
    finally:
        os.close(theirs)
        os.close(ours)


async def _judged(place: object, plan: ChaosPlan, tell: Callable[[str], None]) -> ChaosVerdict:
    from cli.chaos.run import ChaosRun
    from cli.chaos.verdict import judge
    from cli.paths import Home
    from db.audit import audit, reigns

    assert isinstance(place, Home)
    task = asyncio.current_task()
    assert task is not None
    # What we froze must be thawed before we go, or nobody could stop it.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    ticks = place.path / "ticks"
    havoc = ChaosRun(place, plan, ticks, tell)
    try:
        story = await havoc.run()
        store = await havoc.store()
        return judge(plan, story, await audit(store), await reigns(store), ticks)
    finally:
        await havoc.close()


def _small_config(target: Path) -> Path:
    """One cluster is enough, and leaves the processor to what is tested."""
    import yaml

    from cli.chaos.scenarios import CLUSTER
    from config.load import DEFAULT_PATH

    words = yaml.safe_load(DEFAULT_PATH.read_text(encoding="utf-8"))
    words["clusters"] = {CLUSTER: words["clusters"][CLUSTER]}
    target.write_text(yaml.safe_dump(words), encoding="utf-8")
    return target
