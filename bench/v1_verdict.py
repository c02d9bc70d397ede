"""What must have come of jobs on v1 workers: judged from their own lines and from the cloud."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from rich.table import Table

from bench.local import Json
from bench.report import figure, quantile

CLUSTERS = {"1xl4": 8, "1xt4": 4, "2xa100-40gb": 3}
"""Name → most VMs."""
SLACK_S = 0.15
"""A line is written every tenth of a second: what is nearer cannot be told apart."""


@dataclass(frozen=True, slots=True)
class ExpectedJob:
    """A job, and how it must end."""

    user: str
    job: str
    cluster: str
    ticks: int
    ends: frozenset[str]
    exit: int = 0
    leave: str = "group"
    keep_alive: bool = False
    stop: bool = False

    @property
    def key(self) -> str:
        return f"{self.user}/{self.job}"

    def body(self, ledger: Path) -> Json:
        gpus, _, gpu_type = self.cluster.partition("x")
        args = {"ticks": self.ticks, "ledger": str(ledger), "exit": self.exit, "leave": self.leave}
        return {
            "job_id": self.job,
            "user_id": self.user,
            "workflow": "ticks",
            "args": args,
            "gpu_type": gpu_type,
            "num_gpus": int(gpus),
            "keep_alive": self.keep_alive,
        }


@dataclass(frozen=True, slots=True)
class JobProcess:
    """One process of one job, by its own lines."""

    vm: str
    pid: int
    first: float
    last: float


@dataclass(slots=True)
class WorkerChaosLog:
    """What was done and seen."""

    struck: set[str] = field(default_factory=set)
    """VMs that were crashed, or whose worker was frozen."""
    acts: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    """Cluster → most VMs at one look, as the cloud counts."""
    seconds: float = 0.0
    rest_s: float = 0.0
    """From the end of the last job until no VM was left."""


@dataclass(slots=True)
class V1Verdict:
    """The figures, and everything that must not be."""

    expected_jobs: Sequence[ExpectedJob]
    statuses: Mapping[str, str]
    runs: Mapping[str, Sequence[JobProcess]]
    waits_s: Sequence[float]
    story: WorkerChaosLog
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    at_once: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    explained: int = 0
    timelines: list[str] = field(default_factory=list)
    """Of the jobs that something is wrong with."""

    @property
    def faults(self) -> list[str]:
        return [*self.lost, *self.twice, *self.at_once, *self.over, *self.left]


def read_ledger(path: Path) -> dict[str, list[JobProcess]]:
    """Job → its runs, the earliest first."""
    runs: dict[tuple[str, str, int], JobProcess] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        key, _attempt, vm, pid, moment = line.split()
        known = runs.get((key, vm, int(pid)))
        first = known.first if known else float(moment)
        runs[key, vm, int(pid)] = JobProcess(vm, int(pid), first, float(moment))
    found: dict[str, list[JobProcess]] = {}
    for (key, _, _), ran in sorted(runs.items(), key=lambda item: item[1].first):
        found.setdefault(key, []).append(ran)
    return found


def judge(verdict: V1Verdict) -> None:
    """Everything that is not as it must be."""
    for expected_job in verdict.expected_jobs:
        ended, runs = (
            verdict.statuses.get(expected_job.key, "nothing"),
            verdict.runs.get(expected_job.key, ()),
        )
        if ended not in expected_job.ends:
            expected = " or ".join(sorted(expected_job.ends))
            verdict.lost.append(f"{expected_job.key} ended {ended}, expected {expected}")
        if ended == "COMPLETED" and not runs:
            verdict.lost.append(f"{expected_job.key} is COMPLETED and never ran")
        for one, following in pairwise(runs):
            if following.first < one.last - SLACK_S:
                verdict.at_once.append(
                    f"{expected_job.key} ran on {one.vm} and {following.vm} at once"
                )
            elif one.vm in verdict.story.struck:
                verdict.explained += 1
            else:
                verdict.twice.append(
                    f"{expected_job.key} ran again after {one.vm}, which nobody killed"
                )
    for name, most in CLUSTERS.items():
        if verdict.story.most[name] > most:
            verdict.over.append(f"{name} had {verdict.story.most[name]} VMs, limit {most}")


def table_of(verdict: V1Verdict) -> Table:
    story = verdict.story
    ended = Counter(verdict.statuses.values())
    shown = Table("what", "measured", "must hold", title="v1 workers")
    shown.add_row("jobs ended", ", ".join(f"{n} {s}" for s, n in sorted(ended.items())), "all")
    acts = ", ".join(f"{n} × {act}" for act, n in sorted(story.acts.items())) or "none"
    shown.add_row("kills", acts, "")
    shown.add_row("lost or ended wrongly", str(len(verdict.lost)), "0")
    shown.add_row("run again after a kill", str(verdict.explained), "")
    shown.add_row("run twice beyond a kill", str(len(verdict.twice)), "0")
    shown.add_row("run on two VMs at once", str(len(verdict.at_once)), "0")
    most = ", ".join(f"{name} {story.most[name]}/{limit}" for name, limit in CLUSTERS.items())
    shown.add_row("most VMs at one look", most, "within vm_max")
    shown.add_row("VMs and targets left", str(len(verdict.left)), "0")
    if verdict.waits_s:
        waits = f"{figure(quantile(verdict.waits_s, 0.5))} s, {figure(max(verdict.waits_s))} s"
        shown.add_row("submitted → running, median, longest", waits, "")
    shown.add_row(
        "all over after", f"{story.seconds:.0f} s, VMs gone {story.rest_s:.1f} s later", ""
    )
    return shown
