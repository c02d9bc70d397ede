"""When waiting jobs are expected to start, and what such words were worth so far: values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from core.job import Job, S, StopReason


@dataclass(frozen=True, slots=True)
class PastRun:
    """A job that came to its end by itself: what later ones of its kind are compared with."""

    uid: str
    tenant_id: str
    name: str
    workflow: str
    command: tuple[str, ...]
    cluster: str
    gpus: int
    """Of all its VMs."""
    ran_s: float
    """Of all its attempts."""
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class Told:
    """What a job was told."""

    at: datetime
    p50_at: datetime
    """It starts before this as often as not."""
    p90_at: datetime
    """Nine times of ten it starts before this."""


@dataclass(frozen=True, slots=True)
class JobForecast:
    """Of one waiting job."""

    told: Told | None
    """None: nothing can be said, and `based_on` says why."""
    based_on: str
    run_p50_s: float | None = None
    """How long it will run; None: none of its like has ended yet."""
    run_p90_s: float | None = None
    run_based_on: str = ""
    first: Told | None = None
    """What it was told first: that is held against what comes."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast one tenant's jobs of one class get on: for those too far back to be played."""

    tenant_id: str
    tier: int
    position: int
    """Of the last one that was played: higher classes and its tenant's own before it, and 1."""
    p50_s: float
    p90_s: float
    """Until it starts, from `computed_at` on."""


@dataclass(frozen=True, slots=True)
class Record:
    """Jobs that were told when they would start, and have started."""

    told: int = 0
    p50_held: int = 0
    p90_held: int = 0
    p50_factor: float = 1.0
    """What the plays say is multiplied by this, as learned."""
    p90_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """All that is said about one cluster's queue."""

    cluster: str
    computed_at: datetime
    jobs: Mapping[str, JobForecast] = field(default_factory=dict)
    """By uid; of a gang, by that of its first member."""
    paces: tuple[Pace, ...] = ()
    record: Record = field(default_factory=Record)

    def beyond(self, tenant_id: str, tier: int, position: int) -> JobForecast | None:
        """Of a job that is too far back: at the pace of those before it. None: none of its tenant
        and class was played."""
        for pace in self.paces:
            if (pace.tenant_id, pace.tier) == (tenant_id, tier):
                stretch = max(1.0, position / pace.position)
                told = Told(
                    self.computed_at,
                    self.computed_at + timedelta(seconds=pace.p50_s * stretch),
                    self.computed_at + timedelta(seconds=pace.p90_s * stretch),
                )
                words = f"far back: at the pace of the {pace.position} before it"
                return JobForecast(told, words)
        return None


def run_of(job: Job) -> PastRun | None:
    """What the job says about others of its kind; None: it never ran, or somebody ended it, or it
    is only a part of a gang. One that ran into its limit has held its VM for so long at least."""
    spec = job.spec
    if job.ended_at is None or job.attained_gpu_s <= 0 or (job.gang and job.gang.rank):
        return None
    exited = job.status is S.SUCCEEDED or (job.status is S.FAILED and job.exit_code is not None)
    by_itself = exited and job.stop_reason is None
    if not by_itself and job.stop_reason is not StopReason.MAX_RUNTIME:
        return None
    return PastRun(
        job.uid,
        spec.tenant_id,
        spec.name,
        spec.workflow,
        spec.command,
        job.cluster,
        spec.slots * spec.replicas,
        job.attained_gpu_s / spec.slots,
        job.ended_at,
    )
