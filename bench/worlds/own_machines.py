"""A world of machines that are there anyway, in virtual time: no cloud, a node service on each. Its
sockets go away, hang and talk nonsense, workers crash, leaders die."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.node import AgentProcess, Node
from bench.worlds.sockets import SocketLoop
from config.settings import Settings
from core.cluster import ClusterSpec, RegionSpec
from sim.cloud.model import EffectKind, VmInfo
from sim.virtual.bus import BusOdds
from sim.virtual.loop import VirtualLoop
from sim.virtual.pretend_vms import AgentBoot, PretendVms
from sim.virtual.run import REST_BOUND_S, SeedResult, SimulationPlan, SimulationRun
from sim.virtual.setting import clusters, settings
from sim.virtual.workload import Order

CLUSTER, MACHINES = "2xa100-40gb", ("east", "west", "north")
PAUSE_S = (5.0, 30.0)
"""Between two misfortunes."""
AWAY_S = (5.0, 60.0)
HANGS_S = 30.0
"""Longer than anybody waits for an answer."""


@dataclass(slots=True)
class Begun(AgentProcess):
    """A worker that is no process but a boot in virtual time."""

    fleet: PretendVms = field(kw_only=True)
    info: VmInfo = field(kw_only=True)
    power_off: Callable[[VmInfo], None] = field(kw_only=True)

    @property
    def alive(self) -> bool:
        here = (worker for worker in self.fleet.workers() if worker.info.id == self.info.id)
        return any(not (isinstance(worker, AgentBoot) and worker.ended) for worker in here)

    async def end(self) -> None:
        self.power_off(self.info)


class VirtualNode(Node):
    """The node service as it is, but for the process that it would start."""

    def __init__(self, run: OwnRun, number: int) -> None:
        super().__init__({}, Path("/nowhere"))
        self.region = MACHINES[number]
        self.mood = ""
        """How it answers: as it should, `hangs`, or `nonsense`."""
        self._run, self._number, self._boots = run, number, 0

    async def hear(self, line: bytes) -> bytes | None:
        """As `agent.node` does for each line of a connection."""
        if self.mood == "hangs":
            await asyncio.sleep(HANGS_S)
            return None
        answer = await self.answer(json.loads(line))
        return b"?\n" if self.mood == "nonsense" else json.dumps(answer).encode() + b"\n"

    async def _begin(self, name: str) -> AgentProcess:
        self._boots += 1
        instance = self._number * 10_000 + self._boots
        machines, spec = self._run.cloud.machines, self._run.settings.cluster(CLUSTER)
        where = (f"{self.region}-a", self.region, "")
        info = VmInfo(instance, name, *where, spec.machine_type, spec.gpus, False, (), ())
        machines[EffectKind.POWER_ON](info)
        run = {"fleet": self._run.fleet, "info": info, "power_off": machines[EffectKind.POWER_OFF]}
        return Begun(name, str(instance), None, -1, **run)  # type: ignore[arg-type]


class OwnRun(SimulationRun):
    """Three machines of one cluster."""

    def __init__(self, plan: SimulationPlan) -> None:
        self.sockets = SocketLoop()
        super().__init__(plan)
        self.machines = [VirtualNode(self, number) for number in range(len(MACHINES))]
        for machine in self.machines:
            self._plug(machine)

    def _make_loop(self) -> VirtualLoop:
        return self.sockets

    def _plug(self, machine: VirtualNode) -> None:
        self.sockets.listening[_socket(machine.region)] = machine.hear

    def _settings(self) -> Settings:
        return replace(settings(), clusters=(own_cluster(),))

    def _paper(self) -> None:
        """Nobody edits the configuration."""

    def _in_the_cloud(self, cluster: str) -> int:
        """Workers on the machines, also workers that have ended and are still listed."""
        del cluster
        return sum(len(machine.workers) for machine in self.machines)

    async def _acts(self) -> None:
        self._make_infrastructure()
        for host in self.hosts:
            host.start()
        self._look_after_orphans()
        self.clients.schedule(own_orders(self.plan.seed, self.plan.jobs, self.plan.fault_s * 0.8))
        dice, ends_at = self._dice("chaos"), self.loop.time() + self.plan.fault_s
        self.broker.odds = BusOdds(duplicate=0.1, reorder=0.1, delay=0.02)
        while self.plan.faults and self.loop.time() < ends_at:
            await asyncio.sleep(dice.uniform(*PAUSE_S))
            self._harm(dice)
        self._heal()
        await self._until_done()
        await asyncio.sleep(REST_BOUND_S)
        self.checkers.committed()
        self.checkers.at_the_end(self.cloud.cloud, {CLUSTER: len(MACHINES)})

    def _heal(self) -> None:
        self.broker.heal()
        self._healed_at = self.loop.time()
        for machine in self.machines:
            self._back(machine)
        for host in self.hosts:
            host.start()

    def _back(self, machine: VirtualNode) -> None:
        machine.mood = ""
        self._plug(machine)

    def _harm(self, dice: random.Random) -> None:
        acts = ("crash", "restart", "away", "hangs", "nonsense", "leader")
        act, machine, workers = dice.choice(acts), dice.choice(self.machines), self.fleet.workers()
        self.trace.count_fault(f"own_{act}")
        match act:
            case "leader":
                for host in (host for host in self.hosts if host.leads):
                    host.kill()
                    self.loop.later(dice.uniform(*AWAY_S), host.start)
            case "away":
                self.sockets.listening.pop(_socket(machine.region), None)
                self.loop.later(dice.uniform(*AWAY_S), self._back, machine)
            case "crash" if workers:
                self.cloud.machines[EffectKind.POWER_OFF](dice.choice(workers).info)
            case "restart" if workers:
                self.fleet.restart_agent(dice.choice(workers))
            case "hangs" | "nonsense":
                machine.mood = act
                self.loop.later(dice.uniform(*AWAY_S), self._back, machine)


def own_cluster() -> ClusterSpec:
    """As `zen node` would write it for three machines."""
    known = {cluster.name: cluster for cluster in clusters()}[CLUSTER]
    regions = tuple(
        RegionSpec(name, (f"{name}-a",), 0.0, 0.0, 1, f"unix:{_socket(name)}") for name in MACHINES
    )
    most = len(MACHINES)
    return replace(known, pool="static", regions=regions, vm_max=most, vm_min=most)


def own_orders(seed: int, count: int, over_s: float) -> list[Order]:
    """Of one owner, who changes his mind now and then."""
    dice = random.Random(f"{seed}/own orders")
    orders = []
    for number in range(count):
        body = {
            "job_id": f"job-{number}",
            "command": ["pretend"],
            "cluster": CLUSTER,
            "gpu_count": 2,
            "retries": dice.choice((0, 1)),
        }
        at = dice.uniform(0, over_s)
        stop_at = at + dice.expovariate(1 / 100) if dice.random() < 0.2 else None
        orders.append(Order(at, body, dice.random() < 0.3, 1, stop_at))
    return orders


def _socket(machine: str) -> str:
    return f"/run/{machine}.sock"


def simulate_own(plan: SimulationPlan) -> SeedResult:
    """One run of one seed."""
    return OwnRun(plan).run()
