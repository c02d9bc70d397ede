"""Misfortune, from the seed: what goes wrong, when, for how long. Then everything heals."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.job import JobStatus
from sim.faults import (
    AddressSpace,
    ApiErrors,
    Clear,
    Crash,
    Permissions,
    Preempt,
    Quota,
    SlowBoots,
    Stockout,
    Unsupported,
)
from sim.memory_store import MemoryStore
from sim.model import ApiError, VmStatus
from sim.virtual.bus import Broker, BusOdds
from sim.virtual.checkers import Checkers
from sim.virtual.clients import Clients
from sim.virtual.compute import CloudInTime
from sim.virtual.config import Paper
from sim.virtual.hosts import CrashOdds, Ground, Host
from sim.virtual.loop import VirtualLoop
from sim.virtual.rare import RARE_FAULTS, RareMoments
from sim.virtual.trace import Trace
from sim.virtual.vms import Boot, Fleet

BETWEEN_FAULTS_S = 8.0
BUS_ODDS = BusOdds(duplicate=0.3, reorder=0.3, delay=0.05, lost_ack=0.02, lost_confirmation=0.01)
CRASH_ODDS = CrashOdds(
    commit=0.0003, publish=0.003, cloud_call=0.01, lost_answer=0.001, late_effect=0.5
)

FAULTS: Mapping[str, int] = {
    "leader_killed": 5,
    "replica_killed": 2,
    "leader_frozen": 4,
    "replica_handover": 2,
    "clock_jumped": 2,
    "database_down": 2,
    "database_cut_off": 2,
    "bus_down": 2,
    "replica_cut_off": 2,
    "vm_cut_off": 6,
    "fleet_cut_off": 1,
    "stockout": 4,
    "quota": 1,
    "unsupported": 1,
    "address_space": 1,
    "permissions": 1,
    "slow_boots": 2,
    "api_errors": 4,
    "vm_preempted": 5,
    "spot_storm": 1,
    "leaving_job_stopped": 8,
    "vm_crashed": 5,
    "vm_deleted_behind_our_back": 2,
    "vm_stopped": 2,
    "api_forbidden": 1,
    "topic_refused": 1,
    "agent_restarted": 4,
    "orphan_vm": 1,
    "foreign_vm": 1,
    "poison": 3,
    "limit_edited": 3,
    "region_edited": 2,
    "drain_edited": 1,
    "cluster_removed": 1,
    "config_spoilt": 1,
}
"""What strikes, and how often beside the others."""

ASLEEP_ODDS = 0.5
"""How often nobody is awake when the file is set back to what it was."""
# Those that happen by themselves, with the odds above.
SMALL_FAULTS = (
    "all_asleep",
    "message_duplicated",
    "message_reordered",
    "message_delayed",
    "ack_lost",
    "ack_deadline_passed",
    "confirmation_lost",
    "crash_at_commit",
    "crash_at_publish",
    "crash_at_cloud_call",
    "commit_answer_lost",
    "api_rate_limit",
    "api_5xx",
    "api_timeout_after_success",
    "api_late_effect",
    "api_slow",
    "worker_froze_its_job",
    "worker_thawed_its_job",
    "alert_fleet_silent",
    "bad_gpu",
    "neighbours_on_a_vm",
    "job_resized",
    "alert_sick_vm",
    *RARE_FAULTS,
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that misfortune can touch."""

    loop: VirtualLoop
    ground: Ground
    hosts: Sequence[Host]
    fleet: Fleet
    clients: Clients
    dice: random.Random


