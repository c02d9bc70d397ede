"""Which GPUs of a VM are not to be trusted, and when the VM itself is not. Pure.

Bad GPUs come from readings: hot ones recover, those with memory errors or a fault do not until the
VM is another one. A VM on which different jobs fail one after the other is suspected itself: the
same command of the same tenant counts once, so that an array with a typo costs no VM.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.messages import GpuReading

COOL_BY_C = 5.0
"""A hot GPU is good again this much below the threshold: else it would come and go."""
HOT_MAX = timedelta(minutes=2)
"""Heat of a job that has just ended goes by itself; what lasts longer is a fault."""
FAILURES_KEPT = 16


@dataclass(frozen=True, slots=True)
class HealthRules:
    """When a GPU or a VM is left alone."""

    gpu_hot_c: float = 85.0
    """A GPU this hot gets no new job."""
    failures: int = 3
    """A VM on which so many different jobs fail in a row is drained; 0: never."""
    failures_within_s: float = 3600.0
    """Failures further apart than this have nothing to do with each other."""


class GpuFault(StrEnum):
    """What is wrong with a GPU."""

    HOT = "hot"
    ECC = "ecc"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class BadGpu:
    """A GPU that gets no new job."""

    index: int
    kind: GpuFault
    reason: str
    since: datetime

    def lasts(self, now: datetime) -> bool:
        """Not to be waited for."""
        return self.kind is not GpuFault.HOT or now - self.since >= HOT_MAX


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A job that failed there."""

    at: datetime
    job_id: str
    kind: str
    """The same for jobs that differ in nothing but their id."""


@dataclass(frozen=True, slots=True)
class VmHealth:
    """What is known against a VM; nothing, as a rule."""

    gpus: tuple[BadGpu, ...] = ()
    failures: tuple[FailedRun, ...] = ()
    """Those since the last job that went well, oldest first."""
    unready: str = ""
    """Why its own worker says that no job can run there."""

    @property
    def bad(self) -> frozenset[int]:
        return frozenset(gpu.index for gpu in self.gpus)

    @property
    def words(self) -> str:
        """For people; empty if there is nothing to say."""
        parts = [f"GPU {gpu.index} {gpu.reason}" for gpu in self.gpus]
        if self.failures:
            names = ", ".join(run.job_id for run in self.failures)
            parts.append(f"failed on it in a row: {names}")
        if self.unready:
            parts.append(self.unready)
        return "; ".join(parts)


WELL = VmHealth()


def read_gpus(
    health: VmHealth, readings: Iterable[GpuReading], rules: HealthRules, now: datetime
) -> VmHealth:
    """With what the newest readings say; the same object if that is nothing new."""
    known = {gpu.index: gpu for gpu in health.gpus}
    found = [_judge(known.get(r.index), r, rules, now) for r in readings]
    if not found:
        return health  # a heartbeat without readings says nothing about GPUs
    bad = tuple(gpu for gpu in found if gpu is not None)
    return health if bad == health.gpus else replace(health, gpus=bad)


def _judge(
    known: BadGpu | None, reading: GpuReading, rules: HealthRules, now: datetime
) -> BadGpu | None:
    kind, reason = None, ""
    was_hot = known is not None and known.kind is GpuFault.HOT
    if reading.fault:
        kind, reason = GpuFault.FAULT, reading.fault
    elif reading.ecc_errors > 0:
        kind, reason = GpuFault.ECC, f"has uncorrected memory errors ({reading.ecc_errors})"
    elif reading.temp_c >= rules.gpu_hot_c - (COOL_BY_C if was_hot else 0.0):
        kind, reason = GpuFault.HOT, f"is hot ({reading.temp_c:.0f} °C)"
    if kind is None:
        return None
    # The first words stay: a temperature that is written down with each heartbeat is noise.
    same = known is not None and known.kind is kind
    return known if same else BadGpu(reading.index, kind, reason, now)


def job_failed(health: VmHealth, run: FailedRun, rules: HealthRules) -> VmHealth:
    """With one more failure, unless one of its kind is counted already."""
    horizon = run.at - timedelta(seconds=rules.failures_within_s)
    recent = tuple(old for old in health.failures if old.at >= horizon)
    if not any(old.kind == run.kind for old in recent):
        recent = (*recent, run)[-FAILURES_KEPT:]
    return health if recent == health.failures else replace(health, failures=recent)


def job_went_well(health: VmHealth) -> VmHealth:
    """A VM that can finish a job is not to blame for the others."""
    return replace(health, failures=()) if health.failures else health


def kind_of_work(*words: object) -> str:
    """Short, and the same for the same words."""
    return hashlib.sha256(repr(words).encode(errors="surrogatepass")).hexdigest()[:12]


def verdict(health: VmHealth, gpus: int, *, idle: bool, rules: HealthRules, now: datetime) -> str:
    """Why the VM should get no more work; empty: it may."""
    if 0 < rules.failures <= len(health.failures):
        names = ", ".join(run.job_id for run in health.failures)
        return f"{len(health.failures)} different jobs failed on it in a row: {names}"
    lasting = [gpu for gpu in health.gpus if gpu.lasts(now)]
    if not lasting or (len(lasting) < gpus and not idle):
        return ""
    words = "; ".join(f"GPU {gpu.index} {gpu.reason}" for gpu in lasting)
    return f"all its GPUs are bad: {words}" if len(lasting) >= gpus else f"bad GPUs: {words}"
