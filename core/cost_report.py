"""Reports of cost: settled daily sums and what lives, added up by what people ask for. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from core.cost import Amount, CostKind, Life, Share, attribute, burn, day_start

CENTS, FINE = 2, 4
"""Decimals of a report: cents, or hundredths of a cent while all of it is less than FINE_BELOW."""
FINE_BELOW_USD = 100.0

By = Literal["kind", "job", "tenant", "user", "cluster", "region", "spot", "day"]
Costs = Mapping[CostKind, Amount]


@dataclass(frozen=True, slots=True)
class CostQuestion:
    """Whole days (UTC), both included. None: no restriction."""

    by: By
    since: date
    until: date
    tenant_id: str | None = None
    cluster: str | None = None
    limit: int = 100
    """Most jobs that a report by job names; the dearest."""


@dataclass(frozen=True, slots=True)
class CostReport:
    """Settled days plus what lives."""

    now: datetime
    rows: Mapping[str, Costs]
    """What the question groups by → kind → amount."""
    total: Costs
    """Of everything that fits the question, also of jobs that are not named."""
    today: Amount
    """Since midnight UTC, whatever days were asked for."""
    burn_usd_per_hour: float
    others: Costs = field(default_factory=dict)
    """Of a report by job: all jobs that are not named."""

    @property
    def decimals(self) -> int:
        """How finely it is printed."""
        return FINE if usd(self.total.values()) < FINE_BELOW_USD else CENTS

    @property
    def forecast_usd(self) -> float:
        """Of the whole day, if everything goes on as it is now."""
        left = day_start(self.now.astimezone(UTC).date()) + timedelta(days=1) - self.now
        return self.today.usd + self.burn_usd_per_hour * left.total_seconds() / 3600


@dataclass(slots=True)
class CostTally:
    """Adds up a report from settled sums and live shares."""

    question: CostQuestion
    now: datetime
    rows: dict[str, dict[CostKind, Amount]] = field(default_factory=dict)
    total: dict[CostKind, Amount] = field(default_factory=dict)
    today: Amount = field(default_factory=Amount)
    burn_usd_per_hour: float = 0.0

    def add_row(self, key: str, kind: CostKind, amount: Amount) -> None:
        costs = self.rows.setdefault(key, {})
        costs[kind] = costs.get(kind, Amount()) + amount

    def add_total(self, kind: CostKind, amount: Amount) -> None:
        self.total[kind] = self.total.get(kind, Amount()) + amount

    def add_life(self, life: Life) -> None:
        """What is not settled of a VM: up to now, or to its end."""
        asked = self.question
        if asked.cluster not in (None, life.cluster):
            return
        end = life.billed_until(self.now)
        for share in attribute(life, end):
            if asked.tenant_id not in (None, share.tenant_id):
                continue
            if share.day == self.now.astimezone(UTC).date():
                self.today += share.amount
            if asked.since <= share.day <= asked.until:
                self.add_row(key_of(share, asked.by), share.kind, share.amount)
                self.add_total(share.kind, share.amount)
        for payer, usd_per_hour in burn(life, self.now):
            if asked.tenant_id in (None, payer.tenant_id if payer else ""):
                self.burn_usd_per_hour += usd_per_hour

    def report(self) -> CostReport:
        rows, others = self.rows, {}
        if self.question.by == "job":
            # What nobody caused is no job: it is always named.
            dearest = sorted(rows, key=lambda key: (key != "", -usd(rows[key].values())))
            rows = {key: rows[key] for key in dearest[: self.question.limit + ("" in rows)]}
            others = _rest(self.total, rows.values())
        return CostReport(self.now, rows, self.total, self.today, self.burn_usd_per_hour, others)


def _rest(total: Costs, rows: Iterable[Costs]) -> dict[CostKind, Amount]:
    """What is in the total and in no row."""
    named: dict[CostKind, Amount] = {}
    for costs in rows:
        for kind, amount in costs.items():
            named[kind] = named.get(kind, Amount()) + amount
    found: dict[CostKind, Amount] = {}
    for kind, amount in total.items():
        known = named.get(kind, Amount())
        left_usd = amount.usd - known.usd
        if left_usd > 0.5 * 10**-FINE:  # less is the noise of sums
            vm_s, gpu_s = amount.vm_seconds, amount.gpu_seconds
            found[kind] = Amount(vm_s - known.vm_seconds, gpu_s - known.gpu_seconds, left_usd)
    return found


def dealt_out(parts: Sequence[float], whole: int) -> list[int]:
    """Whole numbers near the parts that add up to `whole`: each part is rounded down, and what is
    missing goes to the largest remainders, one each; of equal ones, to the first."""
    if not parts:
        return []
    floors = [math.floor(part) for part in parts]
    by_remainder = sorted(range(len(parts)), key=lambda n: (floors[n] - parts[n], n))
    missing = whole - sum(floors)
    step = 1 if missing > 0 else -1
    order = by_remainder if missing > 0 else by_remainder[::-1]
    for turn in range(abs(missing)):
        floors[order[turn % len(order)]] += step
    return floors


def printed(rows: Sequence[Costs], decimals: int) -> list[dict[CostKind, float]]:
    """The dollars of each row by kind as they are printed. All rows together are the bill, rounded;
    it is dealt out over the rows, and what a row gets over its kinds. So a printed table adds up in
    both directions, and each row is less than one unit away from what it is exactly."""
    unit = 10**decimals
    exact = [usd(row.values()) * unit for row in rows]
    found: list[dict[CostKind, float]] = []
    for row, whole in zip(rows, dealt_out(exact, round(sum(exact))), strict=True):
        parts = dealt_out([amount.usd * unit for amount in row.values()], whole)
        found.append({kind: part / unit for kind, part in zip(row, parts, strict=True)})
    return found


def usd(amounts: Iterable[Amount]) -> float:
    """Their dollars together."""
    return sum(amount.usd for amount in amounts)


def key_of(share: Share, by: By) -> str:
    """The name of the group that a share belongs to; empty: nobody's."""
    match by:
        case "kind":
            return share.kind
        case "job":
            return job_key(share.payer.job_id, share.payer.user_id) if share.payer else ""
        case "tenant":
            return share.tenant_id
        case "user":
            return share.user_id
        case "cluster":
            return share.life.cluster
        case "region":
            return share.life.region
        case "spot":
            return "spot" if share.life.spot else "standard"
        case "day":
            return share.day.isoformat()


def job_key(job_id: str, user_id: str) -> str:
    """Two users may have a job of the same name; most people are the user 0."""
    return job_id if user_id == "0" else f"{job_id}@{user_id}"


def job_amounts(lives: Iterable[Life], job_uid: str, now: datetime) -> Costs:
    """What one job has cost on these VMs since they were settled."""
    found: dict[CostKind, Amount] = {}
    for life in lives:
        for share in attribute(life, life.billed_until(now)):
            if share.payer is not None and share.payer.job_uid == job_uid:
                found[share.kind] = found.get(share.kind, Amount()) + share.amount
    return found