class Chaos:
    """Each fault is a method; `begin` lets them loose, `heal` ends them all."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._loop, self._dice = stage.loop, stage.dice
        self._over = False
        self._acts: dict[str, Callable[[], bool]] = {
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
            "stockout": self._stockout,
            "quota": self._quota,
            "unsupported": self._unsupported,
            "address_space": self._address_space,
            "permissions": self._permissions,
            "slow_boots": self._slow_boots,
            "api_errors": self._api_errors,
            "vm_preempted": self._preempt,
            "spot_storm": self._spot_storm,
            "leaving_job_stopped": self._stop_leaving,
            "vm_crashed": self._crash_vm,
            "vm_deleted_behind_our_back": self._delete_vm,
            "vm_stopped": self._stop_vm,
            "api_forbidden": self._api_forbidden,
            "topic_refused": self._topic_refused,
            "agent_restarted": self._restart_agent,
            "orphan_vm": self._orphan,
            "foreign_vm": self._foreign,
            "poison": self._poison,
            "limit_edited": self._edit_limit,
            "region_edited": self._edit_region,
            "drain_edited": self._edit_drain,
            "cluster_removed": self._remove_cluster,
            "config_spoilt": self._spoil_config,
        }
        assert self._acts.keys() == FAULTS.keys()

    @property
    def _broker(self) -> Broker:
        return self._stage.ground.broker

    @property
    def _cloud(self) -> CloudInTime:
        return self._stage.ground.cloud

    @property
    def _trace(self) -> Trace:
        return self._stage.ground.trace

    @property
    def _checkers(self) -> Checkers:
        return self._stage.ground.checkers

    def begin(self) -> None:
        self._broker.odds = BUS_ODDS
        self._stage.ground.odds = CRASH_ODDS
        self._loop.later(self._dice.expovariate(1 / BETWEEN_FAULTS_S), self._strike)
        self._loop.later(1.0, self._restarter)
        stage = self._stage
        RareMoments(stage.ground, stage.fleet, stage.dice, lambda: self._over).look()

    def heal(self) -> None:
        """Everything that was broken works again."""
        self._over = True
        self._trace.note("heal", "everything")
        if self._dice.random() < ASLEEP_ODDS:
            for host in self._stage.hosts:
                host.kill()
            self._trace.fault("all_asleep")
        self._broker.heal()
        self._stage.ground.odds = CrashOdds()
        self._cloud.fault(Clear())
        self._cloud.forbidden.clear()
        if self._stage.ground.paper is not None:
            self._stage.ground.paper.restore()
        for host in self._stage.hosts:
            host.door.down = False
            host.freeze_at_commit = False
            host.thaw()
            host.start()

    def _strike(self) -> None:
        if self._over:
            return
        name = self._dice.choices(list(FAULTS), list(FAULTS.values()))[0]
        if self._acts[name]():
            self._trace.fault(name)
        self._loop.later(self._dice.expovariate(1 / BETWEEN_FAULTS_S), self._strike)

    def _restarter(self) -> None:
        """Whoever died is started again, after a while."""
        if self._over:
            return
        for host in self._stage.hosts:
            if not host.up and self._dice.random() < 0.1:
                host.start()
        self._loop.later(2.0, self._restarter)

    def _after(self, low_s: float, high_s: float, undo: Callable[[], object]) -> None:
        self._loop.later(self._dice.uniform(low_s, high_s), lambda: self._over or undo())

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

    # --- the configuration ------------------------------------------------------------------

    def _paper(self) -> Paper | None:
        """Once the first version is recorded: before that there is nothing to fall back on."""
        ground = self._stage.ground
        return ground.paper if ground.store.tables.configs else None

    def _edited(self, words: str) -> bool:
        self._trace.note("config", words, "config")
        return True

    def _edit_limit(self) -> bool:
        paper = self._paper()
        return paper is not None and self._edited(paper.change_limit(self._dice))

    def _edit_region(self) -> bool:
        paper = self._paper()
        return paper is not None and self._edited(paper.change_region(self._dice))

    def _edit_drain(self) -> bool:
        paper = self._paper()
        return paper is not None and self._edited(paper.change_drain(self._dice))

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

    # --- the cloud -------------------------------------------------------------------------

    def _some_worker(self) -> Boot | None:
        workers = self._stage.fleet.workers()
        return self._dice.choice(workers) if workers else None

    def _region(self) -> str:
        return self._dice.choice(sorted({m.region for m in self._cloud.cloud.world.migs}))

    def _stockout(self) -> bool:
        self._cloud.fault(Stockout(for_s=self._dice.uniform(60, 600), region=self._region()))
        return True

    def _quota(self) -> bool:
        span = self._dice.uniform(60, 300)
        self._cloud.fault(Quota(for_s=span, region=self._region(), metric="INSTANCES", limit=0))
        return True

    def _unsupported(self) -> bool:
        mig = self._dice.choice(self._cloud.cloud.world.migs)
        for zone in mig.zones:
            fault = Unsupported(for_s=200.0, zone=zone, machine_type=mig.machine_type)
            self._cloud.fault(fault)
        return True

    def _address_space(self) -> bool:
        self._cloud.fault(AddressSpace(for_s=self._dice.uniform(30, 200), region=self._region()))
        return True

    def _permissions(self) -> bool:
        self._cloud.fault(Permissions(for_s=self._dice.uniform(30, 200), region=self._region()))
        return True

    def _slow_boots(self) -> bool:
        factor = self._dice.choice((3.0, 10.0, 40.0))
        span = self._dice.uniform(60, 400)
        self._cloud.fault(SlowBoots(for_s=span, region=self._region(), factor=factor))
        return True

    def _api_errors(self) -> bool:
        kinds = (
            *("rateLimitExceeded",) * 4,
            *("503",) * 2,
            *("timeout-after-success",) * 3,
        )
        slow = self._dice.choice((0.0, 0.0, 2.0, 15.0))
        span = self._dice.uniform(30, 300)
        self._cloud.fault(ApiErrors(for_s=span, rate=0.35, kinds=kinds, latency_s=slow))
        return True

    def _preempt(self) -> bool:
        spot = [w for w in self._stage.fleet.workers() if w.info.spot]
        running = [w for w in spot if self._is_running(w)]
        if not running:
            return False
        self._cloud.fault(Preempt(vm=self._dice.choice(running).info.name))
        return True

    def _stop_leaving(self) -> bool:
        """An owner gives up a job that is just losing its VM, to the cloud or to another job."""
        jobs = self._stage.ground.store.tables.live.values()
        leaving = sorted(job.spec.job_id for job in jobs if job.status is JobStatus.PREEMPTING)
        if leaving:
            self._stage.clients.stop_job(self._dice.choice(leaving))
        return bool(leaving)

    def _spot_storm(self) -> bool:
        zones = sorted({w.info.zone for w in self._stage.fleet.workers() if w.info.spot})
        return any(self._cloud.fault(Preempt(zone=zone)) for zone in zones)

    def _is_running(self, worker: Boot) -> bool:
        vms = self._cloud.cloud.vms(self._loop.time())
        return any(v.info.id == worker.info.id and v.status is VmStatus.RUNNING for v in vms)

    def _crash_vm(self) -> bool:
        worker = self._some_worker()
        if worker is None:
            return False
        self._cloud.fault(Crash(vm=worker.info.name))
        return True

    def _delete_vm(self) -> bool:
        worker = self._some_worker()
        if worker is None:
            return False
        info = worker.info
        self._cloud.cloud.delete_instance(info.zone, info.name, None, self._loop.time())
        self._cloud.settle()
        return True

    def _stop_vm(self) -> bool:
        """Somebody stops the machine by hand; its agent hears SIGTERM first."""
        worker = self._some_worker()
        if worker is None:
            return False
        info = worker.info
        self._cloud.cloud.stop_instance(info.zone, info.name, None, self._loop.time())
        worker.shut_down()
        self._cloud.settle()
        return True

    def _api_forbidden(self) -> bool:
        region = self._region()
        self._cloud.forbidden.add(region)
        self._after(20, 120, lambda: self._cloud.forbidden.discard(region))
        return True

    def _restart_agent(self) -> bool:
        worker = self._some_worker()
        if worker is None or worker.process.dead:
            return False
        self._stage.fleet.restart_agent(worker)
        return True

    def _orphan(self) -> bool:
        """Somebody resizes a group by hand: a VM under a name of our form that we never asked
        for. It does not count against our promise about the limit. A group that we have left is
        nobody's business of ours any more: its owner may do with it as he likes."""
        mig = self._dice.choice(self._cloud.cloud.world.migs)
        if mig.name not in self._in_our_hands():
            return False
        now = self._loop.time()
        group = self._cloud.cloud.mig(mig.region, mig.name, now)
        before = set(group.members)
        self._cloud.cloud.resize(mig.region, mig.name, group.target_size + 1, None, now)
        self._checkers.strangers |= set(group.members) - before
        self._cloud.settle()
        return True

    def _in_our_hands(self) -> frozenset[str]:
        """Groups that are configured and that a leader has driven."""
        tables, names = self._stage.ground.store.tables, self._stage.ground.settings.names
        clusters = tables.configs[-1].document["clusters"] if tables.configs else {}
        return frozenset(
            names.mig(cluster, region)
            for cluster, region in tables.regions
            if region in clusters.get(cluster, {}).get("regions", {})
        )

    def _foreign(self) -> bool:
        """A VM that is not of our making lives in one of the groups."""
        mig = self._dice.choice(self._cloud.cloud.world.migs)
        name = f"somebody-elses-{self._dice.randrange(10**6)}"
        try:
            now = self._loop.time()
            self._cloud.cloud.create_instances(mig.region, mig.name, [name], None, now)
        except ApiError:
            return False
        self._checkers.foreign.add(name)
        self._cloud.settle()
        return True
