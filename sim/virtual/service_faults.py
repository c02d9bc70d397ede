"""What happens to the service: to its replicas, its database, its bus and its configuration."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from sim.memory.store import MemoryStore
from sim.virtual.config import Paper
from sim.virtual.fault_targets import Acts, Misfortunes
from sim.virtual.replicas import Host


class ServiceFaults(Misfortunes):
    """Whatever a replica cannot help."""

    def acts(self) -> Acts:
        return {
            "leader_killed": self._kill_leader,
            "replica_killed": self._kill_replica,
            "leader_frozen": self._freeze_leader,
            "replica_handover": self._hand_over,
            "clock_jumped": self._jump_clock,
            "database_down": self._database_down,
            "database_cut_off": self._database_cut_off,
            "bus_down": self._bus_down,
            "replica_cut_off": self._replica_cut_off,
            "vm_cut_off": self._vm_cut_off,
            "fleet_cut_off": self._fleet_cut_off,
            "topic_refused": self._topic_refused,
            "poison": self._poison,
            "worker_poisoned": self._poison_worker,
            "start_refused": self._refuse_start,
            "limit_edited": partial(self._edit, Paper.change_limit),
            "region_edited": partial(self._edit, Paper.change_region),
            "drain_edited": partial(self._edit, Paper.change_drain),
            "cluster_removed": self._remove_cluster,
            "config_spoilt": self._spoil_config,
        }

    # --- replicas --------------------------------------------------------------------------

    def _leader(self) -> Host | None:
        return next((host for host in self._stage.hosts if host.leads and host.awake), None)

    def _awake(self) -> list[Host]:
        return [host for host in self._stage.hosts if host.awake]

    def _kill_leader(self) -> bool:
        leader = self._leader()
        if leader is not None:
            leader.kill()
        return leader is not None

    def _kill_replica(self) -> bool:
        awake = self._awake()
        if awake:
            self._dice.choice(awake).kill()
        return bool(awake)

    def _freeze_leader(self) -> bool:
        leader = self._leader()
        if leader is None:
            return False
        if self._dice.random() < 0.5:
            leader.freeze()
        else:
            leader.freeze_at_commit = True
        self._after(5, 90, leader.thaw)
        return True

    def _hand_over(self) -> bool:
        leader = self._leader()
        if leader is None or leader.process is None or leader.replica is None:
            return False
        leader.process.spawn(leader.replica.stop())
        self._after(5, 6, leader.kill)
        return True

    def _jump_clock(self) -> bool:
        host = self._dice.choice(self._stage.hosts)
        host.clock.ahead_s = self._dice.uniform(-30, 30)
        return True

    def _database_down(self) -> bool:
        doors = [host.door for host in self._stage.hosts]
        self._down(doors, 5, 90)
        return True

    def _database_cut_off(self) -> bool:
        self._down([self._dice.choice(self._stage.hosts).door], 5, 40)
        return True

    def _down(self, doors: Sequence[MemoryStore], low_s: float, high_s: float) -> None:
        for door in doors:
            door.down = True

        def up() -> None:
            for host in self._stage.hosts:
                host.door.down = False

        self._after(low_s, high_s, up)

    # --- the bus ---------------------------------------------------------------------------

    def _bus_down(self) -> bool:
        self._broker.down = True

        def up() -> None:
            self._broker.down = False

        self._after(10, 240, up)
        return True

    def _cut_off(self, name: str, low_s: float, high_s: float) -> None:
        self._broker.cut_off.add(name)
        self._after(low_s, high_s, lambda: self._broker.reconnect(name))

    def _replica_cut_off(self) -> bool:
        awake = self._awake()
        if not awake:
            return False
        self._cut_off(self._dice.choice(awake).name, 5, 90)
        return True

    def _vm_cut_off(self) -> bool:
        worker = self._some_worker()
        if worker is None:
            return False
        self._cut_off(worker.process.name, 20, 400)
        return True

    def _fleet_cut_off(self) -> bool:
        workers = self._stage.fleet.workers()
        if len(workers) < 12:
            return False
        for worker in workers:
            if self._dice.random() < 0.85:
                self._cut_off(worker.process.name, 150, 200)
        return True

    def _topic_refused(self) -> bool:
        """Somebody deletes the control topic, and makes it again."""
        topic = self._stage.ground.settings.names.control_topic
        self._broker.refused.add(topic)
        self._after(10, 60, lambda: self._broker.refused.discard(topic))
        return True

    def _poison(self) -> bool:
        self._stage.clients.poison()
        return True

    def _poison_worker(self) -> bool:
        """Somebody who may publish there sends nonsense to a VM."""
        worker = self._some_worker()
        if worker is not None:
            self._stage.clients.poison(worker.info.name)
        return worker is not None

    def _refuse_start(self) -> bool:
        """The next start message is one that the bus does not take, whatever else passes."""
        self._broker.refuse_starts += 1
        return True

    # --- the configuration ------------------------------------------------------------------

    def _paper(self) -> Paper | None:
        """Once the first version is recorded: before that there is nothing to fall back on."""
        ground = self._stage.ground
        return ground.paper if ground.store.tables.configs else None

    def _edited(self, words: str) -> bool:
        self._trace.note("config", words, "config")
        return True

    def _edit(self, change: Callable[[Paper, random.Random], str]) -> bool:
        paper = self._paper()
        return paper is not None and self._edited(change(paper, self._dice))

    def _remove_cluster(self) -> bool:
        paper = self._paper()
        if paper is None:
            return False
        self._after(20, 120, paper.mend)
        return self._edited(paper.remove(self._dice))

    def _spoil_config(self) -> bool:
        paper = self._paper()
        if paper is None:
            return False
        paper.spoil()
        self._after(5, 60, paper.mend)
        return self._edited("spoilt")
