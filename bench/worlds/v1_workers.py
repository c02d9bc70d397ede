"""A world of v1 workers in virtual time, with their real waits: VMs crash, workers freeze, leaders
die, messages come late or not at all. The guarantees are those of every run (checkers.py)."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from typing import Any

from config.settings import Settings
from core.cluster import ClusterSpec
from core.errors import BusDown
from core.job_fields import WorkerSpec
from core.messages import OutMessage, StartJob
from core.names import parse_cluster
from sim.cloud.faults import Crash
from sim.cloud.model import ApiError, VmInfo
from sim.virtual.bus import BusOdds, MemoryBus
from sim.virtual.loop import Process
from sim.virtual.pretend_vms import PretendVms, Site
from sim.virtual.run import REST_BOUND_S, SeedResult, SimulationPlan, SimulationRun
from sim.virtual.setting import clusters, settings
from sim.virtual.workload import Order

BOOT_WAIT_S = 30.0
FOUND_WAIT_S = 30.0
HEARTBEAT_S = 10.0
EMPTY_PULLS = 0.02
"""A pull may find nothing although something is there."""
V1_CLUSTERS = ("1xv100", "2xa100-40gb", "1xa100-80gb")
KEEP_ALIVE_S = 120.0
PAUSE_S = (5.0, 40.0)
"""Between two misfortunes."""
DOWN_S = (3.0, 20.0)
"""How long a killed scheduler is away."""


class V1Worker:
    """The script on one VM. It asks nobody, and stops for nobody but a stop message."""

    def __init__(self, site: Site, info: VmInfo) -> None:
        self.info = info
        self.process: Process = site.loop.process(f"{info.name}/{info.id}/v1")
        self._site = site
        self._cluster, self._region = site.names.parse_vm(info.name)
        self._bus = MemoryBus(site.broker, self.process, site.dice, site.trace)
        self._computes: StartJob | None = None
        self.process.spawn(self._live())

    def notice(self) -> None:
        """It does not look."""

    def shut_down(self) -> None:
        """Nor does it listen."""

    def freeze(self) -> None:
        """It hangs for ever; whatever it computed hangs with it."""
        self.process.freeze()
        if self._computes is not None:
            self._site.log.pauses(self._computes.lease_id)

    def kill(self) -> None:
        """The power is cut."""
        self.process.kill()
        if self._computes is not None:
            self._site.log.ends(self._computes.lease_id, None)
            self._computes = None

    async def _live(self) -> None:
        await asyncio.sleep(BOOT_WAIT_S + self._site.dice.uniform(0, 3))
        start = self._take()
        if start is None:
            self._leave()
            return
        await self._say(start, "FOUND_VM")
        await asyncio.sleep(FOUND_WAIT_S)
        ended = await self._work(start)
        await self._say(start, ended)
        if not start["keep_alive"]:
            self._leave()

    def _take(self) -> dict[str, Any] | None:
        """One message, with auto-ack."""
        site = self._site
        ready = site.broker.subscription(site.names.start_subscription(self._cluster)).ready
        if not ready or not site.broker.reachable(self.process):
            return None
        if site.dice.random() < EMPTY_PULLS:
            site.trace.count_fault("v1_empty_pull")
            return None
        body: dict[str, Any] = json.loads(ready.popleft().message.body)
        return body

    async def _say(self, start: dict[str, Any], status: str) -> None:
        who = {"job_id": start["job_id"], "user_id": start["user_id"], "vm_name": self.info.name}
        body = json.dumps({**who, "status": status}).encode()
        message = OutMessage(self._site.names.heartbeat_topic, body)
        try:
            await self._bus.publish([message], HEARTBEAT_S / 2)
        except BusDown:
            self._site.trace.count_fault("v1_beat_lost")

    async def _work(self, start: dict[str, Any]) -> str:
        site, order = self._site, self._order(start)
        nature = site.nature(order.spec.job_id, order.attempt)
        site.log.begins(order, f"{self.info.name}/{self.info.id}")
        self._computes = order
        left_s, code = nature.compute_s, nature.exit_code
        while left_s > 0:
            await self._say(start, "RUNNING")
            if self._is_stopped(order.spec.job_id):
                code = 143
                break
            await asyncio.sleep(min(HEARTBEAT_S, left_s))
            left_s -= HEARTBEAT_S
        self._computes = None
        site.log.ends(order.lease_id, code)
        return {0: "COMPLETED", 143: "STOPPED"}.get(code, "FAILED")

    def _order(self, start: dict[str, Any]) -> StartJob:
        spec = WorkerSpec(start["job_id"], start["user_id"], gpu_count=start["num_gpus"])
        gpus = tuple(range(self.info.gpus))
        # The bus may have been given the message twice: each VM that takes it is a run of its own.
        lease_id = f"{start['lease_id']}@{self.info.id}"
        place = (self._cluster, self._region, start["attempt"], lease_id)
        return StartJob(self.info.name, "", spec, *place, gpus)

    def _is_stopped(self, job_id: str) -> bool:
        """Takes the stop for its job, leaves the others."""
        site = self._site
        ready = site.broker.subscription(site.names.stop_subscription).ready
        mine = [stored for stored in ready if json.loads(stored.message.body)["job_id"] == job_id]
        for stored in mine:
            ready.remove(stored)
        return bool(mine)

    def _leave(self) -> None:
        """Half of them tell their group, as they should."""
        site, info = self._site, self.info
        cloud, now = site.cloud.cloud, site.loop.time()
        try:
            if site.dice.random() < 0.5:
                cloud.delete_instance(info.zone, info.name, None, now)
            else:
                url = f"zones/{info.zone}/instances/{info.name}"
                cloud.delete_instances(self._region, info.mig, [url], False, None, now)
        except ApiError:
            site.trace.count_fault("v1_deleted_already")
        site.cloud.settle()


class V1Run(SimulationRun):
    """Three clusters with v1 workers."""

    def _settings(self) -> Settings:
        usual = settings()
        timers = replace(usual.timers, keep_alive_s=KEEP_ALIVE_S)
        return replace(usual, clusters=v1_clusters(), timers=timers)

    def _paper(self) -> None:
        """Nobody edits the configuration."""

    def _fleet(self) -> PretendVms:
        return PretendVms(self._site(), V1Worker)

    def _make_infrastructure(self) -> None:
        super()._make_infrastructure()
        names, broker = self.settings.names, self.broker
        broker.add_topic(names.start_topic)
        broker.add_topic(names.stop_topic)
        broker.add_subscription(names.stop_subscription, names.stop_topic, ordered=False)
        for cluster in self.settings.clusters:
            where = {"cluster": cluster.name}
            subscription = names.start_subscription(cluster.name)
            broker.add_subscription(subscription, names.start_topic, where, ordered=False)

    async def _acts(self) -> None:
        self._make_infrastructure()
        for host in self.hosts:
            host.start()
        self.cloud.settle()
        self._look_after_orphans()
        self.clients.schedule(v1_orders(self.plan.seed, self.plan.jobs, self.plan.fault_s * 0.8))
        dice, ends_at = self._dice("chaos"), self.loop.time() + self.plan.fault_s
        self.broker.odds = BusOdds(reorder=0.1, delay=0.02, lost_ack=0.02, lost_confirmation=0.02)
        while self.plan.faults and self.loop.time() < ends_at:
            await asyncio.sleep(dice.uniform(*PAUSE_S))
            self._harm(dice)
        self.broker.heal()
        self._healed_at = self.loop.time()
        for host in self.hosts:
            host.start()
        await self._until_done()
        await asyncio.sleep(REST_BOUND_S)
        self.checkers.committed()
        self.checkers.at_the_end(self.cloud.cloud, dict.fromkeys(V1_CLUSTERS, 0))

    def _harm(self, dice: random.Random) -> None:
        workers = [worker for worker in self.fleet.workers() if isinstance(worker, V1Worker)]
        act = dice.choice(("crash", "crash", "freeze", "leader"))
        if act == "leader":
            for host in self.hosts:
                if host.leads:
                    self.trace.count_fault("leader_killed")
                    host.kill()
                    self.loop.later(dice.uniform(*DOWN_S), host.start)
        elif workers:
            worker = dice.choice(workers)
            self.trace.count_fault(f"v1_{act}")
            if act == "freeze":
                worker.freeze()
            else:
                self.cloud.cloud.set_fault(Crash(worker.info.name), self.loop.time())
                self.cloud.settle()


def v1_clusters() -> tuple[ClusterSpec, ...]:
    known = {cluster.name: cluster for cluster in clusters()}
    return tuple(
        replace(known[name], worker="v1", vm_min=0, share=False, spot=False) for name in V1_CLUSTERS
    )


def v1_orders(seed: int, count: int, over_s: float) -> list[Order]:
    """Of two users, who use the same ids."""
    dice = random.Random(f"{seed}/v1 orders")
    orders = []
    for number in range(count):
        cluster = dice.choice(V1_CLUSTERS)
        twin = dice.random() < 0.2
        body: dict[str, object] = {
            "job_id": f"job-{number // 2 if twin else number}",
            "user_id": "bob" if twin else "0",
            "workflow": "train",
            "command": ["train"],
            "cluster": cluster,
            "gpu_count": parse_cluster(cluster)[0],
            "priority": dice.choice((100, 500, 900)),
            "retries": dice.choice((0, 1)),
            "keep_alive": dice.random() < 0.1,
        }
        at = dice.uniform(0, over_s)
        stop_at = at + dice.expovariate(1 / 200) if dice.random() < 0.2 and not twin else None
        orders.append(Order(at, body, dice.random() < 0.3 and not twin, 1, stop_at))
    return orders


def simulate_v1(plan: SimulationPlan) -> SeedResult:
    """One run of one seed."""
    return V1Run(plan).run()
