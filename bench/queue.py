"""Recorded jobs on a fixed pool of GPUs: who runs next, under this queue and its rivals.

    python -m bench.queue --jobs msr=msr.csv.gz,groups=cluster02+cluster03+cluster06 [--full]
    python -m bench.queue --jobs philly=philly.csv.gz --loads 0.98 --policies fifo fill las ours

Virtual time; the same files print the same figures. Each load twice: preemptions are free, and cost
work. --full adds elastic jobs. Without --jobs made-up jobs are replayed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.queue_plots import write_plots
from bench.queue_verdict import QueueVerdict, judge, validity
from bench.replay.pool import Costs, PoolPolicy, replay
from bench.replay.queue_apart import apart, finish_time_fairness
from bench.replay.queue_eta import Asking, Truth, truth_of
from bench.replay.queue_figures import QueueFigures, figures_of
from bench.replay.queue_product import ProductQueue
from bench.replay.queue_rivals import (
    Easy,
    Fifo,
    Fill,
    Las,
    Oracle,
    ShortestPredicted,
    shortest_known,
)
from bench.study import StudyCheck
from core.errors import BadInput, Fault, ZenError
from sim.replay.synthetic import Recipe, make_jobs
from sim.replay.workload import Workload, load_jobs

POLICIES: Mapping[str, Callable[[], PoolPolicy]] = {
    "fifo": Fifo,
    "fill": Fill,
    "easy": Easy,
    "sjf-predicted": ShortestPredicted,
    "sjf-known": shortest_known,
    "ours-still": lambda: ProductQueue(preempts=False),
    "las": Las,
    "ours": ProductQueue,
    "oracle": Oracle,
}
WORDS: Mapping[str, str] = {
    "fifo": "first come, strict",
    "fill": "first come + fill",
    "easy": "first come + EASY, known",
    "sjf-predicted": "shortest first, predicted",
    "sjf-known": "shortest first, known",
    "ours-still": "this queue, no preemption",
    "las": "least service, 5 queues",
    "ours": "this queue",
    "oracle": "shortest left, known",
    "ours-half": "this queue, half elastic",
    "ours-all": "this queue, all elastic",
    "eta": "ETAs of this queue, no preemption",
}
ELASTIC: Mapping[str, int] = {"ours-half": 2, "ours-all": 1}
COSTED = ("fifo", "las", "ours", "oracle")
"""Policies that preempt, and what they are held against."""
COSTLY = Costs(checkpoint_s=900.0, restart_s=60.0)
ETAS_MOST = 1000
"""Jobs that are told when they start: each costs several plays of the whole queue."""


@dataclass(frozen=True, slots=True)
class _Case:
    """One replay."""

    trace: str
    load: float
    gpus: int
    policy: str
    costly: bool = False

    @property
    def suite(self) -> str:
        costly = ", preemptions cost work" if self.costly else ""
        return f"{self.trace}, {self.gpus} GPUs, load {self.load:g}{costly}"


Outcome = QueueFigures | Truth


def run_case(case: _Case, work: Workload) -> Outcome:
    """One replay, in whichever process."""
    jobs, costs = work.jobs, COSTLY if case.costly else Costs()
    if case.policy == "eta":
        asking = Asking(preempts=False, every=max(1, len(jobs) // ETAS_MOST))
        asking.longest_s = max(asking.longest_s, *(job.duration_s for job in jobs))
        replay(jobs, case.gpus, asking)
        return truth_of(asking.outcomes)
    policy = POLICIES.get(case.policy, ProductQueue)()
    if isinstance(policy, ProductQueue):
        policy.longest_s = max(policy.longest_s, *(job.duration_s for job in jobs))
    step = ELASTIC.get(case.policy)
    bends = range(0, len(jobs), step) if step else ()
    ended = replay(jobs, case.gpus, policy, costs, bends)
    bounds = policy.bounds if isinstance(policy, ProductQueue) else None
    fairness = finish_time_fairness(ended, apart(jobs, case.gpus))
    return replace(figures_of(ended, case.gpus, bounds), fairness=fairness)


def pool_for(work: Workload, load: float) -> int:
    """GPUs, in eights, that these jobs would keep busy to that part; the largest job fits."""
    span = work.jobs[-1].submit_s - work.jobs[0].submit_s
    wanted = sum(job.duration_s * job.gpus for job in work.jobs) / max(1.0, span)
    largest = max(job.gpus for job in work.jobs)
    return max(8 * round(wanted / load / 8), largest, 8)


def traces_of(args: argparse.Namespace) -> dict[str, Workload]:
    if not args.jobs:
        return {"synthetic": make_jobs(Recipe(seed=args.seed, days=14.0, jobs_per_day=300.0))}
    return dict(_trace(words) for words in args.jobs)


def _trace(words: str) -> tuple[str, Workload]:
    first, *options = words.split(",")
    name, found, path = first.partition("=")
    if not found or not path:
        raise BadInput([Fault("--jobs", repr(words), "NAME=FILE[,groups=A+B][,first=N]")])
    work = load_jobs(Path(path))
    for option in options:
        key, _, value = option.partition("=")
        if key == "groups" and value:
            parts = [work.of_group(group) for group in value.split("+")]
            jobs = sorted((job for part in parts for job in part.jobs), key=lambda j: j.submit_s)
            work = replace(work, jobs=tuple(jobs))
        elif key == "first" and value.isdecimal() and int(value) > 1:
            work = replace(work, jobs=work.jobs[: int(value)])
        else:
            raise BadInput([Fault("--jobs", repr(option), "groups=A+B or first=N")])
    return name, work


def cases_of(args: argparse.Namespace, traces: Mapping[str, Workload]) -> list[_Case]:
    cases: list[_Case] = []
    for name, work in traces.items():
        for load in args.loads:
            gpus = pool_for(work, load)
            wanted = [*args.policies, *(("eta",) if args.eta else ())]
            wanted += [*ELASTIC] if args.full and "ours" in args.policies else []
            cases += [_Case(name, load, gpus, policy) for policy in wanted]
            of = (policy for policy in COSTED if policy in args.policies)
            cases += [_Case(name, load, gpus, policy, costly=True) for policy in of]
    return cases


def run_cases(
    cases: Sequence[_Case], traces: Mapping[str, Workload], workers: int
) -> list[Outcome]:
    if workers <= 1 or len(cases) == 1:
        return [run_case(case, traces[case.trace]) for case in cases]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(run_case, cases, [traces[case.trace] for case in cases]))


# --- printing ----------------------------------------------------------------------------

_COLUMNS: tuple[tuple[str, Callable[[QueueFigures], str]], ...] = (
    ("mean ks", lambda f: f"{f.completion_mean / 1e3:.1f}"),
    ("p50", lambda f: f"{f.completion_p50 / 1e3:.1f}"),
    ("p95", lambda f: f"{f.completion_p95 / 1e3:.0f}"),
    ("wait ks", lambda f: f"{f.wait_mean / 1e3:.1f}"),
    ("p95", lambda f: f"{f.wait_p95 / 1e3:.0f}"),
    ("max", lambda f: f"{f.wait_max / 1e3:.0f}"),
    ("≥32 GPUs", lambda f: f"{f.wait_big / 1e3:.1f}"),
    ("slowdown", lambda f: f"{f.slowdown:.1f}"),
    ("unfair", lambda f: f"{f.unfairness:.2f}"),
    ("÷ apart", lambda f: f"{f.fairness:.2f}"),
    ("used", lambda f: f"{100 * f.utilisation:.1f} %"),
    ("preemptions", lambda f: f"{f.preemptions:,}"),
    ("late", lambda f: f"{f.late}"),
    ("lost GPU-h", lambda f: f"{f.lost_gpu_h:,.0f}"),
)
Suites = dict[str, dict[str, QueueFigures]]


def suite_table(name: str, runs: Mapping[str, QueueFigures]) -> Table:
    table = Table(title=name, title_justify="left")
    table.add_column("policy")
    for heading, _ in _COLUMNS:
        table.add_column(heading, justify="right")
    for policy, figures in runs.items():
        table.add_row(WORDS[policy], *(cell(figures) for _, cell in _COLUMNS))
    return table


def verdict_table(verdicts: Sequence[QueueVerdict]) -> Table:
    table = Table(title="Targets", title_justify="left")
    for heading in ("target", "suite", "value", "must", "stretch", "reached"):
        table.add_column(heading, justify="left" if heading in ("target", "suite") else "right")
    for v in verdicts:
        table.add_row(v.target, v.suite, f"{v.value:.3f}", v.must_words, v.stretch_words, v.words)
    return table


def check_table(checks: Sequence[StudyCheck]) -> Table:
    table = Table(title="Are the rivals what a study of these traces found?", title_justify="left")
    for heading in ("suite", "mean completion, ks", "here", "study", "off", "within 15 %"):
        table.add_column(heading, justify="right")
    for c in checks:
        off = f"{100 * c.off:+.1f} %"
        cells = (f"{c.here:.1f}", f"{c.study:.1f}", off, "yes" if c.valid else "NO")
        table.add_row(c.suite, WORDS[c.what], *cells)
    return table


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.queue",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jobs", action="append", metavar="NAME=FILE[,groups=A+B][,first=N]")
    parser.add_argument("--loads", type=float, nargs="+", default=[0.75, 0.9], metavar="SHARE")
    parser.add_argument("--policies", nargs="+", choices=[*POLICIES], default=[*POLICIES])
    parser.add_argument("--full", action="store_true", help="elastic jobs as well")
    parser.add_argument("--no-eta", dest="eta", action="store_false", help="leave out the ETAs")
    parser.add_argument("--seed", type=int, default=1, help="of made-up jobs")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write SVG files there")
    return parser.parse_args(words)


def _checked(args: argparse.Namespace) -> argparse.Namespace:
    for load in args.loads:
        if not (math.isfinite(load) and 0.05 <= load <= 2):
            raise BadInput([Fault("--loads", f"{load:g}", "shares between 0.05 and 2")])
    return args


def main(words: Sequence[str] | None = None) -> int:
    args = arguments(words)
    began = time.perf_counter()
    try:
        traces = traces_of(_checked(args))
        cases = cases_of(args, traces)
        outcomes = run_cases(cases, traces, args.workers)
    except ZenError as error:
        print(f"bench.queue: {error}", file=sys.stderr)
        return 1
    suites: Suites = {}
    truths: dict[str, Truth] = {}
    for case, outcome in zip(cases, outcomes, strict=True):
        if isinstance(outcome, Truth):
            truths[case.suite] = outcome
        else:
            suites.setdefault(case.suite, {})[case.policy] = outcome
    verdicts, checks = judge(suites, truths), validity(suites)
    if args.json:
        print(json.dumps(as_json(suites, truths, verdicts, checks), indent=2))
    else:
        print_report(traces, suites, verdicts, checks)
    if args.plots:
        for path in write_plots(suites, WORDS, args.plots):
            print(f"wrote {path}", file=sys.stderr)
    print(f"{len(cases)} replays in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return 0


def print_report(
    traces: Mapping[str, Workload],
    suites: Suites,
    verdicts: Sequence[QueueVerdict],
    checks: Sequence[StudyCheck],
) -> None:
    console = Console(width=170)
    for name, work in traces.items():
        console.print(f"{name}: {len(work.jobs):,} jobs of {work.source}", highlight=False)
    for name, runs in suites.items():
        console.print(suite_table(name, runs))
    console.print(verdict_table(verdicts))
    if checks:
        console.print(check_table(checks))


def as_json(
    suites: Suites,
    truths: Mapping[str, Truth],
    verdicts: Sequence[QueueVerdict],
    checks: Sequence[StudyCheck],
) -> dict[str, object]:
    return {
        "suites": {
            name: {policy: asdict(figures) for policy, figures in runs.items()}
            for name, runs in suites.items()
        },
        "etas": {name: asdict(truth) | {"ratio": truth.ratio} for name, truth in truths.items()},
        "targets": [asdict(v) | {"reached": v.words} for v in verdicts],
        "validity": [asdict(c) | {"off": c.off, "valid": c.valid} for c in checks],
    }


if __name__ == "__main__":
    sys.exit(main())
