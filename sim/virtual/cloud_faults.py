"""What happens in the cloud: to groups, machines, and the calls about them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from core.job import JobStatus
from sim.cloud.faults import (
    CALLS,
    GLOBAL,
    GLOBAL_METRIC,
    AddressSpace,
    ApiErrors,
    Crash,
    CreateError,
    Lasting,
    NoDriver,
    OperationError,
    Permissions,
    Preempt,
    QuotaFault,
    SlowBoots,
    Stockout,
    Unsupported,
)
from sim.cloud.model import ApiError, InstanceStatus, Operation
from sim.virtual.fault_targets import Acts, Misfortunes
from sim.virtual.pretend_vms import Boot

_CREATE_ERRORS = (
    ("CONDITION_NOT_MET", "Constraint constraints/compute.vmExternalIpAccess violated for p."),
    ("RESOURCE_NOT_FOUND", "The resource 'projects/p/global/images/family/i' was not found"),
    ("SERVICE_ACCOUNT_ACCESS_DENIED", "The user does not have access to service account 's'."),
    ("UNSUPPORTED_OPERATION", "Instance failed to start due to preemption."),
    ("SOMETHING_NEW", ""),
)


class CloudFaults(Misfortunes):
    """Whatever Google, others, or the machines do."""

    def acts(self) -> Acts:
        lasting: dict[str, Callable[[], Lasting]] = {
            "stockout": lambda: Stockout(for_s=self._for_s(60, 600), region=self._region()),
            "quota": lambda: QuotaFault(
                for_s=self._for_s(60, 300), region=self._region(), metric="INSTANCES", limit=0
            ),
            "global_quota": lambda: QuotaFault(
                GLOBAL, GLOBAL_METRIC, 0, for_s=self._for_s(30, 120)
            ),
            "address_space": lambda: AddressSpace(
                for_s=self._for_s(30, 200), region=self._region()
            ),
            "permissions": lambda: Permissions(for_s=self._for_s(30, 200), region=self._region()),
            "no_driver": lambda: NoDriver(for_s=self._for_s(30, 120), region=self._region()),
            "create_error": self._create_error,
            "operation_error": self._operation_error,
            "slow_boots": self._slow_boots,
            "api_errors": self._api_errors,
        }
        return {
            **{name: partial(self._set, make) for name, make in lasting.items()},
            "unsupported": self._unsupported,
            "vm_preempted": self._preempt,
            "spot_storm": self._spot_storm,
            "leaving_job_stopped": self._stop_leaving,
            "vm_crashed": self._crash_vm,
            "vm_deleted_behind_our_back": partial(self._on_vm, self._cloud.cloud.delete_instance),
            "vm_stopped": partial(self._on_vm, self._cloud.cloud.stop_instance),
            "api_forbidden": self._api_forbidden,
            "agent_restarted": self._restart_agent,
            "orphan_vm": self._orphan,
            "foreign_vm": self._foreign,
        }

    def _set(self, make: Callable[[], Lasting]) -> bool:
        self._cloud.fault(make())
        return True

    def _region(self) -> str:
        return self._dice.choice(sorted({m.region for m in self._cloud.cloud.world.migs}))

    def _for_s(self, low: float, high: float) -> float:
        return self._dice.uniform(low, high)

    def _create_error(self) -> CreateError:
        code, message = self._dice.choice(_CREATE_ERRORS)
        span = self._for_s(30, 200)
        return CreateError(self._region(), code, message, for_s=span)

    def _operation_error(self) -> OperationError:
        code, message = self._dice.choice(_CREATE_ERRORS)
        return OperationError(
            for_s=self._for_s(20, 120),
            region=self._region(),
            call=self._dice.choice(("*", *CALLS)),
            code=code,
            message=message,
            takes_s=self._dice.choice((0.0, 0.0, 15.0)),
        )

    def _slow_boots(self) -> SlowBoots:
        factor = self._dice.choice((3.0, 10.0, 40.0))
        span = self._for_s(60, 400)
        return SlowBoots(self._region(), factor, for_s=span)

    def _api_errors(self) -> ApiErrors:
        kinds = ("rateLimitExceeded",) * 4 + ("503",) * 2 + ("timeout-after-success",) * 3
        slow = self._dice.choice((0.0, 0.0, 2.0, 15.0))
        return ApiErrors(for_s=self._for_s(30, 300), rate=0.35, kinds=kinds, latency_s=slow)

    def _unsupported(self) -> bool:
        mig = self._dice.choice(self._cloud.cloud.world.migs)
        for zone in mig.zones:
            self._cloud.fault(Unsupported(zone, mig.machine_type, for_s=200.0))
        return True

    def _preempt(self) -> bool:
        spot = [w for w in self._stage.fleet.workers() if w.info.spot]
        running = [w for w in spot if self._is_running(w)]
        if not running:
            return False
        self._cloud.fault(Preempt(vm=self._dice.choice(running).info.name))
        return True

    def _stop_leaving(self) -> bool:
        """An owner cancels a job that is just losing its VM, to the cloud or to another job."""
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
        return any(v.info.id == worker.info.id and v.status is InstanceStatus.RUNNING for v in vms)

    def _crash_vm(self) -> bool:
        worker = self._some_worker()
        if worker is None:
            return False
        self._cloud.fault(Crash(vm=worker.info.name))
        return True

    def _on_vm(self, call: Callable[[str, str, None, float], Operation]) -> bool:
        """Somebody deletes or stops a machine by hand; its agent hears SIGTERM first."""
        worker = self._some_worker()
        if worker is None:
            return False
        call(worker.info.zone, worker.info.name, None, self._loop.time())
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
        for. It does not count against our guarantee about the limit. A group that we have left is
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
            made = self._cloud.cloud.create_instances(mig.region, mig.name, [name], None, now)
        except ApiError:
            return False
        if made.error is not None:
            return False  # the operation fails: there never was such a VM
        self._checkers.foreign.add(name)
        self._cloud.settle()
        return True
