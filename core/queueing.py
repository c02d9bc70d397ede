"""The rules of the queue: priority classes, and when a waiting job is due.

One key orders the jobs of a tenant: `due_at` = its submission + aging limit × its size.
It never changes while the job waits, so an index can hold it, and it says three things at once:

- *attained service*: a job that has had much goes behind new ones (its size is at least the level
  that it has reached);
- *aging relative to its own size*: after waiting `patience` × its size, nobody of its class and
  tenant who comes later passes it. A small job is due soon, a big one later, none never;
- *arrival*: of two alike, the one that came first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.active import Census
    from core.job import Job
    from core.job_fields import JobSpec
    from core.tenants import Tenant, Usage

LEVELS_S = tuple(hours * 3600.0 for hours in (0.5, 2, 8, 32, 128, 512))
"""Attained service is counted in these steps: within one, arrival decides. All beyond the last but
one are alike: there it is first come, first served, which is what lets big jobs end."""
WEIGHT = 0.75
"""Service is seconds × GPUs to this power. By GPU-seconds a job of 64 GPUs would be behind
everybody within minutes, by seconds it would block 64 others for as long as one."""
BIG_GPUS = 64
"""So many GPUs or more go first among jobs that have had much."""
LONG_LEVEL = 2
"""From this level on."""
PRIORITY_HIGHEST = 9999
AGING_LIMIT_MAX_S = 90 * 86400.0


class QueueRule(StrEnum):
    """How a cluster orders its waiting jobs."""

    FAIR = "fair"
    """Class, then the tenants' shares, then who is due first."""
    FIFO = "fifo"
    """Arrival alone."""
    PRIORITY = "priority"
    """The number alone, then arrival: a job with a low one may wait for ever."""


class PriorityClass(IntEnum):
    """Nothing lifts a job out of its class."""

    LOW = 0
    NORMAL = 1
    HIGH = 2
    URGENT = 3


_SPANS: Mapping[PriorityClass, tuple[int, int]] = {
    PriorityClass.LOW: (0, 500),
    PriorityClass.NORMAL: (500, 1000),
    PriorityClass.HIGH: (1000, 2000),
    PriorityClass.URGENT: (2000, PRIORITY_HIGHEST + 1),
}


PRIORITIES: Mapping[str, int] = {kind.name.lower(): _SPANS[kind][0] for kind in PriorityClass}
"""Name of a class → the priority that it stands for: the lowest of the class."""
PRIORITY_CAPS: Mapping[str, int] = {
    kind.name.lower(): _SPANS[kind][1] - 1 for kind in PriorityClass
}
"""Name of a class → the highest priority of the class."""
_CLASSES = tuple(sorted(PriorityClass))
_STARTS = tuple(_SPANS[kind][0] for kind in _CLASSES[1:])


