"""VMs that are not to be trusted: what speaks against them, and that they go. Pure."""

from __future__ import annotations

from dataclasses import replace

from core.changes import ClearAlert, RaiseAlert, View
from core.health import FailedRun, job_failed, job_went_well, kind_of_work, read_gpus, verdict
from core.job import E, Job, JobEvent, S
from core.messages import GpuReading
from core.vm import Vm, VmState
from scheduler.plan_builder import Draft

V = VmState
SICK_VM = "sick_vm"


def note_readings(draft: Draft, uid: str, gpus: tuple[GpuReading, ...]) -> None:
    """What a beat says of the GPUs."""
    vm = draft.vms[uid]
    health = read_gpus(vm.health, gpus, draft.rules.health, draft.now)
    if health is not vm.health:  # a copy for each beat of a fleet would cost more than all else
        _put(draft, vm, replace(vm, health=health))


def note_end(draft: Draft, uid: str, job: Job, event: JobEvent) -> None:
    """How a job that nobody stopped has ended there; `job` is as it was before."""
    vm, spec = draft.vms[uid], job.spec
    if event is E.EXITED_OK:
        _put(draft, vm, replace(vm, health=job_went_well(vm.health)))
    elif event is E.EXITED_ERROR and job.status is not S.STOPPING:
        kind = kind_of_work(spec.tenant_id, spec.command, spec.workflow, spec.workflow_args)
        run = FailedRun(draft.now, spec.job_id, kind)
        _put(draft, vm, replace(vm, health=job_failed(vm.health, run, draft.rules.health)))


def _put(draft: Draft, vm: Vm, after: Vm) -> None:
    if after.health is not vm.health:
        draft.put_vm(vm, replace(after, version=vm.version + 1))


def retire_sick(draft: Draft, view: View) -> None:
    """A sick VM gets no more work and goes when its jobs have ended; people are told."""
    for uid in dict.fromkeys((*draft.living.ailing, *draft.vms.news)):
        vm = draft.vms[uid]
        if vm.state not in (V.READY, V.DRAINING) or not (vm.health.gpus or vm.health.failures):
            continue
        why = verdict(
            vm.health, vm.gpus, idle=not vm.leases, rules=draft.rules.health, now=draft.now
        )
        if why:
            _retire(draft, vm, why, known=(SICK_VM, vm.name) in view.open_alerts)
    for kind, subject in sorted(view.open_alerts):
        if kind == SICK_VM and subject not in draft.living.names:
            draft.add(ClearAlert(kind, subject, draft.now))


def _retire(draft: Draft, vm: Vm, why: str, *, known: bool) -> None:
    if not vm.leases:
        draft.doom(vm, why)
    elif vm.state is V.READY:
        draft.move_vm(vm, V.DRAINING, why)
    if not known:
        draft.add(RaiseAlert(SICK_VM, vm.name, "warning", f"{vm.name} goes: {why}", draft.now))
