"""Recorded supply and jobs under this planner and its rivals, in virtual time.

    python -m bench.capacity \\
        --jobs long=msr.csv.gz,group=cluster09 \\
        --jobs short=philly.csv.gz,group=6214e9,every=3,busiest \\
        --supply h100.csv.gz --prices prices.csv --dear asia-south2-b [--full] [--plots DIR]

Three rotations of the supply against the jobs, twelve with --full. Without --jobs and --supply a
synthetic trace is replayed. The same seed prints the same figures.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.capacity_tables import Dear, Report, as_json, as_markdown, print_report
from bench.capacity_verdict import Suite, judge, validity
from bench.plots import write_plots
from bench.replay.measured import load_lifetimes, load_probe
from bench.replay.suites import POLICIES, SPOT_ONLY, policy_of
from core.errors import BadInput, Fault, ZenError
from sim.replay.cases import OURS, ReplayCase, Traces, run_cases
from sim.replay.figures import ReplayFigures
from sim.replay.physics import Preemption, ReplayPhysics
from sim.replay.product import Setup
from sim.replay.supply import Supply, load_prices, load_supply
from sim.replay.synthetic import Recipe, make_jobs, make_supply
from sim.replay.workload import Workload, load_jobs

QUICK, FULL = 3, 12
JUDGED = {OURS, "scale-every", "sequential", "oracle"}


# --- what to run -------------------------------------------------------------------------


def jobs_source(text: str, days: float) -> tuple[str, Workload]:
    """NAME=FILE[,group=G][,every=N][,busiest]"""
    name, equals, rest = text.partition("=")
    path, *options = rest.split(",")
    if not name or not equals or not path:
        raise BadInput([Fault("--jobs", repr(text), "NAME=FILE[,group=G][,every=N][,busiest]")])
    work = load_jobs(Path(path))
    settings = dict(option.partition("=")[::2] for option in options)
    unknown = sorted(set(settings) - {"group", "every", "busiest"})
    nth = settings.get("every", "1")
    if unknown or not nth.isdigit() or nth == "0":
        raise BadInput(
            [Fault("--jobs", repr(text), "options group=G, every=N (N from 1), busiest")]
        )
    if "group" in settings:
        work = work.of_group(settings["group"])
    work = work.one_vm_each().every(int(nth)).window(days, busiest="busiest" in settings)
    return name, work


def traces_of(args: argparse.Namespace) -> Traces:
    """What the arguments name; made up where they name nothing."""
    if bool(args.jobs) != bool(args.supply):
        raise BadInput([Fault("--jobs, --supply", "one of them", "both or neither")])
    if not args.supply:
        recipe = Recipe(seed=args.seed, days=args.days, dear=bool(args.dear))
        short = replace(recipe, jobs_per_day=400.0, run_s=900.0, seed=args.seed + 1)
        supply = make_supply(recipe)
        dear = [supply.zones[-1].name] if args.dear else []
        jobs = {"made-up long": make_jobs(recipe), "made-up short": make_jobs(short)}
        return Traces(jobs, _supplies(supply, dear), policy_of)
    supply = load_supply(args.supply, exact=args.exact_counts)
    if args.prices:
        supply = supply.priced(load_prices(args.prices))
    return Traces(
        dict(jobs_source(text, args.days) for text in args.jobs),
        _supplies(supply, args.dear or []),
        policy_of,
    )


def _supplies(supply: Supply, dear: Sequence[str]) -> dict[str, Supply]:
    return {"usual": supply.without(dear), "dear": supply} if dear else {"usual": supply}


def cases_of(args: argparse.Namespace, traces: Traces, rotations: int) -> list[ReplayCase]:
    """Every suite × policy × rotation; of the supply with the dear zone, our planner alone."""
    physics = ReplayPhysics(checkpoint_s=args.checkpoint_s)
    if args.probe:
        probe = load_probe(args.probe)
        physics = replace(physics, granted=probe.granted, refused=probe.refused)
    taken: Preemption = "lifetimes" if args.lifetimes else "counts"
    if args.lifetimes:
        physics = replace(physics, lifetimes_s=load_lifetimes(args.lifetimes))
    found: list[ReplayCase] = []
    for jobs in traces.jobs:
        for spot in (False, True):
            for boot_s in args.boots:
                case = ReplayCase(
                    jobs=jobs,
                    supply="usual",
                    policy=OURS,
                    physics=replace(physics, boot_s=boot_s, preemption=taken if spot else "none"),
                    setup=Setup(args.vm_max, spot=spot),
                    rotations=rotations,
                    seed=args.seed,
                )
                for policy in args.policies:
                    if policy in SPOT_ONLY and not spot:
                        continue
                    found += [replace(case, policy=policy, rotation=r) for r in range(rotations)]
                if (
                    "dear" in traces.supplies
                    and OURS in args.policies
                    and not spot
                    and boot_s == args.boots[0]
                ):
                    found += [replace(case, supply="dear", rotation=r) for r in range(rotations)]
    # The longest first: no core is left idle at the end.
    found.sort(key=lambda case: not case.policy.startswith(OURS))
    return found


def report_of(
    args: argparse.Namespace,
    traces: Traces,
    cases: Sequence[ReplayCase],
    figures: Sequence[ReplayFigures],
) -> Report:
    """Runs put together by suite and policy."""
    runs: dict[tuple[str, str, float, bool], dict[str, list[tuple[int, ReplayFigures]]]] = {}
    for case, found in zip(cases, figures, strict=True):
        key = (case.supply, case.jobs, case.physics.boot_s, case.setup.spot)
        runs.setdefault(key, {}).setdefault(case.policy, []).append((case.rotation, found))
    suites = {
        key: Suite(
            key[1],
            key[2],
            key[3],
            {
                policy: tuple(f for _, f in sorted(by_policy[policy], key=lambda r: r[0]))
                for policy in args.policies
                if policy in by_policy
            },
        )
        for key, by_policy in sorted(runs.items())
    }
    usual = tuple(suite for key, suite in suites.items() if key[0] == "usual")
    dear = tuple(
        Dear(suite.name, _dear_ratio(suite, suites["usual", *key[1:]]))
        for key, suite in suites.items()
        if key[0] == "dear"
    )
    return Report(
        rotations=cases[0].rotations,
        seed=args.seed,
        vm_max=args.vm_max,
        sources=_sources(traces),
        suites=usual,
        verdicts=tuple(judge(usual)) if set(args.policies) >= JUDGED else (),
        checks=() if args.lifetimes else tuple(validity(usual)),
        dear=dear,
    )


def _dear_ratio(dear: Suite, usual: Suite) -> float:
    metric = "usd_per_useful_hour"
    return dear.mean(OURS, metric) / usual.mean(OURS, metric)


def _sources(traces: Traces) -> tuple[str, ...]:
    words = [
        f"{name}: {len(work.jobs)} jobs, {work.gpu_hours:,.0f} GPU-hours of {work.source} "
        f"({', '.join(work.notes) or 'all'})"
        for name, work in traces.jobs.items()
    ]
    supply = traces.supplies["usual"]
    days = supply.period_s / 86_400
    return (*words, f"supply: {len(supply.zones)} zones, {days:.1f} days of {supply.source}")


# --- the command -------------------------------------------------------------------------


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.capacity", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--jobs", action="append", metavar="NAME=FILE[,group=G][,every=N][,busiest]"
    )
    parser.add_argument("--supply", type=Path, metavar="FILE", help="counts per zone over time")
    parser.add_argument("--prices", type=Path, metavar="FILE", help="dollars per region")
    parser.add_argument("--probe", type=Path, metavar="FILE", help="measured answer times")
    parser.add_argument(
        "--lifetimes", type=Path, metavar="FILE", help="spot VMs live as these did, not by counts"
    )
    parser.add_argument("--dear", action="append", metavar="ZONE", help="left out, then put in")
    parser.add_argument("--exact-counts", action="store_true", help="the highest count is no limit")
    parser.add_argument("--full", action="store_true", help=f"{FULL} rotations, not {QUICK}")
    parser.add_argument("--rotations", type=int, metavar="N", help="another number of rotations")
    parser.add_argument("--days", type=float, default=7.0, help="of jobs")
    parser.add_argument("--boots", type=float, nargs="+", default=[90.0, 300.0], metavar="S")
    parser.add_argument("--checkpoint-s", type=float, default=ReplayPhysics().checkpoint_s)
    parser.add_argument("--vm-max", type=int, default=300)
    parser.add_argument(
        "--policies",
        nargs="+",
        choices=POLICIES,
        help=f"default: all; without --full not {', '.join(sorted(SPOT_ONLY))}",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="tables for the documentation")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write SVG files there")
    args = parser.parse_args(words)
    if args.policies is None:  # a quick run leaves out policies that are not judged and take long
        args.policies = [p for p in POLICIES if args.full or p not in SPOT_ONLY]
    return args


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty() or done == of or done % 20 == 0:
        end = "\n" if done == of or not sys.stderr.isatty() else ""
        sys.stderr.write(f"\r{done} of {of} replays{end}")
        sys.stderr.flush()


def main(words: Sequence[str] | None = None) -> int:
    args = arguments(words)
    began = time.perf_counter()
    rotations = args.rotations or (FULL if args.full else QUICK)
    try:
        traces = traces_of(args)
        cases = cases_of(args, traces, rotations)
        figures = run_cases(cases, traces, args.workers, _progress)
    except ZenError as error:
        print(f"bench.capacity: {error}", file=sys.stderr)
        return 1
    report = report_of(args, traces, cases, figures)
    if args.json:
        print(json.dumps(as_json(report), indent=2))
    elif args.markdown:
        print(as_markdown(report), end="")
    else:
        print_report(report)
    if args.plots:
        for path in write_plots(report.suites, args.plots):
            print(f"wrote {path}", file=sys.stderr)
    print(f"{len(cases)} replays in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
