"""A VM that is not to be trusted: how it is found, and that it goes."""

from __future__ import annotations

from dataclasses import replace

from core.changes import ClearAlert, RaiseAlert
from core.health import BadGpu, FailedRun, GpuTrouble, VmHealth
from core.job import E, Job
from core.messages import BeatStatus, GpuReading, Heartbeat, OutMessage
from core.vm import Vm, VmState
from scheduler.cycle.heartbeats import Beat, apply_beats
from scheduler.cycle.unhealthy_vms import SICK_VM, retire_sick
from scheduler.plan_builder import Draft
from tests.builders import NOW, RULES, at, job, view, vm

B, V = BeatStatus, VmState
ECC = VmHealth((BadGpu(0, GpuTrouble.ECC, "has errors", NOW),))
BLAMED = VmHealth(failures=tuple(FailedRun(NOW, f"j-{n}", str(n)) for n in range(3)))


def hear(on: Vm, held: tuple[Job, ...], status: BeatStatus, **words: object) -> Vm:
    """The VM after one beat of it."""
    draft = Draft(view(held, (on,)), RULES, lambda _: OutMessage("control", b""))
    said = {"vm_name": "vm-1", "boot_nonce": "nonce", "seq": 1, **words}
    beat = Heartbeat(status=status, **said)  # type: ignore[arg-type]
    apply_beats(draft, [Beat(beat, at(10), "m-1")])
    return draft.vms["uid-vm-1"]


def end(on: Vm, exit_code: int, *, asked: bool = False) -> Vm:
    """The VM after its job has ended."""
    held = job(1, E.ADMITTED, E.PLACED, E.STARTED, *([E.STOP_ASKED] if asked else []))
    on = replace(on, leases=("lease-1",))
    words = {"job_id": "job-1", "attempt": 1, "lease_id": "lease-1", "exit_code": exit_code}
    return hear(on, (held,), B.COMPLETED if exit_code == 0 else B.FAILED, **words)


def retired(on: Vm, *alerts: tuple[str, str]) -> Draft:
    seen = replace(view((), (on,)), open_alerts=dict.fromkeys(alerts, NOW))
    draft = Draft(seen, RULES, lambda _: OutMessage("control", b""))
    retire_sick(draft, seen)
    return draft


def test_readings_are_kept_when_they_bring_news() -> None:
    """A new version of the VM: whoever places work on it at the same time loses."""
    before = vm("vm-1")
    ill = hear(before, (), B.READY, gpus=(GpuReading(0, ecc_errors=4),))
    assert ill.health.words == "GPU 0 has uncorrected memory errors (4)"
    assert ill.version == before.version + 1
    assert hear(before, (), B.READY, gpus=(GpuReading(0),)).version == before.version


def test_jobs_that_fail_are_counted_until_one_goes_well() -> None:
    """A job that somebody stopped says nothing."""
    failed = end(vm("vm-1"), 1)
    assert [run.job_id for run in failed.health.failures] == ["job-1"]
    assert end(replace(failed, leases=()), 0).health.failures == ()
    assert end(vm("vm-1"), 143, asked=True).health.failures == ()


def test_sick_vm_without_work_goes_at_once_and_says_why() -> None:
    """With an alert for people."""
    draft = retired(vm("vm-1", health=BLAMED))
    gone = draft.vms["uid-vm-1"]
    assert (gone.state, gone.reason) == (
        V.DELETING,
        "3 different jobs failed on it in a row: j-0, j-1, j-2",
    )
    (alert,) = [c for unit in draft.units for c in unit if isinstance(c, RaiseAlert)]
    assert (alert.kind, alert.subject) == (SICK_VM, "vm-1")


def test_sick_vm_with_work_is_drained() -> None:
    """Its jobs may end there; the alert is raised once."""
    draft = retired(vm("vm-1", leases=("x",), health=ECC), (SICK_VM, "vm-1"))
    assert draft.vms["uid-vm-1"].state is V.DRAINING
    assert not [c for unit in draft.units for c in unit if isinstance(c, RaiseAlert)]
    again = retired(draft.vms["uid-vm-1"], (SICK_VM, "vm-1"))
    assert again.units == []


def test_alert_is_over_when_the_vm_is_gone() -> None:
    """Nothing is left to do."""
    draft = retired(vm("vm-2"), (SICK_VM, "vm-1"), ("other", "vm-1"))
    assert draft.units == [(ClearAlert(SICK_VM, "vm-1", NOW),)]


def test_healthy_vm_is_left_alone() -> None:
    """Also one that has seen two failures."""
    two = VmHealth(failures=BLAMED.failures[:2])
    assert retired(vm("vm-1", health=two)).units == []
