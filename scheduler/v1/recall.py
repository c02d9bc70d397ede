"""Takes back messages for v1 workers that are not meant any more.

v1 workers pull from subscriptions that they share, so what nobody wants any more does harm there: a
start makes a VM take a job that is over or another's, a stop ends the next job with that id, and
both stand in the way of others. The leader looks through a subscription when one of its messages
has lost its meaning, acknowledges those, and gives the rest back at once.

A start message whose VM is no more is sent again only after such a look. If it was found, nobody
has it. If not, a VM has: the one that is no more, or one that was up and has not spoken yet; those
are remembered, and awaited (scheduler/v1/offers.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence

import structlog

from core.changes import Snapshot
from core.errors import BusDown, StoreDown, ZenError
from core.job import Job, S
from core.messages import InMessage
from core.names import Names
from core.ports import Bus, Store
from core.vm import Vm
from messaging.codec import BadMessage, decode_v1_order
from scheduler.plan_builder import PlanBuilder
from scheduler.v1.offers import is_lost, may_have_taken

log = structlog.get_logger("recall")
LOOK_MAX = 1000
LOOK_S = 1.0
"""If nothing has come by then, nothing is there."""
PASSES_MAX = 20
RETRY_S = 1.0
LOOK_AGAIN_S = 75.0
"""A VM may die between taking a message and acknowledging it: then it is there again after the ack
deadline (60 s)."""
_STOPS = frozenset({S.STOPPING, S.PREEMPTING})


class Recall:
    """Woken by the loop, in a task of its own."""

    def __init__(self, store: Store, bus: Bus, names: Names) -> None:
        self._store, self._bus, self._names = store, bus, names
        self.recalled: dict[str, frozenset[str]] = {}
        """Lease of a start message that is not out any more → VMs that may have taken it."""
        self._out: dict[str, str] | None = None
        """Lease of each start message that is out → its cluster. None: we do not know yet."""
        self._dirty: dict[str, None] = {}
        self._wake = asyncio.Event()

    def look(self, plan: PlanBuilder, v1: Collection[str]) -> None:
        """After a cycle: which subscriptions hold something that is not meant any more?"""
        names = self._names
        if not v1:
            return
        jobs = [job for job in plan.waiting() if job.offer is not None]
        out = {job.offer.lease_id: job.cluster for job in jobs if job.offer is not None}
        if self._out is None:  # a former leader may have left anything
            self._mark(names.stop_subscription, *map(names.start_subscription, sorted(v1)))
        # Also of claimed ones: what the bus was given twice, a second VM would take.
        over = {cluster for lease, cluster in (self._out or {}).items() if lease not in out}
        over |= {job.cluster for job in jobs if self._is_to_be_recalled(job, plan.vms)}
        self._mark(*(names.start_subscription(cluster) for cluster in sorted(over)))
        moves = [move for move in plan.moves if move[1].cluster in v1]
        if any(_leaves_a_stop(before, after) for before, after in moves):
            self._mark(names.stop_subscription)
        self.recalled = {lease: vms for lease, vms in self.recalled.items() if lease in out}
        self._out = out

    def _is_to_be_recalled(self, job: Job, vms: Mapping[str, Vm]) -> bool:
        out = job.offer
        return out is not None and out.lease_id not in self.recalled and is_lost(vms, out)

    def _mark(self, *subscriptions: str) -> None:
        if subscriptions:
            self._dirty.update(dict.fromkeys(subscriptions))
            self._wake.set()

    async def run(self) -> None:
        """For ever, while we lead."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            names, self._dirty = self._dirty, {}
            for name in names:
                await self._clean(name)

    async def _clean(self, subscription: str) -> None:
        try:
            for _ in range(PASSES_MAX):
                if not await self._look_through(subscription):
                    return
        except (BusDown, StoreDown) as error:
            log.info("not looked through, again later", subscription=subscription, why=str(error))
            await asyncio.sleep(RETRY_S)
            self._mark(subscription)
        except ZenError as error:
            # Jobs must go on: a VM that could have taken the message is awaited all the same.
            log.warning("cannot be looked through", subscription=subscription, why=str(error))
            self._remember(subscription, frozenset(), await self._store.snapshot(0))

    async def _look_through(self, subscription: str) -> int:
        """How many were taken back. What is meant is out of the workers' reach for no longer than
        one look into the database takes."""
        inbound = self._bus.subscribe(subscription, max_messages=LOOK_MAX)
        try:
            batch = await _first(inbound.batches())
            # After the messages: whatever made one of them was committed before it was sent.
            snapshot = await self._store.snapshot(0)
            stale = _stale(batch, snapshot)
            await inbound.ack([message.ack_id for message in stale.values()])
        finally:
            await inbound.close()
        self._remember(subscription, frozenset(stale), snapshot)
        if stale:
            log.info("taken back", subscription=subscription, messages=len(stale))
        return len(stale)

    def _remember(self, subscription: str, found: frozenset[str], snapshot: Snapshot) -> None:
        """Which of the lost start messages of this subscription are not out any more."""
        vms = {vm.uid: vm for vm in snapshot.vms}
        for job in snapshot.jobs:
            out = job.offer
            ours = out is not None and self._names.start_subscription(job.cluster) == subscription
            if not ours or not self._is_to_be_recalled(job, vms):
                continue
            assert out is not None, "chosen so"
            mates = (vm for vm in snapshot.vms if vm.cluster == job.cluster and may_have_taken(vm))
            taken = out.lease_id not in found
            self.recalled[out.lease_id] = frozenset(vm.uid for vm in mates if taken)
            if taken:
                loop = asyncio.get_running_loop()
                loop.call_later(LOOK_AGAIN_S, self._mark, subscription)


async def _first(batches: AsyncIterator[Sequence[InMessage]]) -> Sequence[InMessage]:
    """What is there; nothing if none comes for a while."""
    try:
        async with asyncio.timeout(LOOK_S):
            return await anext(batches, ())
    except TimeoutError:
        return ()


def _leaves_a_stop(before: Job, after: Job) -> bool:
    """Its stop may still be there, or a stop of another that had its id before it."""
    return (before.status in _STOPS) != (after.status in _STOPS) or before.lease is not after.lease


def _stale(messages: Sequence[InMessage], snapshot: Snapshot) -> dict[str, InMessage]:
    """The messages that are not meant any more, by their lease; stops have none."""
    vms = {vm.uid: vm for vm in snapshot.vms}
    outs = [job.offer for job in snapshot.jobs if job.offer is not None]
    offers = {out.lease_id for out in outs if not is_lost(vms, out)}
    stops = {job.spec.job_id for job in snapshot.jobs if job.status in _STOPS}
    found: dict[str, InMessage] = {}
    for message in messages:
        try:
            order = decode_v1_order(message)
        except BadMessage as error:
            log.warning("not ours, left there", message=message.message_id, why=str(error))
            continue
        meant = order.job_id in stops if order.action == "stop" else order.lease_id in offers
        if not meant:
            found[order.lease_id or message.message_id] = message
    return found