def class_of(priority: int) -> PriorityClass:
    """100–500 low, 500–1000 normal, 1000–2000 high, 2000 and more urgent."""
    return _CLASSES[bisect_right(_STARTS, priority)]


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How shares are kept and how jobs age."""

    half_life_s: float = 7 * 86400.0
    """Half of what a tenant has used is forgotten after this long."""
    patience: float = 5.0
    """A job that has waited this many times its own size is passed by none of its tenant's jobs
    that come later."""
    size_min_s: float = 1800.0
    """No job counts as smaller: else a stream of tiny ones would be due at once."""
    size_unknown_s: float = 1800.0
    """The run of a job that nobody can predict."""
    big_first_s: float = 1_600_000.0
    """Of jobs that have had hours already, one with 64 GPUs goes before one with few that came up
    to this much earlier: the few find room anyway, the many never do by themselves."""
    hysteresis: float = 0.1
    """An admitted job gives its place to another tenant's only if that one's share is smaller by
    this part: shares that are nearly equal must not make jobs take turns in waiting."""
    least_run_s: float = 600.0
    """No job is preempted for another before it has run this long (half of it, if its tenant has
    had more than twice as much as the other); a job that was preempted before is safe from its own
    class for longer."""
    grow_pause_s: float = 30.0
    """An elastic job whose size has changed does not grow again for this long."""


def gpus_of(spec: JobSpec) -> int:
    """Of all members of a gang that it needs."""
    return spec.slots * spec.least


def level_of(spec: JobSpec, attained_gpu_s: float) -> int:
    """Which step of service a job is on. `attained_gpu_s`: of one member, if it is a gang."""
    gpus = gpus_of(spec)
    service = attained_gpu_s * spec.least * gpus ** (WEIGHT - 1.0)
    return min(bisect_right(LEVELS_S, service), len(LEVELS_S) - 1)


def size_s(
    spec: JobSpec, attained_gpu_s: float, policy: QueuePolicy, expected_s: float | None = None
) -> float:
    """How much the job is taken to need, in seconds of one GPU: what is expected of it, or what it
    has had already, rounded up to its level."""
    expected = min(policy.size_unknown_s, spec.max_runtime_s)
    if expected_s is not None:
        expected = expected_s * gpus_of(spec) ** WEIGHT
    return max(policy.size_min_s, expected, LEVELS_S[level_of(spec, attained_gpu_s)])


def aging_limit_s(
    spec: JobSpec, attained_gpu_s: float, policy: QueuePolicy, expected_s: float | None = None
) -> float:
    """For how long jobs of the same tenant and class that come later may pass this one. The
    lowest number of a class makes it twice as patient as the highest."""
    lowest, end = _SPANS[class_of(spec.priority)]
    calm = 2.0 - (spec.priority - lowest) / (end - lowest)
    size = size_s(spec, attained_gpu_s, policy, expected_s)
    wait_s = min(policy.patience * size * calm, AGING_LIMIT_MAX_S)
    if level_of(spec, attained_gpu_s) >= LONG_LEVEL:
        wait_s += policy.big_first_s * (1.0 - min(gpus_of(spec), BIG_GPUS) / BIG_GPUS)
    return wait_s


def due_at(
    queued_since: datetime,
    spec: JobSpec,
    attained_gpu_s: float,
    policy: QueuePolicy,
    expected_s: float | None = None,
) -> datetime:
    """Its place among the jobs of its tenant and class: the earliest is next."""
    return queued_since + timedelta(seconds=aging_limit_s(spec, attained_gpu_s, policy, expected_s))


# --- the order of waiting jobs -----------------------------------------------------------
# These keys are the order of the queues in Python; db/queue_heads.py has them in SQL. A property
# test holds the two together.


def arrival_key(job: Job) -> tuple[datetime, str]:
    """Of a FIFO queue, and of jobs that may not be passed any more."""
    return (job.queued_since, job.uid)


def priority_key(job: Job) -> tuple[int, datetime, str]:
    """Of a queue by priority."""
    return (-job.spec.priority, job.queued_since, job.uid)


def due_key(job: Job) -> tuple[datetime, str]:
    """Of the jobs of one tenant and class in a fair queue."""
    return (job.due, job.uid)


def goes_before(other: Job, job: Job) -> bool:
    """Whether the other one certainly goes first in a fair queue: it is of a higher class, or its
    tenant's and due before. Among tenants the shares of the moment decide."""
    theirs, mine = class_of(other.spec.priority), class_of(job.spec.priority)
    if theirs != mine or other.spec.tenant_id != job.spec.tenant_id:
        return theirs > mine
    return due_key(other) < due_key(job)


# --- what a cycle asks the store for -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Live:
    """What is known before the queue is looked at."""

    now: datetime
    jobs: Sequence[Job]
    """All leased and PROVISIONING ones."""
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    usage: Mapping[str, Usage] = field(default_factory=dict)
    queues: Collection[str] = ()
    """Clusters for which somebody waits."""
    census: Census | None = None
    """Of `jobs`, if it is kept."""


@dataclass(frozen=True, slots=True)
class HeadsOf:
    """The first jobs of one cluster's queue."""

    cluster: str
    limit: int
    """Most of them; in a fair queue, of each class."""
    rule: QueueRule = QueueRule.PRIORITY
    tenants: Sequence[str] = ()
    """Of a fair queue: these alone, in this order, until there are enough."""
    backing_off: bool = False
    """Also jobs that wait for the moment of their next attempt: the forecast asks for them."""
    room: int | None = None
    """A number: a gang is one head, by its first member. Once the heads have so many members,
    `limit - room` more are enough. None: each member counts."""

    def enough(self, sizes: Iterable[int]) -> int:
        """How many heads are needed, of such as have so many members each."""
        if self.room is None:
            return self.limit
        filled = bisect_left(list(accumulate(sizes)), self.room)
        return filled + 1 + self.limit - self.room if self.room else self.limit


Ask = Callable[[Live], Sequence[HeadsOf]]
"""Which heads of which queues a cycle needs, given what lives. Pure: it runs inside the store's
snapshot."""
EACH_MIN = 4


def each_of(heads: HeadsOf) -> int:
    """How many of each tenant are read at first: a few of many tenants are worth more than many
    of the first."""
    return min(heads.limit, max(EACH_MIN, heads.limit // 8))
