"""Limits and quotas in force, as the checkers see them: from what was recorded, and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from core.job import Job
from core.tenants import HOLDS, MachineShape, ResourceTotals, Tenant, held_by, holdings
from sim.memory.tables import Tables
from sim.virtual.trace import Trace

ADOPT_S = 30.0
"""How long a leader may still go by the version before: its looks are seconds apart, and it may
have been frozen for as long as its lease lasts."""
ROUNDING = 1e-6
"""Parts of a VM's memory do not add up to the last bit."""


class Limits:
    """A limit that was lowered binds once every leader must have heard of it."""

    def __init__(self, first: Mapping[str, int], tables: Tables, time: Callable[[], float]) -> None:
        self._tables, self._time = tables, time
        self._seen = 0
        self._held: list[tuple[float, Mapping[str, int]]] = [(time(), first)]
        """(since when, limits), newest last; the first one may be older than it matters."""

    def of(self, cluster: str) -> int:
        """The highest limit that a leader may go by now."""
        self._follow()
        now = self._time()
        while len(self._held) > 1 and now - self._held[1][0] > ADOPT_S:
            del self._held[0]
        return max(limits.get(cluster, 0) for _, limits in self._held)

    def _follow(self) -> None:
        for row in self._tables.configs:
            if row.version > self._seen:
                self._seen = row.version
                self._held.append((self._time(), _limits(row.document["clusters"])))


def _limits(clusters: Mapping[str, Mapping[str, int]]) -> Mapping[str, int]:
    return {name: 0 if given.get("drain") else given["vm_max"] for name, given in clusters.items()}


class ExpectedQuotas:
    """What tenants hold beside what they may hold."""

    def __init__(
        self, machines: Mapping[str, MachineShape], trace: Trace, broken: Callable[..., None]
    ) -> None:
        self.tenants: dict[str, Tenant] = {}
        self._machines, self._trace, self._broken = machines, trace, broken
        self._holding: dict[str, dict[str, Job]] = defaultdict(dict)
        """Tenant → its jobs that hold a part of its quota."""

    def keep(self, job: Job) -> None:
        """The job as it is from now on."""
        held = self._holding[job.spec.tenant_id]
        if job.status in HOLDS:
            held[job.uid] = job
        else:
            held.pop(job.uid, None)

    def check(self, admitted: Job) -> None:
        """After an admission a tenant's jobs hold no more than its quota of what the admitted one
        asks for. One that was lowered takes nothing back from whom it has."""
        tenant = self.tenants.get(admitted.spec.tenant_id)
        if tenant is None or not tenant.quota.limits:
            return
        mine = self._holding[tenant.tenant_id].values()
        used = held_by(holdings(mine)[tenant.tenant_id], self._machines)
        asked = ResourceTotals.of(admitted.spec).amounts(self._machines.get(admitted.cluster))
        limits = tenant.quota.limits
        over = [n for n in limits if asked.get(n, 0.0) > 0 and used[n] > limits[n] + ROUNDING]
        if over:
            words = ", ".join(f"{used[n]:g} {n}, quota {limits[n]:g}" for n in over)
            name = admitted.spec.job_id
            self._broken("I5", f"{name} admitted: tenant {tenant.tenant_id} holds {words}", name)
        if any(used.get(n, 0.0) == limit for n, limit in limits.items()):
            self._trace.count_fault("quota_used_up")
