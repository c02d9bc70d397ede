"""The numbers of the replayed cloud, and what it keeps of a VM and of a job."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Preemption = Literal["none", "counts", "lifetimes"]
_Z90 = 1.2815515655446004  # the 90 % point of the normal distribution


@dataclass(frozen=True, slots=True)
class RandomDuration:
    """A log-normal time, known by two of its quantiles."""

    p50_s: float
    p90_s: float

    def at(self, normal: float) -> float:
        """The time that belongs to a draw from the standard normal distribution."""
        sigma = math.log(self.p90_s / self.p50_s) / _Z90
        return self.p50_s * math.exp(sigma * normal)


@dataclass(frozen=True, slots=True)
class ReplayPhysics:
    """How the cloud behaves, the same for every policy."""

    boot_s: float = 90.0
    """From RUNNING, when the bill begins, until the worker says READY."""
    granted: RandomDuration = RandomDuration(46.0, 50.0)
    """From the create call to RUNNING: one GPU, Google, 2020."""
    refused: RandomDuration = RandomDuration(57.0, 107.0)
    """From the create call to the error of a stockout. The group then tries again by itself."""
    observe_s: float = 5.0
    """The cloud is polled: what happens there is known at the next multiple of this."""
    bill_least_s: float = 60.0
    """The shortest bill of a VM that ran."""
    preemption: Preemption = "none"
    checkpoint_s: float = 900.0
    """Work since the last multiple of this is lost with its VM, if its job was not told in time."""
    notice_s: float = 30.0
    """From the notice of a preemption until the VM is gone: what Google gives a spot VM."""
    save_s: float = 20.0
    """What a job needs to save all that it has done, once it is told."""
    lifetimes_s: tuple[float, ...] = ()
    """For preemption by lifetimes: one is drawn for each VM; infinity outlives the replay."""


class ReplayVm:
    """One VM, from the create call to its end."""

    __slots__ = (
        "asked_at", "attempt", "gone_at", "granted", "job", "lost_s", "name", "ran", "ready_at",
        "refusals", "running_at", "told_at", "useful_s", "zone",
    )  # fmt: skip

    def __init__(self, name: str, zone: int, asked_at: float) -> None:
        self.name = name
        self.zone = zone
        self.asked_at = asked_at
        self.granted = False
        """The zone has given it: it counts against what the zone can give."""
        self.refusals = 0
        self.attempt = 0
        """Fences events of the past: events with an older number mean nothing."""
        self.running_at: float | None = None
        self.ready_at: float | None = None
        self.gone_at: float | None = None
        self.job: ReplayJob | None = None
        self.told_at: float | None = None
        """When its job was told to save, because the cloud takes the VM back."""
        self.ran = False
        self.useful_s = 0.0
        self.lost_s = 0.0

    @property
    def idle(self) -> bool:
        return self.ready_at is not None and self.gone_at is None and self.job is None


class ReplayJob:
    """One job on its way through the replay."""

    __slots__ = (
        "done_at", "duration_s", "first_start", "index", "left_s", "started_at",
        "starts", "submit_s",
    )  # fmt: skip

    def __init__(self, index: int, submit_s: float, duration_s: float) -> None:
        self.index = index
        self.submit_s = submit_s
        self.duration_s = duration_s
        self.left_s = duration_s
        self.started_at = 0.0
        self.first_start: float | None = None
        self.starts = 0
        self.done_at: float | None = None


NewsKind = Literal["arrived", "running", "refused", "ready", "done", "taken", "gone", "supply"]


@dataclass(frozen=True, slots=True)
class News:
    """What a policy hears of. `zone` is set for all but arrivals."""

    kind: NewsKind
    zone: int = -1
    machine: ReplayVm | None = None
    job: ReplayJob | None = None
