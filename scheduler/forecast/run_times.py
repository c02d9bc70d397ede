"""How long a job will run, from what ran before: quantiles of the most alike. Pure.

Only half of all jobs are within twice the median of their like, so a single number would be a lie:
a guess is a set of quantiles, and one that rests on nothing says so and is wide.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from core.forecast import PastRun
from core.job import Job
from core.job_fields import JobSpec
from core.names import BadName, parse_cluster

REMEMBERED = 100
"""Runs kept of each kind: people change their programs, old runs mislead."""
ENOUGH = 5
"""Fewer runs than this say less than many of a broader kind."""
KINDS_MAX = 10_000
NARROW = 2
"""So many of a kind's keys hold the job's own name."""
SURE_SHARE = 0.9
"""What must be done in time is taken to run as long as nine of ten of its like did."""
EXPECTED_SHARE = 0.5
"""The quantile that orders the queue."""
TAIL = 2.0
"""One that outlives all it is compared with is expected to run for this many times as long."""
WIDE = ((0.0, 60.0), (0.5, 3600.0), (0.9, 24 * 3600.0), (1.0, 7 * 24 * 3600.0))
"""Without any history."""
NO_HISTORY = "no history: wide guess"
NOTHING_LIKE_IT = "no run of this kind has ended yet"


@dataclass(frozen=True, slots=True)
class JobKind:
    """What makes two jobs alike, the most telling first."""

    tenant: str
    name: str
    """The job's name without its number, or its workflow."""
    gpus: str
    """Type and count."""

    def from_narrow_to_wide(self) -> Iterator[tuple[tuple[str, ...], str]]:
        yield (self.tenant, self.name, self.gpus), "of this name on these GPUs"
        yield (self.tenant, self.name), "of this name"
        yield ("", self.tenant, "", self.gpus), "of this tenant on these GPUs"
        yield ("", self.tenant), "of this tenant"
        yield (), "of anybody"


_NUMBER = re.compile(r"(?<=.)[-_.]?[0-9]+\Z")
_COMMAND_CHARS = 200


def kind_of(spec: JobSpec, cluster: str) -> JobKind:
    """What a job is compared by."""
    name = _name(spec.name, spec.workflow, spec.command)
    return JobKind(spec.tenant_id, name, _gpus(cluster, spec.slots * spec.replicas))


def kind_of_run(run: PastRun) -> JobKind:
    """The same of one that has ended."""
    return JobKind(
        run.tenant_id, _name(run.name, run.workflow, run.command), _gpus(run.cluster, run.gpus)
    )


def _name(name: str, workflow: str, command: Sequence[str]) -> str:
    """Without its number: train-7 is another train. Who gives no name repeats a command."""
    if name:
        return _NUMBER.sub("", name)
    return workflow or " ".join(command)[:_COMMAND_CHARS]


@lru_cache(maxsize=1024)
def _gpus(cluster: str, count: int) -> str:
    """By the type, not by the cluster: spot or not, a program is as fast."""
    try:
        return f"{count} x {parse_cluster(cluster)[1]}"
    except BadName:
        return f"{count} x {cluster}"  # a pool of fixed machines may be called anything


@dataclass(frozen=True, slots=True)
class Guess:
    """How long a job runs, as a distribution."""

    runs: Sequence[float]
    """Of its like, the shortest first; none: nothing is known."""
    basis: str
    alike: bool = False
    """Whether these are runs of the job's own name: a broader kind says little about one job."""

    @property
    def known(self) -> bool:
        return bool(self.runs)

    def at(self, share: float) -> float:
        """It runs for less than this with that probability."""
        return _quantile(self.runs, share) if self.runs else _wide(share)

    def left(self, ran_s: float, share: float) -> float:
        """What remains for one that has run so long: only runs that were longer count."""
        if not self.runs:
            # Nothing known but its age: what has lasted is expected to last as long again.
            return max(ran_s, 60.0) * _wide(share) / _wide(0.5)
        first = bisect_right(self.runs, ran_s)
        if len(self.runs) - first < 3:
            return max(ran_s, self.runs[-1]) * TAIL * share
        return _quantile(self.runs[first:], share) - ran_s


def predicted_s(guess: Guess) -> float | None:
    """For how long jobs like it run, nine of ten times no longer; None: none like it has ended."""
    return guess.at(SURE_SHARE) if guess.known and guess.alike else None


def expected_s(guess: Guess, spec: JobSpec) -> float | None:
    """The middle of what its like ran for: what orders the queue. None: nothing is known."""
    return min(spec.max_runtime_s, guess.at(EXPECTED_SHARE)) if guess.known else None


UNKNOWN = Guess((), NO_HISTORY)


def unknown(_: Job) -> Guess:
    """Where nobody keeps a book."""
    return UNKNOWN


def _quantile(runs: Sequence[float], share: float) -> float:
    place = share * (len(runs) - 1)
    low = int(place)
    high = min(low + 1, len(runs) - 1)
    return runs[low] + (place - low) * (runs[high] - runs[low])


def _wide(share: float) -> float:
    for (left, low), (right, high) in pairwise(WIDE):
        if share <= right:
            return float(low * (high / low) ** ((share - left) / (right - left)))
    return WIDE[-1][1]


class _Runs:
    """The last runs of one kind, in both orders."""

    __slots__ = ("guess", "latest", "ordered")

    def __init__(self) -> None:
        self.latest: deque[float] = deque()
        self.ordered: list[float] = []
        self.guess: Guess | None = None
        """Made when first asked for: thousands of running jobs are of few kinds."""

    def add(self, ran_s: float) -> None:
        self.guess = None
        self.latest.append(ran_s)
        insort(self.ordered, ran_s)
        if len(self.latest) > REMEMBERED:
            del self.ordered[bisect_right(self.ordered, self.latest.popleft()) - 1]


@dataclass(slots=True)
class Book:
    """What has run, by kind. Bounded: the kinds that were not met for longest are forgotten."""

    kinds_max: int = KINDS_MAX
    _kinds: OrderedDict[tuple[str, ...], _Runs] = field(default_factory=OrderedDict)

    def add(self, kind: JobKind, ran_s: float) -> None:
        """One more run that came to its own end."""
        for key, _ in kind.from_narrow_to_wide():
            runs = self._kinds.setdefault(key, _Runs())
            runs.add(ran_s)
            self._kinds.move_to_end(key)
        while len(self._kinds) > self.kinds_max:
            self._kinds.popitem(last=False)

    def guess(self, kind: JobKind) -> Guess:
        """From the narrowest kind that was seen often enough."""
        for place, (key, words) in enumerate(kind.from_narrow_to_wide()):
            runs = self._kinds.get(key)
            if runs is not None and len(runs.ordered) >= ENOUGH:
                if runs.guess is None:
                    runs.guess = Guess(
                        tuple(runs.ordered),
                        f"{len(runs.ordered)} past runs {words}",
                        alike=place < NARROW and bool(kind.name),
                    )
                return runs.guess
        return UNKNOWN
