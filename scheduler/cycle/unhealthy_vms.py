"""VMs that are not to be trusted: what speaks against them, and that they go. Pure."""

from __future__ import annotations

from core.alerts import UNHEALTHY_VM
from core.changes import Snapshot
from core.health import FailedRun, job_failed, job_went_well, kind_of_work, read_gpus, verdict
from core.job import E, Job, JobEvent, S
from core.messages import VmReadings
from core.vm import Vm, VmEvent
from scheduler.plan_builder import PlanBuilder


def note_readings(plan: PlanBuilder, uid: str, readings: VmReadings) -> None:
    """What a heartbeat says of the GPUs."""
    vm = plan.vms[uid]
    health = read_gpus(vm.health, readings.gpus, plan.rules.health, plan.now)
    if health is not vm.health:  # to compare them for each heartbeat of a fleet would cost too much
        plan.learn_vm(vm, health=health)


def note_end(plan: PlanBuilder, uid: str, job: Job, event: JobEvent) -> None:
    """How a job that nobody stopped has ended there; `job` is as it was before."""
    vm, spec = plan.vms[uid], job.spec
    if event is E.EXITED_OK:
        plan.learn_vm(vm, health=job_went_well(vm.health))
    elif event is E.EXITED_ERROR and job.status is not S.STOPPING:
        kind = kind_of_work(spec.tenant_id, spec.command, spec.workflow, spec.workflow_args)
        run = FailedRun(plan.now, spec.job_id, kind)
        plan.learn_vm(vm, health=job_failed(vm.health, run, plan.rules.health))


def drain_unhealthy(plan: PlanBuilder, snapshot: Snapshot) -> None:
    """An unhealthy VM gets no more work and goes when its jobs have ended; people are told."""
    for uid in dict.fromkeys((*plan.active.ailing, *plan.vms.news)):
        vm = plan.vms[uid]
        if not vm.state.up or not (vm.health.gpus or vm.health.failures):
            continue
        why = verdict(vm.health, vm.gpus, idle=not vm.leases, rules=plan.rules.health, now=plan.now)
        if why:
            _retire(plan, vm, why, known=(UNHEALTHY_VM.name, vm.name) in snapshot.open_alerts)
    for kind, subject in sorted(snapshot.open_alerts):
        if kind == UNHEALTHY_VM.name and subject not in plan.active.names:
            plan.add(UNHEALTHY_VM.cleared(subject, plan.now))


def _retire(plan: PlanBuilder, vm: Vm, why: str, *, known: bool) -> None:
    if not vm.leases:
        plan.delete_vm(vm, why)
    else:
        plan.advance_vm(vm, VmEvent.DRAIN_ASKED, why)
    if not known:
        plan.add(UNHEALTHY_VM.raised(vm.name, plan.now, vm=vm.name, reason=why))
