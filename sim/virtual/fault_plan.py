"""Misfortune, from the seed: what goes wrong, when, for how long. Then everything heals."""

from __future__ import annotations

from collections.abc import Mapping

from sim.cloud.faults import Clear
from sim.virtual.bus import BusOdds
from sim.virtual.cloud_faults import CloudFaults
from sim.virtual.fault_targets import Acts, Stage
from sim.virtual.operators import ACTS as DESK_ACTS
from sim.virtual.rare_moments import RARE_FAULTS, RareMoments
from sim.virtual.replicas import CrashOdds
from sim.virtual.service_faults import ServiceFaults

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
    "create_error": 2,
    "operation_error": 2,
    "no_driver": 1,
    "global_quota": 1,
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
    "worker_poisoned": 1,
    "start_refused": 1,
    "limit_edited": 3,
    "region_edited": 2,
    "drain_edited": 1,
    "cluster_removed": 1,
    "config_spoilt": 1,
}
"""What strikes, and how often beside the others."""

ASLEEP_ODDS = 0.5
"""How often nobody is awake when the file is set back to what it was."""
# Faults that happen by themselves, with the odds above.
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
    "message_too_large",
    "forged_message",
    "alert_worker_unproven",
    *RARE_FAULTS,
    *DESK_ACTS,
)


class Chaos:
    """`begin` lets them loose, `heal` ends them all."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._ground = stage, stage.ground
        self._loop, self._dice = stage.loop, stage.dice
        self.over = False
        parts = (ServiceFaults(stage, lambda: self.over), CloudFaults(stage, lambda: self.over))
        self._acts: Acts = {name: act for part in parts for name, act in part.acts().items()}
        assert self._acts.keys() == FAULTS.keys()

    def begin(self) -> None:
        self._ground.broker.odds = BUS_ODDS
        self._ground.odds = CRASH_ODDS
        self._loop.later(self._dice.expovariate(1 / BETWEEN_FAULTS_S), self._strike)
        self._loop.later(1.0, self._restarter)
        stage = self._stage
        RareMoments(self._ground, stage.fleet, stage.dice, lambda: self.over).look()

    def heal(self) -> None:
        """Everything that was broken works again."""
        self.over = True
        self._ground.trace.note("heal", "everything")
        if self._dice.random() < ASLEEP_ODDS:
            for host in self._stage.hosts:
                host.kill()
            self._ground.trace.fault("all_asleep")
        self._ground.broker.heal()
        self._ground.odds = CrashOdds()
        self._ground.cloud.fault(Clear())
        self._ground.cloud.forbidden.clear()
        if self._ground.paper is not None:
            self._ground.paper.restore()
        for host in self._stage.hosts:
            host.door.down = False
            host.freeze_at_commit = False
            host.thaw()
            host.start()

    def _strike(self) -> None:
        if self.over:
            return
        self._ground.cloud.settle()  # a machine that is due to be gone cannot be struck
        name = self._dice.choices(list(FAULTS), list(FAULTS.values()))[0]
        if self._acts[name]():
            self._ground.trace.fault(name)
        self._loop.later(self._dice.expovariate(1 / BETWEEN_FAULTS_S), self._strike)

    def _restarter(self) -> None:
        """A process that died is started again, after a while."""
        if self.over:
            return
        for host in self._stage.hosts:
            if not host.up and self._dice.random() < 0.1:
                host.start()
        self._loop.later(2.0, self._restarter)
