"""`zen simulate`: the whole service in virtual time, under faults that follow from a seed."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import AsJson, command
from cli.output.printing import emit, fitted, note, put, say

if TYPE_CHECKING:
    from sim.virtual.report import SimulationSummary
    from sim.virtual.run import SeedResult, SimulationPlan


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """What `zen simulate` is wanted."""

    seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 1
    seeds: Annotated[int, typer.Option(help="How many seeds, one after the other.", min=1)] = 1
    jobs: Annotated[int, typer.Option(help="Jobs in each run.", min=1, max=100_000)] = 200
    replicas: Annotated[int, typer.Option(help="Replicas of the service.", min=1, max=9)] = 3
    faults: Annotated[bool, typer.Option("--faults/--no-faults", help="Let things fail.")] = True
    forged: Annotated[
        int,
        typer.Option(help="Messages that a lying VM forges in each run.", min=0, max=10**7),
    ] = 400
    workers: Annotated[
        int, typer.Option(help="Runs side by side; 0: one per core.", min=0, max=64)
    ] = 0
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print every event of the runs.")
    ] = False
    crash_points: Annotated[
        bool,
        typer.Option(
            "--crash-points",
            help="Instead: a small run without faults, once for each write, publish and cloud "
            "call, and the replica dies right there.",
        ),
    ] = False
    every: Annotated[
        int, typer.Option(help="With --crash-points: only every so many-th.", min=1)
    ] = 1
    as_json: AsJson = False


@command
def simulate(wanted: SimulateOptions) -> None:
    """Run the scheduler, the agents and a pretend cloud in virtual time, with everything failing.

    The same seed gives the same run, event for event. A broken guarantee ends the run, is printed
    with what led to it, and makes the exit code 1. From 40 seeds on, a fault that never fired or
    a step that was never taken fails too.

    How far a long run is (virtual time, jobs that ended, seconds of real time) is told on stderr:
    in one line on a terminal, else every half minute; with --json not at all.

    \b
    Examples:
      zen simulate
      zen simulate --seed 7 --verbose
      zen simulate --seeds 200
      zen simulate --jobs 10000
      zen simulate --seeds 50 --jobs 60 --forged 20000
      zen simulate --crash-points
    """
    if wanted.crash_points:
        _crash_points(wanted.every, wanted.workers or os.cpu_count() or 1, as_json=wanted.as_json)
        return
    from sim.virtual.report import SimulationSummary, failure_text, simulate_all
    from sim.virtual.run import SimulationPlan

    plans = [
        SimulationPlan(
            seed=number,
            jobs=wanted.jobs,
            replicas=wanted.replicas,
            faults=wanted.faults,
            verbose=wanted.verbose,
            forged=wanted.forged,
        )
        for number in range(wanted.seed, wanted.seed + wanted.seeds)
    ]
    done: list[SeedResult] = []
    side_by_side = wanted.workers or os.cpu_count() or 1
    for outcome in simulate_all(plans, side_by_side, tell=not wanted.as_json):
        done.append(outcome)
        if not wanted.as_json:
            _tell(outcome, verbose=wanted.verbose)
    summary = SimulationSummary(tuple(done))
    for failed in summary.failed:
        sys.stderr.write(failure_text(failed) + "\n")
    if wanted.as_json:
        emit(_as_json(summary))
    else:
        _print(summary)
    for what in summary.missing:
        note(f"never happened in {len(done)} runs: {what}")
    if not summary.good:
        raise typer.Exit(1)


def _crash_points(every: int, workers: int, *, as_json: bool) -> None:
    from sim.virtual.crash_points import survey

    found = survey(every=every, workers=workers)
    headings = ("BOUNDARY", "DEATH", "PASSED", "CRASHED", "RECOVERED")
    faults = found.faults()
    if as_json:
        names = [heading.lower() for heading in headings]
        rows = [dict(zip(names, row, strict=True)) for row in found.rows()]
        emit({"faults": faults, "boundaries": rows})
    else:
        put(fitted(headings, found.rows(), right="PASSED CRASHED RECOVERED"))
        longest_s = max(run.virtual_s for run in found.crashes) - found.calm.virtual_s
        later = f"at rest at most {longest_s:.0f} virtual seconds later than without"
        say(f"{len(found.crashes)} crashes; {later}")
    for words in faults:
        sys.stderr.write(words + "\n")
    if faults:
        raise typer.Exit(1)


def _tell(outcome: SeedResult, *, verbose: bool) -> None:
    if verbose:
        for line in outcome.lines:
            say(line)
    verdict = "broken" if outcome.violations else "held"
    say(
        f"seed {outcome.plan.seed}: {verdict}, {outcome.events} events, "
        f"{outcome.virtual_s / 3600:.2f} virtual hours in {outcome.wall_s:.1f} s, "
        f"log {outcome.digest}"
    )


def _print(summary: SimulationSummary) -> None:
    from sim.virtual.report import excluded_steps

    totals = _totals(summary)
    put(fitted(list(totals), [list(totals.values())], right=list(totals)))
    say("")
    faults = sorted(summary.faults.items())
    put(fitted(("FAULT", "FIRED"), faults, right="FIRED"))
    say("")
    steps = [(*step.split(), count) for step, count in sorted(summary.transitions.items())]
    put(fitted(("STATE", "EVENT", "TAKEN"), steps, right="TAKEN"))
    left_out = ", ".join(f"{status} {event}" for status, event in excluded_steps())
    say("")
    say(f"Not counted, being rare or no part of the simulated work: {left_out}")


def _totals(summary: SimulationSummary) -> dict[str, object]:
    done = summary.outcomes
    return {
        "SEEDS": len(done),
        "BROKEN": len(summary.failed),
        "JOBS": sum(sum(outcome.statuses.values()) for outcome in done),
        "EVENTS": sum(outcome.events for outcome in done),
        "VIRTUAL_H": f"{sum(outcome.virtual_s for outcome in done) / 3600:.1f}",
        "WALL_S": f"{sum(outcome.wall_s for outcome in done):.1f}",
        "KILLS": summary.kills,
        "MESSAGES": summary.messages,
        **{name.upper(): f"{share:.1%}" for name, share in summary.bus_shares.items()},
    }


def _as_json(summary: SimulationSummary) -> dict[str, object]:
    from sim.virtual.report import excluded_steps, failure_text

    return {
        "good": summary.good,
        "runs": [_run_json(outcome) for outcome in summary.outcomes],
        "failures": [failure_text(outcome) for outcome in summary.failed],
        "faults": dict(sorted(summary.faults.items())),
        "kills": summary.kills,
        "messages": summary.messages,
        "bus_shares": summary.bus_shares,
        "transitions": dict(sorted(summary.transitions.items())),
        "excluded": [f"{status} {event}" for status, event in excluded_steps()],
        "missing": summary.missing,
    }


def _run_json(outcome: SeedResult) -> dict[str, object]:
    plan: SimulationPlan = outcome.plan
    return {
        "seed": plan.seed,
        "jobs": plan.jobs,
        "held": not outcome.violations,
        "violations": [str(violation) for violation in outcome.violations],
        "digest": outcome.digest,
        "events": outcome.events,
        "virtual_s": round(outcome.virtual_s, 3),
        "wall_s": round(outcome.wall_s, 2),
        "statuses": dict(sorted(outcome.statuses.items())),
    }
