"""Every span of time that a decision depends on, in seconds, with the relations that must hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from core.errors import Fault

AGENT_TIMERS = (
    *("heartbeat_s", "publish_timeout_s", "self_stop_after_s"),
    *("frozen_max_s", "agent_idle_off_s", "stop_grace_s"),
)
"""The spans that the worker's half of the lease depends on: instance templates carry them, and
the worker refuses any other."""
V1_LEAST_S = {
    "lost_after_s": 90.0,
    "boot_timeout_s": 300.0,
    "start_timeout_s": 180.0,
    "stop_margin_s": 60.0,
}
"""What v1 workers need at least. They wait 30 s at boot and are silent for 30 s after FOUND_VM;
they report, and look for a stop message, about every 10 s plus two calls of `gcloud`; they delete
their VM with a third one."""


@dataclass(frozen=True, slots=True)
class Timers:
    """Defaults are those of a real deployment; embedded runs shorten some of them."""

    loop_interval_s: float = 1.0
    """How often the loop runs when nothing wakes it."""
    heartbeat_s: float = 10.0
    """How often a worker reports."""
    publish_timeout_s: float = 10.0
    """How long a worker waits for the bus to confirm a heartbeat."""
    self_stop_after_s: float = 60.0
    """A worker without a confirmed heartbeat for this long freezes its job."""
    lost_after_s: float = 90.0
    """A VM silent for this long on the bus's clock is lost."""
    frozen_max_s: float = 7200.0
    """A frozen job is killed after this long."""
    canary_s: float = 10.0
    """How often the leader publishes a canary on the heartbeat topic."""
    settling_s: float = 30.0
    """After the first canary came back, nobody ages for this long: a backlog drains first."""
    leader_lease_s: float = 10.0
    """A leader that has not renewed for this long may be replaced."""
    leader_renew_s: float = 3.0
    """How often the leader renews."""
    fallback_after_s: float = 600.0
    """A job that waits this long for a cluster that has nothing to give goes to the next one that
    serves it."""
    claim_timeout_s: float = 60.0
    """From ASSIGNED to the worker's claim."""
    start_timeout_s: float = 300.0
    """From the claim to RUNNING."""
    queue_timeout_s: float = 30 * 86400.0
    """How long a job may wait, unless it says otherwise."""
    max_runtime_s: float = 7 * 86400.0
    """How long a job may run, unless it says otherwise."""
    stop_grace_s: float = 60.0
    """From SIGTERM to SIGKILL, unless the job says otherwise."""
    stop_margin_s: float = 30.0
    """How much longer than the grace we wait for the worker's word; then its VM is deleted."""
    retry_backoff_s: float = 10.0
    """From an attempt that failed by itself to the next one (`retries`); doubles with each."""
    retry_backoff_max_s: float = 600.0
    """Longest wait before the next attempt."""
    gang_hold_s: float = 600.0
    """How long a gang may keep some VMs while it waits for the others."""
    boot_timeout_s: float = 900.0
    """From the create call to READY; past it the VM is deleted."""
    idle_timeout_s: float = 600.0
    """A VM without work is given back after this long."""
    observe_s: float = 5.0
    """How often a group with VMs in motion is observed."""
    observe_idle_s: float = 60.0
    """How often a group without VMs is observed."""
    widen_after_s: float = 60.0
    """How long a region may take before the next one is asked."""
    stockout_block_s: float = 45.0
    """First block after a stockout; doubles with each."""
    stockout_block_max_s: float = 900.0
    """Longest block after a stockout."""
    stockout_memory_s: float = 3 * 3600.0
    """A stockout without news is forgotten after this long."""
    quota_block_s: float = 300.0
    """Block after a quota error."""
    unsupported_block_s: float = 3600.0
    """Block after a machine type that the zone does not have."""
    address_block_s: float = 30.0
    """Block when the subnet has no address left."""
    permission_block_s: float = 900.0
    """How long a permission error holds a region; an alert tells a human."""
    unknown_block_s: float = 60.0
    """First block after an error that nobody has classified; doubles with each, up to
    `permission_block_s`. An alert has the cloud's words."""
    unready_block_max_s: float = 3600.0
    """Longest block where VMs come up and never get to work; the first lasts `boot_timeout_s`."""
    orphan_after_s: float = 90.0
    """A labelled VM that nobody owns is removed after this long."""
    keep_alive_s: float = 86400.0
    """A v1 job's VM that is kept after the job (`keep_alive`) is deleted after this long."""
    agent_idle_off_s: float = 900.0
    """A worker without work and without a control message for this long powers its VM off."""

    def of_worker(self, worker: str) -> Timers:
        """The spans for VMs with workers of this kind: those of v1 workers are never shorter than
        what such a worker needs, however impatient the configuration is."""
        return _for_v1(self) if worker == "v1" else self

    def faults(self) -> list[Fault]:
        """Relations between timers that would break a guarantee."""
        found = [
            Fault(f"timers.{name}", f"{value}", "a number above 0")
            for name in self.__slots__
            if (value := getattr(self, name)) <= 0
        ]
        rules = [
            (
                self.self_stop_after_s + self.publish_timeout_s < self.lost_after_s,
                "self_stop_after_s",
                f"{self.self_stop_after_s} (+ publish_timeout_s {self.publish_timeout_s})",
                f"less than lost_after_s ({self.lost_after_s}) together: freeze before reassigning",
            ),
            (
                self.lost_after_s >= 3 * self.heartbeat_s,
                "lost_after_s",
                f"{self.lost_after_s}",
                f"at least 3 × heartbeat_s ({self.heartbeat_s})",
            ),
            (
                self.publish_timeout_s <= self.heartbeat_s,
                "publish_timeout_s",
                f"{self.publish_timeout_s}",
                f"at most heartbeat_s ({self.heartbeat_s})",
            ),
            (
                self.idle_timeout_s < self.agent_idle_off_s,
                "idle_timeout_s",
                f"{self.idle_timeout_s}",
                f"less than agent_idle_off_s ({self.agent_idle_off_s}): the VM's own last lock",
            ),
            (
                self.leader_renew_s * 3 <= self.leader_lease_s,
                "leader_renew_s",
                f"{self.leader_renew_s}",
                f"at most a third of leader_lease_s ({self.leader_lease_s})",
            ),
            (
                self.stockout_block_s <= self.stockout_block_max_s,
                "stockout_block_s",
                f"{self.stockout_block_s}",
                f"at most stockout_block_max_s ({self.stockout_block_max_s})",
            ),
            (
                self.retry_backoff_s <= self.retry_backoff_max_s,
                "retry_backoff_s",
                f"{self.retry_backoff_s}",
                f"at most retry_backoff_max_s ({self.retry_backoff_max_s})",
            ),
        ]
        found += [
            Fault(f"timers.{name}", got, expected)
            for holds, name, got, expected in rules
            if not holds
        ]
        return found


@lru_cache(maxsize=16)
def _for_v1(timers: Timers) -> Timers:
    spans = {name: max(getattr(timers, name), least) for name, least in V1_LEAST_S.items()}
    return replace(timers, **spans)
