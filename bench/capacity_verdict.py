"""What replays say together: suites with means and intervals, targets, and valid baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.replay.suites import Estimate, estimate
from bench.study import StudyCheck
from sim.replay.cases import OURS
from sim.replay.figures import ReplayFigures

Metric = Callable[[ReplayFigures], float]
METRICS: Mapping[str, Metric] = {
    "wait_mean_s": lambda f: f.wait_mean_s,
    "wait_p50_s": lambda f: f.wait_p50_s,
    "wait_p95_s": lambda f: f.wait_p95_s,
    "usd_per_useful_hour": lambda f: (f.usd_useful + f.usd_wasted) / f.useful_h,
    "usd_useful": lambda f: f.usd_useful,
    "usd_wasted": lambda f: f.usd_wasted,
    "never_ran_h": lambda f: f.never_ran_h,
    "idle_h": lambda f: f.idle_h,
    "lost_h": lambda f: f.lost_h,
    "useful_h": lambda f: f.useful_h,
    "billed_h": lambda f: f.billed_h,
    "requested_per_used": lambda f: f.requested_h / (f.useful_h + f.lost_h),
    "inflation": lambda f: f.inflation,
    "requests_per_job": lambda f: f.requests / f.jobs,
    "creates_per_job": lambda f: f.creates / f.jobs,
    "requests_per_start": lambda f: f.requests / f.starts,
    "calls": lambda f: f.calls,
    "polls": lambda f: f.polls,
    "jobs_per_hour": lambda f: f.jobs / f.span_h,
    "vms_most": lambda f: f.vms_most,
}


@dataclass(frozen=True, slots=True)
class Suite:
    """One workload under one boot time and one kind of preemption: every policy, every rotation."""

    jobs: str
    boot_s: float
    spot: bool
    runs: Mapping[str, tuple[ReplayFigures, ...]]
    """By policy, in the order of the rotations."""

    @property
    def name(self) -> str:
        return f"{self.jobs}, {'spot' if self.spot else 'standard'}, boot {self.boot_s:g} s"

    def mean(self, policy: str, metric: str) -> float:
        return self.estimate(policy, metric).mean

    def estimate(self, policy: str, metric: str) -> Estimate:
        return estimate([METRICS[metric](run) for run in self.runs[policy]])

    def ratio(self, policy: str, other: str, metric: str) -> float:
        """Of the means; nothing against nothing is the same."""
        mine, theirs = self.mean(policy, metric), self.mean(other, metric)
        if theirs == 0:
            return 1.0 if mine == 0 else math.inf
        return mine / theirs


@dataclass(frozen=True, slots=True)
class CapacityVerdict:
    """One target in one suite."""

    suite: str
    target: str
    value: float
    must: float
    stretch: float

    @property
    def words(self) -> str:
        if self.value <= self.stretch:
            return "stretch"
        if self.value <= self.must:
            return "must"
        return f"MISSED by {100 * (self.value / self.must - 1):.1f} %"


@dataclass(frozen=True, slots=True)
class Target:
    """What a suite must show. `spot`: the suites it is about; None: all."""

    words: str
    must: float
    stretch: float
    value: Callable[[Suite], float]
    spot: bool | None = None


def _against(other: str, metric: str) -> Callable[[Suite], float]:
    return lambda suite: suite.ratio(OURS, other, metric)


TARGETS = (
    Target("wait ÷ scale-every", 1.05, 1.0, _against("scale-every", "wait_mean_s")),
    Target("$/h ÷ scale-every", 0.93, 0.90, _against("scale-every", "usd_per_useful_hour")),
    Target("never-ran ÷ scale-every", 0.13, 0.05, _against("scale-every", "never_ran_h")),
    Target("wait ÷ sequential", 0.55, 0.55, _against("sequential", "wait_mean_s")),
    Target("$/h ÷ sequential", 1.10, 1.02, _against("sequential", "usd_per_useful_hour")),
    Target("completion inflation", 1.05, 1.04, lambda s: s.mean(OURS, "inflation"), spot=True),
    Target("$/h ÷ oracle", 1.025, 1.01, _against("oracle", "usd_per_useful_hour"), spot=True),
    Target("requests per job", 3.5, 3.5, lambda s: s.mean(OURS, "requests_per_job")),
)


def judge(suites: Sequence[Suite]) -> list[CapacityVerdict]:
    """Every target in every suite, then the mean of each over the suites (of ratios: geometric)."""
    found: list[CapacityVerdict] = []
    for target in TARGETS:
        of = [s for s in suites if target.spot is None or s.spot is target.spot]
        if not of or not all(OURS in suite.runs for suite in of):
            continue
        values = [target.value(suite) for suite in of]
        found += [
            CapacityVerdict(suite.name, target.words, value, target.must, target.stretch)
            for suite, value in zip(of, values, strict=True)
        ]
        for spot in (False, True):
            part = [v for s, v in zip(of, values, strict=True) if s.spot is spot]
            if part:
                name = f"all, {'spot' if spot else 'standard'}"
                mean = _geometric(part)
                found.append(CapacityVerdict(name, target.words, mean, target.must, target.stretch))
    return found


def _geometric(values: Sequence[float]) -> float:
    if any(value <= 0 or math.isinf(value) for value in values):
        return sum(values) / len(values)
    return math.exp(sum(math.log(value) for value in values) / len(values))


# --- are the rivals what they claim to be? -----------------------------------------------

# A study of the same traces over a fortnight, boot 90 s, mean of 12 rotations:
# mean wait in s, dollars per useful GPU-hour, completion inflation.
STUDY: Mapping[tuple[str, bool], Mapping[str, tuple[float, float, float]]] = {
    ("long", False): {
        "scale-every": (106, 2.284, 1.0),
        "sequential": (208, 1.949, 1.0),
        "oracle": (136, 1.955, 1.0),
    },
    ("short", False): {
        "scale-every": (79, 2.456, 1.0),
        "sequential": (215, 2.006, 1.0),
        "oracle": (137, 2.013, 1.0),
    },
    ("long", True): {
        "scale-every": (107, 2.385, 1.036),
        "sequential": (222, 2.215, 1.115),
        "oracle": (141, 2.224, 1.088),
    },
    ("short", True): {
        "scale-every": (86, 2.586, 1.066),
        "sequential": (230, 2.303, 1.217),
        "oracle": (144, 2.307, 1.152),
    },
}


def validity(suites: Sequence[Suite]) -> list[StudyCheck]:
    """Ratios of the rivals that the study published too; other workloads have none."""
    found: list[StudyCheck] = []
    for suite in suites:
        study = STUDY.get((suite.jobs, suite.spot))
        if study is None or suite.boot_s != 90 or not set(study) <= set(suite.runs):
            continue
        for one, other in (
            ("sequential", "scale-every"),
            ("oracle", "scale-every"),
            ("sequential", "oracle"),
        ):
            for index, metric in enumerate(("wait_mean_s", "usd_per_useful_hour", "inflation")):
                if metric == "inflation" and not suite.spot:
                    continue
                here = suite.ratio(one, other, metric)
                there = study[one][index] / study[other][index]
                found.append(StudyCheck(suite.name, f"{metric} {one} ÷ {other}", here, there))
    return found
