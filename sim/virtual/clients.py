"""People and pipelines: they submit, repeat themselves, change their minds, and sometimes send
nonsense. They try again when the service does not answer, as a good client does."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from core.errors import BadInput, Conflict, NotFound, StoreDown
from core.messages import OutMessage
from core.names import Names
from core.tenants import DEFAULT_TENANT
from messaging.submissions import KEY
from scheduler.operations.stop import StopRequest, stop_job
from scheduler.replica import Replica
from sim.virtual.bus import PretendBroker, PublishedMessage
from sim.virtual.checkers import Checkers
from sim.virtual.keys import key_of
from sim.virtual.loop import VirtualLoop
from sim.virtual.replicas import Host
from sim.virtual.trace import Trace
from sim.virtual.workload import Order, accepted_ids, job_id_of

T = TypeVar("T")
ANSWER_S = 5.0
AGAIN_S = 3.0
AGAIN_MAX_S = 24.0
"""A client that is not answered waits twice as long each time, up to this."""
STOPPED_TWICE = 0.3
"""How many owners do not believe the first answer to a stop."""
_POISON = (
    b"{not json",
    b'{"status":"DANCING","vm_name":"x"}',
    b"\xff\xfe\x00",
    b"[]",
    b'{"status":"RUNNING"}',
)


class PretendClients:
    """All of them. `busy` counts those who still wait for an answer."""

    def __init__(
        self,
        loop: VirtualLoop,
        hosts: Sequence[Host],
        broker: PretendBroker,
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
                if self._dice.random() < STOPPED_TWICE:
                    self._later(order.stop_at + self._dice.uniform(1, 60), self._stop, order)

    def stop(self, order: Order) -> None:
        """Its owner changes his mind now."""
        self._later(0.0, self._stop, order)

    def stop_job(self, job_id: str) -> None:
        """Somebody stops this job now; it may be another user's."""
        self.stop(Order(self._loop.time(), {"job_id": job_id}, False, 1, None))

    def poison(self, vm_name: str = "") -> None:
        """Nonsense for the service, or for the worker of that VM."""
        body = self._dice.choice(_POISON)
        topic = self._dice.choice((self._names.heartbeat_topic, self._names.submit_topic))
        attributes = {"kind": "heartbeat"}
        if vm_name:
            topic, attributes = self._names.control_topic, {"kind": "start", "vm_name": vm_name}
        if self._broker.down:
            return
        self._trace.fault("poison_message", topic)
        self._broker.take([OutMessage(topic, body, attributes)])

    def employ(self, work: Coroutine[Any, Any, None]) -> None:
        """Somebody with work of his own: the run is not over before he has done it."""
        self.busy += 1
        self._loop.later(0.0, lambda: self._loop.create_task(self._counted(work)))

    def _later(
        self, delay_s: float, work: Callable[[Order], Coroutine[Any, Any, None]], order: Order
    ) -> None:
        self.busy += 1
        self._loop.later(delay_s, lambda: self._loop.create_task(self._counted(work(order))))

    async def _counted(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self.busy -= 1

    # --- submitting ------------------------------------------------------------------------

    async def _submit(self, order: Order) -> None:
        if order.by_bus:
            await self._by_bus(order)
            return

        async def ask(replica: Replica) -> bool:
            answer = await replica.submissions.submit(dict(order.body), idempotency_key=order.key)
            for job_id in accepted_ids(answer.job_id, order.body):
                self._checkers.accepted(answer.user_id, job_id)
            if order.job_id.startswith("nonsense"):
                self._checkers.broken("door", f"accepted: {order.body}", order.job_id)
            return True

        await self.insist(ask)

    async def _by_bus(self, order: Order) -> None:
        body = json.dumps(order.body).encode()
        tenant_id = str(order.body.get("tenant_id", DEFAULT_TENANT))
        proof = {KEY: key_of(tenant_id)} if tenant_id != DEFAULT_TENANT else {}
        message = OutMessage(self._names.submit_topic, body, {**order.attributes, **proof})
        while self._broker.down:  # noqa: ASYNC110  # a client polls
            await asyncio.sleep(AGAIN_S)
        self._broker.take([message])

    def _acked(self, subscription: str, stored: PublishedMessage) -> None:
        """An acknowledged submission is stored, or its refusal is."""
        if subscription != self._names.submit_subscription:
            return
        body = stored.message.body
        if stored.message_id in self._checkers.dead_letters():
            return
        self._checkers.accepted("0", job_id_of(json.loads(body)))

    # --- stopping --------------------------------------------------------------------------

    async def _stop(self, order: Order) -> None:
        self._trace.note("client", f"stop {order.job_id}", order.job_id)

        async def ask(replica: Replica) -> bool:
            try:
                why, rules = "stopped by its owner", replica.settings.rules
                request = StopRequest(why, rules, self._names, replica.clock.now())
                job = await replica.store.find_job(order.job_id, "0")
                await stop_job(replica.store, job.key, request)
            except (NotFound, Conflict):
                return False
            return True

        await self.insist(ask, tries=20)

    async def insist(self, ask: Callable[[Replica], Awaitable[bool]], tries: int = 10_000) -> None:
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
