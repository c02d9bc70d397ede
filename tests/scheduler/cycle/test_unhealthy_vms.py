"""A VM that is not to be trusted: how it is found, and that it goes."""

from __future__ import annotations

from dataclasses import replace

from core.alerts import UNHEALTHY_VM
from core.changes import ClearAlert, RaiseAlert
from core.health import BadGpu, FailedRun, GpuFault, VmHealth
from core.job import E, Job
from core.messages import GpuReading, Heartbeat, HeartbeatStatus, OutMessage, VmReadings
from core.vm import Vm, VmState
from scheduler.cycle.heartbeats import ReceivedHeartbeat, apply_heartbeats
from scheduler.cycle.unhealthy_vms import drain_unhealthy
from scheduler.plan_builder import PlanBuilder
from tests.builders import NOW, RULES, at, job, snapshot, vm
from tests.workers import trusted

B, V = HeartbeatStatus, VmState
ECC = VmHealth((BadGpu(0, GpuFault.ECC, "has errors", NOW),))
BLAMED = VmHealth(failures=tuple(FailedRun(NOW, f"j-{n}", str(n)) for n in range(3)))


def hear(on: Vm, held: tuple[Job, ...], status: HeartbeatStatus, **words: object) -> Vm:
    """The VM after one heartbeat of it."""
    plan = PlanBuilder(snapshot(held, (on,)), RULES, lambda _: OutMessage("control", b""))
    said = {"vm_name": "vm-1", "boot_nonce": "nonce", "seq": 1, **words}
    heartbeat = Heartbeat(status=status, **said)  # type: ignore[arg-type]
    apply_heartbeats(plan, [ReceivedHeartbeat(heartbeat, at(10), "m-1")], trusted)
    return plan.vms["uid-vm-1"]


def end(on: Vm, exit_code: int, *, asked: bool = False) -> Vm:
    """The VM after its job has ended."""
    held = job(1, E.ADMITTED, E.PLACED, E.STARTED, *([E.STOP_ASKED] if asked else []))
    on = replace(on, leases=("lease-1",))
    words = {"job_id": "job-1", "attempt": 1, "lease_id": "lease-1", "exit_code": exit_code}
    return hear(on, (held,), B.COMPLETED if exit_code == 0 else B.FAILED, **words)


def retired(on: Vm, *alerts: tuple[str, str]) -> PlanBuilder:
    seen = replace(snapshot((), (on,)), open_alerts=dict.fromkeys(alerts, NOW))
    plan = PlanBuilder(seen, RULES, lambda _: OutMessage("control", b""))
    drain_unhealthy(plan, seen)
    return plan


def test_readings_are_kept_when_they_bring_news() -> None:
    """A new version of the VM: a cycle that places work on it at the same time loses."""
    before = vm("vm-1")
    ill = hear(before, (), B.READY, readings=VmReadings((GpuReading(0, ecc_errors=4),)))
    assert ill.health.words == "GPU 0 has uncorrected memory errors (4)"
    assert ill.version == before.version + 1
    assert (
        hear(before, (), B.READY, readings=VmReadings((GpuReading(0),))).version == before.version
    )


def test_jobs_that_fail_are_counted_until_one_goes_well() -> None:
    """A job that somebody stopped says nothing."""
    failed = end(vm("vm-1"), 1)
    assert [run.job_id for run in failed.health.failures] == ["job-1"]
    assert end(replace(failed, leases=()), 0).health.failures == ()
    assert end(vm("vm-1"), 143, asked=True).health.failures == ()


def test_unhealthy_vm_without_work_goes_at_once_and_says_why() -> None:
    """With an alert for people."""
    plan = retired(vm("vm-1", health=BLAMED))
    gone = plan.vms["uid-vm-1"]
    assert (gone.state, gone.reason) == (
        V.DELETING,
        "3 different jobs failed on it in a row: j-0, j-1, j-2",
    )
    (alert,) = [c for batch in plan.batches for c in batch if isinstance(c, RaiseAlert)]
    assert (alert.kind, alert.subject) == (UNHEALTHY_VM.name, "vm-1")


def test_unhealthy_vm_with_work_is_drained() -> None:
    """Its jobs may end there; the alert is raised once."""
    plan = retired(vm("vm-1", leases=("x",), health=ECC), (UNHEALTHY_VM.name, "vm-1"))
    assert plan.vms["uid-vm-1"].state is V.DRAINING
    assert not [c for batch in plan.batches for c in batch if isinstance(c, RaiseAlert)]
    again = retired(plan.vms["uid-vm-1"], (UNHEALTHY_VM.name, "vm-1"))
    assert again.batches == []


def test_alert_is_over_when_the_vm_is_gone() -> None:
    """Nothing is left to do."""
    plan = retired(vm("vm-2"), (UNHEALTHY_VM.name, "vm-1"), ("other", "vm-1"))
    assert plan.batches == [(ClearAlert(UNHEALTHY_VM.name, "vm-1", NOW),)]


def test_healthy_vm_is_left_alone() -> None:
    """Also one that has seen two failures."""
    two = VmHealth(failures=BLAMED.failures[:2])
    assert retired(vm("vm-1", health=two)).batches == []
