"""People and pipelines: they submit, repeat themselves, change their minds, and sometimes send
nonsense. They try again when the service does not answer, as a good client does."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from core.capacity import ClusterSpec
from core.errors import BadInput, Conflict, NotFound, StoreDown
from core.knowledge import CapacityPolicy
from core.messages import OutMessage
from core.names import Names
from core.tenants import Quota, Tenant
from scheduler.replica import Replica
from scheduler.stop import stop_job
from sim.virtual.bus import Broker, Stored
from sim.virtual.checkers import Checkers
from sim.virtual.hosts import Host
from sim.virtual.loop import EPOCH, VirtualLoop
from sim.virtual.trace import Trace

T = TypeVar("T")
ANSWER_S = 5.0
AGAIN_S = 3.0
AGAIN_MAX_S = 24.0
"""A client that is not answered waits twice as long each time, up to this."""
GANG_MAX = 3
CHAINED, CHAIN_S = 0.08, 60.0
"""How many of the jobs wait for another one, and how much earlier that one came."""
TENANTS = ("default", "few", "small")
_POISON = (
    b"{not json",
    b'{"status":"DANCING","vm_name":"x"}',
    b"\xff\xfe\x00",
    b"[]",
    b'{"status":"RUNNING"}',
)


@dataclass(frozen=True, slots=True)
class Order:
    """One job that somebody will submit."""

    at: float
    body: Mapping[str, object]
    by_bus: bool
    repeats: int
    stop_at: float | None

    @property
    def job_id(self) -> str:
        return str(self.body["job_id"])


def make_orders(
    seed: int, count: int, over_s: float, clusters: Sequence[ClusterSpec]
) -> list[Order]:
    """The work of a run, in the order of its arrival."""
    dice = random.Random(f"{seed}/orders")
    orders = []
    gangs = count // 12
    for number in range(count - gangs):
        # Half of the work comes in a few bursts: queues must form.
        burst = dice.randrange(3) / 3 * over_s + dice.uniform(0, 30)
        at = burst if dice.random() < 0.5 else dice.uniform(0, over_s)
        orders.append(_order(dice, number, at, clusters))
    orders = _chained(random.Random(f"{seed}/chains"), orders)
    orders += [_rival(dice, order) for order in orders if dice.random() < 0.03]
    orders += [_nonsense(dice, number, over_s) for number in range(count // 25)]
    orders += _gangs(random.Random(f"{seed}/gangs"), gangs, over_s, clusters)
    orders.sort(key=lambda order: (order.at, order.job_id))
    return orders


def _chained(dice: random.Random, orders: Sequence[Order]) -> list[Order]:
    """Some wait for the end of one that came long before, most of them for a good one."""
    chained = []
    for order in orders:
        earlier = [o for o in orders if o.at < order.at - CHAIN_S and not o.by_bus]
        if earlier and not order.by_bus and dice.random() < CHAINED:
            needs = dice.choice(earlier).job_id
            after = [f"{needs}:any" if dice.random() < 0.3 else needs]
            order = replace(order, body={**order.body, "after": after})  # noqa: PLW2901
        chained.append(order)
    return chained


def _rival(dice: random.Random, order: Order) -> Order:
    """Other content under the same id: one of the two is refused, whichever comes later."""
    body = {**order.body, "priority": 1}
    return replace(order, body=body, at=order.at + dice.uniform(0, 60), repeats=1, stop_at=None)


def _nonsense(dice: random.Random, number: int, over_s: float) -> Order:
    """A submission that no door may let in."""
    wrongs: tuple[dict[str, object], ...] = (
        {"cluster": "9xnone"},
        {"gpu_type": "none"},
        {"gpu_count": 9},
        {"regions": ["nowhere1"]},
        {"priority": "high", "colour": "blue"},
        {"command": []},
    )
    body = {"job_id": f"nonsense-{number}", "command": ["pretend"], **dice.choice(wrongs)}
    return Order(dice.uniform(0, over_s), body, dice.random() < 0.4, 1, None)


def _order(dice: random.Random, number: int, at: float, clusters: Sequence[ClusterSpec]) -> Order:
    cluster = dice.choices(clusters, [c.vm_max for c in clusters])[0]
    ways: tuple[dict[str, object], ...] = (
        {"cluster": cluster.name, "gpu_count": dice.randint(1, cluster.gpus)},
        {"gpu_type": cluster.gpu_type, "gpu_count": cluster.gpus},
        {"gpu_memory_mb": 1000},
    )
    body: dict[str, object] = {
        "job_id": f"job-{number}",
        "command": ["pretend", str(number)],
        "tenant_id": TENANTS[number % len(TENANTS)],
        **dice.choices(ways, (7, 3, 1))[0],
        "priority": dice.choice((100, 500, 500, 2000)),
        "retries": dice.choice((0, 0, 1, 2)),
        "stop_grace_s": dice.choice((2, 10, 30)),
    }
    if "gpu_type" in body and cluster.spot:
        # Time enough for spot now, and too little in a while: what is usual to run, and some.
        left_s = CapacityPolicy().typical_run_s + dice.uniform(60, 400)
        body |= {"spot": True, "deadline": (EPOCH + timedelta(seconds=at + left_s)).isoformat()}
    if dice.random() < 0.15:
        body["regions"] = [r.region for r in dice.sample(cluster.regions, 2)]
    if dice.random() < 0.08:
        body["max_runtime_minutes"] = dice.choice((0.2, 0.5, 1.0))
    if dice.random() < 0.08:
        body["queue_timeout_s"] = dice.choice((5, 20, 60, 120, 300))
    stop_at = at + dice.expovariate(1 / 150) if dice.random() < 0.2 else None
    repeats = 1 if dice.random() < 0.8 else dice.randint(2, 4)
    return Order(at, body, dice.random() < 0.4, repeats, stop_at)


def _gangs(
    dice: random.Random, count: int, over_s: float, clusters: Sequence[ClusterSpec]
) -> list[Order]:
    """Jobs on several VMs at once."""
    roomy = [cluster for cluster in clusters if cluster.vm_max >= GANG_MAX]
    orders = []
    for number in range(count if roomy else 0):
        cluster = dice.choice(roomy)
        body: dict[str, object] = {
            "job_id": f"gang-{number}",
            "command": ["pretend", str(number)],
            "cluster": cluster.name,
            "gpu_count": cluster.gpus,
            "replicas": _replicas(dice),
            "replace_members": dice.random() < 0.3,
            "retries": dice.choice((0, 0, 1)),
            "stop_grace_s": dice.choice((2, 10)),
        }
        at = dice.uniform(0, over_s)
        stop_at = at + dice.expovariate(1 / 200) if dice.random() < 0.2 else None
        orders.append(Order(at, body, dice.random() < 0.4, 1, stop_at))
    return orders


def _replicas(dice: random.Random) -> object:
    """Most of them may grow and shrink."""
    if dice.random() < 0.7:
        return {"min": dice.randint(1, GANG_MAX - 1), "max": GANG_MAX}
    return dice.randint(2, GANG_MAX)


def tenants_of(clusters: Sequence[ClusterSpec]) -> list[Tenant]:
    """One without limits, one that may run few jobs at once, one with few GPUs: their quotas bind
    whenever work comes in a burst."""
    largest = max(cluster.gpus for cluster in clusters)
    _, few, small = TENANTS
    return [
        Tenant(few, weight=2.0, quota=Quota(jobs=6)),
        Tenant(small, quota=Quota(gpus=largest + 1)),
    ]


class Clients:
    """All of them. `busy` counts those who still wait for an answer."""

    def __init__(
        self,
        loop: VirtualLoop,
        hosts: Sequence[Host],
        broker: Broker,
        names: Names,
        dice: random.Random,
        trace: Trace,
        checkers: Checkers,
    ) -> None:
        self.busy = 0
        self._loop, self._hosts, self._broker, self._names = loop, hosts, broker, names
        self._dice, self._trace, self._checkers = dice, trace, checkers
        broker.on_acked = self._acked

    def schedule(self, orders: Sequence[Order]) -> None:
        for order in orders:
            for again in range(order.repeats):
                delay_s = order.at + again * self._dice.uniform(0, 20)
                self._later(delay_s, self._submit, order)
            if order.stop_at is not None:
                self._later(order.stop_at, self._stop, order)

    def stop(self, order: Order) -> None:
        """Its owner changes his mind now."""
        self._later(0.0, self._stop, order)

    def stop_job(self, job_id: str) -> None:
        """Somebody stops this job now, whoever submitted it."""
        self.stop(Order(self._loop.time(), {"job_id": job_id}, False, 1, None))

    def poison(self) -> None:
        """Nonsense on both topics."""
        body = self._dice.choice(_POISON)
        topic = self._dice.choice((self._names.heartbeat_topic, self._names.submit_topic))
        if self._broker.down:
            return
        self._trace.fault("poison_message", topic)
        self._broker.take([OutMessage(topic, body, {"kind": "heartbeat"})])

    def _later(
        self, delay_s: float, work: Callable[[Order], Coroutine[Any, Any, None]], order: Order
    ) -> None:
        self.busy += 1
        self._loop.later(delay_s, lambda: self._loop.create_task(self._counted(work, order)))

    async def _counted(
        self, work: Callable[[Order], Coroutine[Any, Any, None]], order: Order
    ) -> None:
        try:
            await work(order)
        finally:
            self.busy -= 1

    # --- submitting ------------------------------------------------------------------------

    async def _submit(self, order: Order) -> None:
        if order.by_bus:
            await self._by_bus(order)
            return

        async def ask(replica: Replica) -> bool:
            answer = await replica.submissions.submit(dict(order.body), idempotency_key=None)
            self._checkers.accepted(answer.user_id, answer.job_id)
            if order.job_id.startswith("nonsense"):
                self._checkers.broken("door", f"accepted: {order.body}", order.job_id)
            return True

        await self._insist(ask)

    async def _by_bus(self, order: Order) -> None:
        message = OutMessage(self._names.submit_topic, json.dumps(order.body).encode())
        while self._broker.down:  # noqa: ASYNC110  # a client polls
            await asyncio.sleep(AGAIN_S)
        self._broker.take([message])

    def _acked(self, subscription: str, stored: Stored) -> None:
        """An acknowledged submission is stored, or its refusal is."""
        if subscription != self._names.submit_subscription:
            return
        body = stored.message.body
        if stored.message_id in self._checkers.dead_letters():
            return
        self._checkers.accepted("0", str(json.loads(body)["job_id"]))

    # --- stopping --------------------------------------------------------------------------

    async def _stop(self, order: Order) -> None:
        self._trace.note("client", f"stop {order.job_id}", order.job_id)

        async def ask(replica: Replica) -> bool:
            try:
                await stop_job(
                    replica.store,
                    order.job_id,
                    "0",
                    "stopped by its owner",
                    replica.settings.rules,
                    self._names,
                    replica.clock.now(),
                )
            except (NotFound, Conflict):
                return False
            return True

        await self._insist(ask, tries=20)

    async def _insist(self, ask: Callable[[Replica], Awaitable[bool]], tries: int = 10_000) -> None:
        """Ask any replica that is up, until one answers."""
        for times in range(tries):
            up = [host for host in self._hosts if host.up and host.replica is not None]
            host = self._dice.choice(up) if up else None
            if host is not None and host.process is not None and host.replica is not None:
                task = host.process.spawn(_outcome(ask(host.replica)))
                done, _ = await asyncio.wait([task], timeout=ANSWER_S)
                if done and task.result():
                    return
            await asyncio.sleep(min(AGAIN_S * 2 ** min(times, 10), AGAIN_MAX_S))


async def _outcome(asking: Awaitable[bool]) -> bool:
    """Runs inside the replica, dies with it. True: answered."""
    try:
        return await asking
    except StoreDown:
        return False
    except BadInput as error:
        # A cluster that is being drained takes no jobs: its client comes again.
        return "being drained" not in str(error)
    except Conflict:
        return True
