"""The past of a stack as a trace: finished jobs as the API lists them, supply from what is known.

What is not recorded has to be assumed; every assumption is said in words.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from core.errors import BadInput, Fault
from sim.replay.supply import UNBOUNDED, Supply, make_zone
from sim.replay.workload import TraceJob, Workload

Json = Mapping[str, Any]
DAYS = 7
STEP_S = 600.0
DOWN_S = 3600.0
"""How long a region that refuses goes on refusing, on average."""


@dataclass(frozen=True, slots=True)
class RecordedHistory:
    """What was found, and what had to be assumed."""

    work: Workload
    supply: Supply
    assumed: tuple[str, ...]
    boot_s: float | None
    """What a boot usually takes; None: not seen."""


def past_of(
    cluster: Json, jobs: Iterable[Json], places: Sequence[Json], seed: int
) -> RecordedHistory:
    """A cluster's history as the API tells it: jobs that ran, and what its regions delivered."""
    work = _work(str(cluster["name"]), jobs)
    supply, unknown = _supply(cluster, places, seed)
    assumed = [
        "each job needs one VM and the time of its last attempt",
        "regions refuse for an hour at a time, as often as they refused you, and else give all",
    ]
    if unknown:
        assumed.append(f"nothing is known of {', '.join(unknown)}: taken as always there")
    boots = [float(p["usual_boot_s"]) for p in places if p.get("usual_boot_s")]
    return RecordedHistory(
        work, supply, tuple(assumed), statistics.median(boots) if boots else None
    )


def _work(cluster: str, jobs: Iterable[Json]) -> Workload:
    found = []
    for job in jobs:
        began, ended = job.get("started_at"), job.get("ended_at")
        if began and ended:
            runs_s = (_at(ended) - _at(began)).total_seconds()
            found.append((_at(job["submitted_at"]), max(1.0, runs_s), str(job["tenant_id"])))
    if not found:
        expected = "at least one that has run (or a file with --jobs)"
        raise BadInput([Fault(f"jobs of cluster {cluster}", "none", expected)])
    found.sort()
    start = found[0][0]
    traced = tuple(
        TraceJob((at - start).total_seconds(), runs_s, group=tenant) for at, runs_s, tenant in found
    )
    return Workload(f"the history of cluster {cluster}", traced)


def _at(text: object) -> datetime:
    return datetime.fromisoformat(str(text))


def _supply(cluster: Json, places: Sequence[Json], seed: int) -> tuple[Supply, list[str]]:
    known = {place["region"]: place for place in places if not place["zone"]}
    unknown: list[str] = []
    zones = []
    period_s = DAYS * 86_400.0
    for region in cluster["regions"]:
        name = str(region["region"])
        place = known.get(name, {})
        hits, misses = float(place.get("hits", 0.0)), float(place.get("misses", 0.0))
        if hits + misses <= 0:
            unknown.append(name)
        share = hits / (hits + misses) if hits + misses > 0 else 1.0
        series = _weather(share, period_s, random.Random(f"{seed} {name}"))
        zones.append(make_zone(name, series, period_s, float(region["usd_per_hour"])))
    return Supply(f"what is known of cluster {cluster['name']}", tuple(zones), period_s), unknown


def _weather(share: float, period_s: float, dice: random.Random) -> list[tuple[float, int]]:
    """Up and down by turns, up for that share of the time."""
    if share >= 1.0:
        return [(0.0, UNBOUNDED)]
    up_s = DOWN_S * share / (1.0 - share)
    at, up = 0.0, dice.random() < share
    series: list[tuple[float, int]] = []
    while at < period_s:
        series.append((at, UNBOUNDED if up else 0))
        spell_s = dice.expovariate(1.0 / max(STEP_S, up_s if up else DOWN_S))
        at += max(STEP_S, spell_s)
        up = not up if share > 0 else False
    return series
