"""Made-up traces: supply and jobs from a seed, with the habits of real ones.

Zones stay up or down for hours, those of one region tend to fail together, one of them is always
there and dear; jobs come in bursts by day, most are short and a few are very long.
"""

from __future__ import annotations

import csv
import io
import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sim.replay.supply import Supply, make_zone
from sim.replay.workload import DAY_S, TraceJob, Workload

STEP_S = 600.0
MOST = 16
_BEGIN = datetime(2025, 1, 6, tzinfo=UTC)
_PRICES = (1.86, 2.04, 2.09, 2.19, 2.37, 2.41)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How much to make up."""

    seed: int = 1
    days: float = 7.0
    regions: int = 6
    zones_per_region: int = 2
    jobs_per_day: float = 150.0
    run_s: float = 3600.0
    """Half of the jobs run for less."""
    dear: bool = False
    """One more zone, always there at four times the price."""


def make_supply(recipe: Recipe) -> Supply:
    """Counts per zone, every ten minutes."""
    dice = random.Random(f"supply {recipe.seed}")
    steps = max(2, round(recipe.days * DAY_S / STEP_S))
    zones = []
    for region in range(recipe.regions):
        weather = _weather(dice, steps)
        for number in range(recipe.zones_per_region):
            own = _weather(dice, steps)
            level = dice.uniform(0.2, 1.0)
            series = [
                (i * STEP_S, _count(0.4 * weather[i] + 0.6 * own[i], level, dice))
                for i in range(steps)
            ]
            price = _PRICES[region % len(_PRICES)]
            name = f"synth-region{region + 1}-{chr(ord('a') + number)}"
            zones.append(make_zone(name, series, steps * STEP_S, price, cap=MOST))
    if recipe.dear:
        always = [(i * STEP_S, MOST) for i in range(steps)]
        name = f"synth-region{recipe.regions + 1}-a"
        zones.append(make_zone(name, always, steps * STEP_S, 4 * _PRICES[0], cap=MOST))
    return Supply(f"synthetic supply, seed {recipe.seed}", tuple(zones), steps * STEP_S)


def _weather(dice: random.Random, steps: int) -> list[float]:
    """A slow wander around zero: half of it is forgotten after about four hours."""
    keep = 0.5 ** (STEP_S / (4 * 3600.0))
    now = dice.gauss(0.0, 1.0)
    found = []
    for _ in range(steps):
        now = keep * now + math.sqrt(1.0 - keep * keep) * dice.gauss(0.0, 1.0)
        found.append(now)
    return found


def _count(weather: float, level: float, dice: random.Random) -> int:
    return max(0, min(MOST, round(MOST * level * (0.8 + weather) + dice.gauss(0.0, 0.7))))


def make_jobs(recipe: Recipe) -> Workload:
    """Bursts of one to ten jobs that resemble each other, more of them by day."""
    dice = random.Random(f"jobs {recipe.seed}")
    jobs: list[TraceJob] = []
    at = 0.0
    while True:
        burst = dice.choice((1, 1, 1, 1, 2, 3, 5, 10))
        by_day = 1.0 + 0.8 * math.sin(2 * math.pi * at / DAY_S)
        at += dice.expovariate(recipe.jobs_per_day * by_day / DAY_S / 3.0)
        if at >= recipe.days * DAY_S:
            break
        alike = recipe.run_s * math.exp(dice.gauss(0.0, 1.3))
        for _ in range(burst):
            submit = at + dice.uniform(0.0, 30.0)
            jobs.append(TraceJob(round(submit, 1), round(alike * dice.uniform(0.7, 1.3), 1)))
    jobs.sort(key=lambda job: (job.submit_s, job.duration_s))
    return Workload(f"synthetic jobs, seed {recipe.seed}", tuple(jobs or [TraceJob(0.0, 60.0)]))


def supply_csv(supply: Supply) -> str:
    """The supply in the format of the recorded series."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["time_utc", *(zone.name for zone in supply.zones)])
    for step in range(round(supply.period_s / STEP_S)):
        at = _BEGIN + timedelta(seconds=step * STEP_S)
        counts = (min(MOST, zone.count_at(step * STEP_S)) for zone in supply.zones)
        lines.writerow([at.strftime("%Y-%m-%d %H:%M:%S"), *counts])
    return out.getvalue()


def prices_csv(supply: Supply) -> str:
    """The prices in the format of the recorded list; zones stand for their regions."""
    rows = [f"{zone.name},{zone.usd_per_hour}" for zone in supply.zones]
    return "\n".join(["region,usd_per_gpu_hour", *rows, ""])


def jobs_csv(work: Workload) -> str:
    """The jobs in the format of the recorded ones."""
    rows = [f"{job.submit_s},{job.duration_s},{job.gpus}" for job in work.jobs]
    return "\n".join(["submit_s,duration_s,num_gpu", *rows, ""])
