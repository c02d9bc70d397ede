"""zen chaos: real processes are killed and frozen while jobs flow; then everything is checked."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.chaos.scenarios import CLUSTER, ChaosPlan, Scenario, plan_for
from cli.options import AsJson, command
from cli.output.printing import Answer, Printable, fitted, say
from cli.paths import Home

if TYPE_CHECKING:
    from cli.chaos.verdict import ChaosVerdict

FAULTS_SHOWN = 20


@command
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
    plan = plan_for(scenario, minutes, jobs, replicas, seed)
    verdict = unleash(plan, say if not as_json else lambda _: None, keep=keep)
    text = _text(verdict, f"zen chaos --scenario {scenario} --seed {seed}")
    Answer(verdict.as_json(), text, code=0 if verdict.ok else 1).print(as_json)


def _text(verdict: ChaosVerdict, again: str) -> Iterator[Printable]:
    yield fitted(("WHAT", "MEASURED", "MUST HOLD"), verdict.rows())
    yield from (f"NOT AS IT MUST BE: {fault}" for fault in verdict.faults[:FAULTS_SHOWN])
    if verdict.faults:
        yield from (f"{len(verdict.faults)} in all; again with:", f"  {again}")


def unleash(plan: ChaosPlan, tell: Callable[[str], None], *, keep: bool = False) -> ChaosVerdict:
    """The whole run on a stack of its own. From the main thread: SIGTERM ends it in order."""
    from cli.local.background import own_stack
    from cli.local.stack import Options

    tell(f"starting a stack of its own with {plan.replicas} schedulers …")
    with tempfile.TemporaryDirectory(prefix="zen-chaos-config-") as scratch:
        config = _small_config(Path(scratch) / "chaos.yaml")
        options = Options(replicas=plan.replicas, port=0, config=config, changes=plan.changes())
        with own_stack(options, "chaos", tell, keep=keep) as (place, _):
            try:
                return asyncio.run(_judged(place, plan, tell))
            except asyncio.CancelledError:
                raise typer.Exit(128 + signal.SIGTERM) from None


async def _judged(place: Home, plan: ChaosPlan, tell: Callable[[str], None]) -> ChaosVerdict:
    from cli.chaos.run import ChaosRun
    from cli.chaos.verdict import judge
    from db.history_check import check_history, reigns

    task = asyncio.current_task()
    assert task is not None
    # What we froze must be thawed before we go, or nobody could stop it.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    ticks = place.path / "store" / "checkpoints"
    havoc = ChaosRun(place, plan, ticks, tell)
    try:
        story = await havoc.run()
        store = await havoc.store()
        return judge(plan, story, await check_history(store), await reigns(store), ticks)
    finally:
        await havoc.close()


def _small_config(target: Path) -> Path:
    """One cluster is enough, and leaves the processor to what is tested."""
    import yaml

    from config.load import DEFAULT_PATH

    words = yaml.safe_load(DEFAULT_PATH.read_text(encoding="utf-8"))
    words["clusters"] = {CLUSTER: words["clusters"][CLUSTER]}
    target.write_text(yaml.safe_dump(words), encoding="utf-8")
    return target
