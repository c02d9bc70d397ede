"""What replays of the queue must show, and whether the rivals are what they claim to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.replay.queue_eta import Truth
from bench.replay.queue_figures import QueueFigures
from bench.study import StudyCheck

Runs = Mapping[str, QueueFigures]
# A study of the same traces: mean completion in thousand seconds, by pool and jobs.
STUDY: Mapping[tuple[int, int], Mapping[str, float]] = {
    (11185, 384): {
        "fifo": 124.2,
        "fill": 61.1,
        "easy": 104.6,
        "sjf-predicted": 44.2,
        "las": 35.0,
        "oracle": 26.6,
    },
    (11185, 320): {
        "fifo": 325.8,
        "fill": 108.8,
        "sjf-predicted": 65.1,
        "las": 54.3,
        "oracle": 30.4,
    },
    (51750, 480): {
        "fifo": 212.2,
        "fill": 58.1,
        "easy": 173.3,
        "sjf-predicted": 25.1,
        "las": 17.3,
        "oracle": 13.0,
    },
}


@dataclass(frozen=True, slots=True)
class QueueVerdict:
    """One target in one suite. `least`: the value must not be lower than this either."""

    suite: str
    target: str
    value: float
    must: float
    stretch: float
    least: float = 0.0

    @property
    def must_words(self) -> str:
        return f"{self.least:g}–{self.must:g}" if self.least else f"≤ {self.must:g}"

    @property
    def stretch_words(self) -> str:
        return "" if self.least or self.stretch == self.must else f"≤ {self.stretch:g}"

    @property
    def words(self) -> str:
        if not self.least <= self.value <= self.must:
            return "MISSED"
        return "must" if self.value > self.stretch or self.stretch == self.must else "stretch"


@dataclass(frozen=True, slots=True)
class _Ratio:
    words: str
    mine: str
    other: str
    of: Callable[[QueueFigures], float]
    must: float
    stretch: float
    loads: tuple[str, ...] = ()
    """Only in suites whose name ends so; none: all."""


def _mean(figures: QueueFigures) -> float:
    return figures.completion_mean


def _big(figures: QueueFigures) -> float:
    return figures.wait_big


_RATIOS = (
    _Ratio("completion ÷ oracle's, load .75", "ours", "oracle", _mean, 1.35, 1.30, ("load 0.75",)),
    _Ratio("completion ÷ oracle's, load .9", "ours", "oracle", _mean, 1.80, 1.70, ("load 0.9",)),
    _Ratio("wait of ≥ 32 GPUs ÷ strict FIFO's", "ours", "fifo", _big, 1.5, 1.2),
    _Ratio("no preemption: completion ÷ strict FIFO's", "ours-still", "fifo", _mean, 0.4, 0.4),
    _Ratio("half elastic: completion ÷ rigid", "ours-half", "ours", _mean, 0.92, 0.88),
    _Ratio("all elastic: completion ÷ rigid", "ours-all", "ours", _mean, 0.85, 0.80),
)


_OURS: Mapping[str, str] = {
    "ours": "",
    "ours-still": "no preemption: ",
    "ours-half": "half elastic: ",
    "ours-all": "all elastic: ",
}


def judge(suites: Mapping[str, Runs], truths: Mapping[str, Truth]) -> list[QueueVerdict]:
    """Every target in every suite that has what it compares."""
    found: list[QueueVerdict] = []
    for ratio in _RATIOS:
        for suite, runs in suites.items():
            part = not ratio.loads or any(load in suite.split(", ") for load in ratio.loads)
            if not part or ratio.mine not in runs or ratio.other not in runs:
                continue
            other = ratio.of(runs[ratio.other])
            if other > 0:
                value = ratio.of(runs[ratio.mine]) / other
                found.append(QueueVerdict(suite, ratio.words, value, ratio.must, ratio.stretch))
    for suite, runs in suites.items():
        for policy, which in _OURS.items():
            if policy in runs:
                words = f"{which}first start beyond the bound told, jobs"
                found.append(QueueVerdict(suite, words, runs[policy].late, 0, 0))
    for suite, truth in truths.items():
        found.append(
            QueueVerdict(suite, "ETA: p90 holds for", truth.p90_holds, 0.95, 0.95, least=0.85)
        )
        words = "ETA: pinball loss ÷ one quantile for all"
        found.append(QueueVerdict(suite, words, truth.ratio, 0.8, 0.8))
    return found


def validity(suites: Mapping[str, Runs]) -> list[StudyCheck]:
    """Only for the jobs and pools of the study, with free preemptions as it had them."""
    found: list[StudyCheck] = []
    for suite, runs in suites.items():
        if suite.endswith("cost work"):
            continue
        jobs = next(iter(runs.values())).jobs
        gpus = int(suite.split(", ")[1].split()[0])
        for policy, study in STUDY.get((jobs, gpus), {}).items():
            if policy in runs:
                found.append(StudyCheck(suite, policy, runs[policy].completion_mean / 1e3, study))
    return found
