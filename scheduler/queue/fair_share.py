"""What each tenant has had beside its weight. Pure.

A share is decayed: what was used counts half after a half-life. Keyed on what runs at the moment
alone it would flip with every start and end. What a running job will cost is not known, so it is
charged ahead for a typical run: a tenant that has just been served goes behind at once.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from core.active import Census
from core.changes import Charge
from core.job import Job
from core.queueing import QueuePolicy
from core.tenants import Tenant, Usage


@dataclass(frozen=True, slots=True)
class Shares:
    """Who has had how much."""

    used: Mapping[str, float]
    """Tenant → (decayed GPU-seconds + what runs) ÷ weight."""
    weights: Mapping[str, float]
    ahead_s: float
    hysteresis: float

    def used_by(self, tenant: str) -> float:
        return self.used.get(tenant, 0.0)

    def cost(self, job: Job) -> float:
        """What one more job adds to its tenant's share."""
        return self.part(job.spec.tenant_id, job.spec.slots)

    def part(self, tenant: str, gpus: int) -> float:
        """What so many GPUs at work add to a tenant's share."""
        return gpus * self.ahead_s / self.weights.get(tenant, 1.0)

    def plus(self, gpus: Mapping[str, int]) -> Shares:
        """With so many GPUs more at work, of each tenant."""
        more = {name: self.used_by(name) + self.part(name, count) for name, count in gpus.items()}
        return replace(self, used=ChainMap(more, cast("dict[str, float]", self.used)))

    def in_order(self) -> list[str]:
        """Tenants, those first that have had least."""
        used = self.used
        return [tenant for _, tenant in sorted((used[name], name) for name in self.weights)]


class _Used(Mapping[str, float]):
    """Worked out when it is asked for: a cycle asks about the tenants whose jobs are next."""

    def __init__(
        self,
        usage: Mapping[str, Usage],
        weights: Mapping[str, float],
        census: Census,
        now: datetime,
        half_life_s: float,
        ahead_s: float,
    ) -> None:
        self._usage, self._weights, self._census = usage, weights, census
        self._now, self._half_life_s, self._ahead_s = now, half_life_s, ahead_s
        self._known: dict[str, float] = {}

    def __getitem__(self, tenant: str) -> float:
        known = self._known.get(tenant)
        if known is None:
            usage = self._usage.get(tenant)
            past = usage.decayed(self._now, self._half_life_s) if usage is not None else 0.0
            used = past + self._census.gpu_s(tenant, self._now, self._ahead_s)
            known = self._known[tenant] = used / self._weights.get(tenant, 1.0)
        return known

    def __iter__(self) -> Iterator[str]:
        return iter({**self._weights, **self._census.gpus})

    def __len__(self) -> int:
        return len({**self._weights, **self._census.gpus})


def usage_after(usage: Mapping[str, Usage], charges: Sequence[Charge]) -> Mapping[str, Usage]:
    """With what ended in this cycle: else a tenant whose job was just preempted would seem to have
    had nothing, and take the place back."""
    if not charges:
        return usage
    found = dict(usage)
    for one in charges:
        known = found.get(one.tenant_id, Usage())
        found[one.tenant_id] = known.plus(one.gpu_s, one.at, one.half_life_s)
    return found


def shares_of(
    tenants: Mapping[str, Tenant],
    usage: Mapping[str, Usage],
    census: Census,
    now: datetime,
    policy: QueuePolicy,
    ahead_s: float,
) -> Shares:
    """For this cycle."""
    weights = {name: tenant.weight for name, tenant in tenants.items()}
    used = _Used(usage, weights, census, now, policy.half_life_s, ahead_s)
    return Shares(used, weights, ahead_s, policy.hysteresis)
