"""What chaos can do: the scenarios, how much of each, and what is remembered of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, assert_never

from core.errors import ZenError

CLUSTER = "1xl4"
STUCK_S = 60.0
"""What is only waited for, and not measured, takes at most this long."""


class NotRecovered(ZenError):
    """Something did not come back in time."""

    code = "stuck"


class Scenario(StrEnum):
    """One kind of fault each, or all of them by dice."""

    GENERAL = "general"
    LEADER_DEATHS = "leader-deaths"
    FROZEN_LEADER = "frozen-leader"
    NO_DATABASE = "no-database"
    NO_BUS = "no-bus"


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    """How much of it."""

    seconds: float = 600.0
    """The span over which jobs are submitted, and by dice also of the faults."""
    replicas: int = 3
    jobs: int = 2000
    seed: int = 1
    vm_max: int = 6
    lease_s: float = 10.0
    """The leader's lease; renewed at a third of it."""
    frozen_s: float = 20.0
    """How long a leader stays frozen after its successor took over."""
    ticks_max: int = 500
    """Tenths of a second of the longest jobs."""
    acts: tuple[str, ...] = ()
    """In this order, once; empty: by dice until the time is over."""
    until_ended: str = ""
    """This act again and again, until every job has ended."""
    away_s: float = 300.0
    """How long database or bus stay away."""
    steady: int = 0
    """Jobs that run when the outage begins."""
    steady_ticks: int = 0
    """Tenths of a second that each of them needs."""

    def changes(self) -> Mapping[str, Any]:
        """What the stack's configuration gets."""
        timers = {"leader_lease_s": self.lease_s, "leader_renew_s": round(self.lease_s * 0.3, 2)}
        return {"timers": timers, "clusters": {CLUSTER: {"vm_max": self.vm_max}}}


def plan_for(
    scenario: Scenario, minutes: float | None, jobs: int | None, replicas: int, seed: int
) -> ChaosPlan:
    """`minutes` is the length of the flow of jobs, or of the outage; each has its usual one."""
    base = ChaosPlan(replicas=replicas, seed=seed)
    match scenario:
        case Scenario.GENERAL:
            span = 60 * (minutes or 10.0)
            return replace(base, seconds=span, jobs=jobs or round(span / 0.3))
        case Scenario.LEADER_DEATHS:
            span = 60 * (minutes or 10.0)
            return replace(
                base,
                seconds=span,
                jobs=jobs or 2000,
                vm_max=10,
                ticks_max=60,
                until_ended="kill leader",
            )
        case Scenario.FROZEN_LEADER:
            frozen = max(1, round(minutes or 3.0))
            return replace(
                base,
                seconds=80.0 * frozen,
                jobs=jobs or 80 * frozen,
                frozen_s=60.0,
                ticks_max=100,
                acts=("freeze leader",) * frozen,
            )
        case Scenario.NO_DATABASE:
            away_s = 60 * (minutes or 5.0)
            return replace(
                base,
                seconds=away_s,
                jobs=jobs or 100,
                ticks_max=60,
                acts=("database away",),
                away_s=away_s,
                steady=3,
                steady_ticks=round(10 * away_s + 300),
            )
        case Scenario.NO_BUS:
            away_s = 60 * (minutes or 30.0)
            return replace(
                base,
                seconds=away_s,
                jobs=jobs or 40,
                ticks_max=60,
                acts=("bus away",),
                away_s=away_s,
                steady=4,
                steady_ticks=600,
            )
        case _:
            assert_never(scenario)


@dataclass(frozen=True, slots=True)
class Outage:
    """A part that was away, with the jobs that ran meanwhile."""

    part: str
    began: float
    back: float
    """Both in seconds of the wall clock, which the jobs' own lines are in too."""
    steady: Mapping[str, int]
    """Job → lines that it writes if it runs once and whole."""


@dataclass(slots=True)
class ChaosLog:
    """What was done, and what callers met."""

    accepted: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    acts: Counter[str] = field(default_factory=Counter)
    submit_errors: Counter[str] = field(default_factory=Counter)
    fatal_errors: list[str] = field(default_factory=list)
    """Answers that a caller could not just have repeated."""
    handovers_s: list[float] = field(default_factory=list)
    outages: list[tuple[datetime, datetime]] = field(default_factory=list)
    """When the database was taken away: nobody can take over meanwhile."""
    away: list[Outage] = field(default_factory=list)
    refusals_s: list[float] = field(default_factory=list)
    """How long each 503 took while the database was away."""
    healed_s: float = 0.0
    """From the last fault to the end of the last job."""


def tick_lines(checkpoints: Path) -> list[str]:
    """What the jobs wrote while they ran: each among its own checkpoints, where it may write."""
    files = sorted(checkpoints.rglob("ticks"))
    return [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
