"""Those who run the place: they change what tenants may have and spend, cancel whole groups, send
dead letters again, roll the configuration back, and look at the figures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from config.errors import ConfigError
from core.audit_log import Actor, AuditAction, AuditEntry
from core.changes import PutTenant
from core.cost import Spent
from core.errors import Conflict, NotFound, StoreDown
from core.job import group_of
from core.names import Names
from core.tenants import Tenant
from scheduler.operations.dead_letters import replay_dead_letter
from scheduler.operations.stop import StopRequest, stop_group
from scheduler.replica import Replica
from sim.memory.reads import MemoryReads
from sim.memory.store import MemoryStore
from sim.virtual.clients import PretendClients
from sim.virtual.trace import Trace

EVERY_S = 20.0
TRIES = 5
"""How often an act is tried at replicas that do not answer."""
AUTHOR = "the desk"
ORIGINAL = 1
"""The version of the configuration that a run begins with."""
ACTS: Mapping[str, int] = {
    "quota_edited": 3,
    "budget_edited": 3,
    "group_stopped": 2,
    "letter_replayed": 3,
    "config_rolled_back": 1,
    "metrics_scraped": 2,
}
"""What they do, and how often beside the rest."""
SETTLE_S = 60.0
BUDGETS = (0.0, 0.8, 1.1, 1.2)
"""A new budget beside what is spent already: none, two that hold, two that warn at most."""


@dataclass(frozen=True, slots=True)
class Office:
    """What they know and whom they ask."""

    clients: PretendClients
    store: MemoryStore
    names: Names
    tenants: Sequence[Tenant]
    """As they were set up, and shall be in the end."""
    dice: random.Random
    trace: Trace
    over: Callable[[], bool]


class Desk:
    """One thing after the other, until it is over; then all is as it was in the beginning."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._dice = office.dice
        self._acts: dict[str, Callable[[Replica], Awaitable[bool]]] = {
            "quota_edited": self._edit_quota,
            "budget_edited": self._edit_budget,
            "group_stopped": self._stop_group,
            "letter_replayed": self._replay,
            "config_rolled_back": self._roll_back,
            "metrics_scraped": self._scrape,
        }
        assert self._acts.keys() == ACTS.keys()

    def begin(self) -> None:
        self._office.clients.employ(self._work())

    async def _work(self) -> None:
        while not self._office.over():
            await asyncio.sleep(self._dice.expovariate(1 / EVERY_S))
            name = self._dice.choices(list(ACTS), list(ACTS.values()))[0]
            await self._do(name)
        # What was asked of a replica that stood still is done when it thaws: after that, all is
        # set back.
        await asyncio.sleep(SETTLE_S)
        for tenant in self._office.tenants:
            await self._office.clients.insist(lambda replica, t=tenant: self._put(replica, t))  # type: ignore[misc]
        if self._has_rolled_back():
            await self._office.clients.insist(lambda replica: self._go_back_to(replica, ORIGINAL))

    async def _do(self, name: str) -> None:
        async def ask(replica: Replica) -> bool:
            if await self._acts[name](replica):
                self._office.trace.fault(name)
            return True

        await self._office.clients.insist(ask, tries=TRIES)

    # --- tenants ---------------------------------------------------------------------------

    async def _edit_quota(self, replica: Replica) -> bool:
        """Enough for the largest job of each in most cases, never for two of the largest."""
        tenant, dice = self._dice.choice(self._office.tenants), self._dice
        quotas = (
            replace(tenant.quota, jobs=dice.randint(1, 8)),
            replace(tenant.quota, gpus=dice.randint(4, 12)),
            replace(tenant.quota, gpus_by_type={"l4": dice.randint(1, 8)}),
            replace(tenant.quota, gpu_memory_gb=dice.uniform(200, 500)),
            replace(tenant.quota, cpus=dice.uniform(20, 100)),
            replace(tenant.quota, memory_gb=dice.uniform(100, 800)),
        )
        return await self._put(replica, replace(tenant, quota=dice.choice(quotas)))

    async def _edit_budget(self, replica: Replica) -> bool:
        """Around what is spent by now: it holds new work, warns, or does neither."""
        tenant, dice = self._dice.choice(self._office.tenants), self._dice
        part, daily = dice.choice(BUDGETS), dice.random() < 0.7
        spent = (await replica.store.spent()).get(tenant.tenant_id, Spent())
        limit = round(spent.month_usd * part, 2) or None
        quota = replace(
            tenant.quota,
            usd_per_day=limit if daily else None,
            usd_per_month=None if daily else limit,
        )
        return await self._put(replica, replace(tenant, quota=quota))

    async def _put(self, replica: Replica, tenant: Tenant) -> bool:
        rows = {row.tenant.tenant_id: row.tenant for row in await replica.store.tenants()}
        known = rows.get(tenant.tenant_id)
        version = known.version + 1 if known is not None else 1
        done = await replica.store.commit([(PutTenant(replace(tenant, version=version)),)], None)
        return done.all_applied

    # --- jobs and messages -----------------------------------------------------------------

    async def _stop_group(self, replica: Replica) -> bool:
        live = self._office.store.tables.live.values()
        groups = sorted({group for job in live if (group := group_of(job.spec)) is not None})
        if not groups:
            return False
        why, rules = "cancelled as a whole", replica.settings.rules
        request = StopRequest(why, rules, self._office.names, replica.clock.now())
        try:
            group = self._dice.choice(groups)
            stopped = await stop_group(replica.store, group, request, lambda _: None)
        except (Conflict, NotFound):
            return False
        return bool(stopped.cancelled + stopped.stopping)

    async def _replay(self, replica: Replica) -> bool:
        """Twice, as people click: it is sent once."""
        dead_letters = sorted(self._office.store.tables.dead_letters)
        if not dead_letters:
            return False
        message_id, reads = self._dice.choice(dead_letters), self._reads(replica)
        names = self._office.names
        target = f"dead_letter/{message_id}"
        audited = AuditEntry(
            replica.clock.now(), Actor(AUTHOR), AuditAction.DEAD_LETTER_REPLAY, target
        )
        try:
            done = await replay_dead_letter(reads, replica.store, message_id, names, audited)
            again = await replay_dead_letter(reads, replica.store, message_id, names, audited)
        except NotFound:
            return False  # retention took it
        assert not again.sent, f"{message_id} was sent twice"
        return done.sent

    # --- the service -----------------------------------------------------------------------

    async def _roll_back(self, replica: Replica) -> bool:
        known = len(self._office.store.tables.configs)
        return known > 1 and await self._go_back_to(replica, self._dice.randint(1, known))

    def _has_rolled_back(self) -> bool:
        """Whether that is what is in force: only then is it ours to undo, else it is the file's."""
        configs = self._office.store.tables.configs
        return bool(configs) and configs[-1].author == AUTHOR

    async def _go_back_to(self, replica: Replica, version: int) -> bool:
        """True: it says the same as that version by now."""
        assert replica.config is not None, "runs with faults have a file"
        try:
            await replica.config.rollback(version, AUTHOR, Actor(AUTHOR))
        except ConfigError:
            return False  # it would take a cluster away that has jobs
        return True

    async def _scrape(self, replica: Replica) -> bool:
        try:
            replica.metrics.refresh(await self._reads(replica).summary())
        except StoreDown:
            replica.metrics.refresh(None)
        return bool(replica.metrics.text())

    def _reads(self, replica: Replica) -> MemoryReads:
        assert isinstance(replica.store, MemoryStore), "simulated replicas have no other"
        return MemoryReads(replica.store)
