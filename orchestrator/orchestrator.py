"""ClusterOrchestrator: all clusters. One that fails never stops the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import structlog

from core.capacity import ClusterSpec, Vm
from core.changes import View
from core.errors import StoreDown, TermPassed, ZenError
from core.job import JobStatus
from core.knowledge import CapacityPolicy
from core.names import parse_cluster
from core.timers import Timers
from orchestrator.manager import ClusterManager, Wiring

log = structlog.get_logger("orchestrator")
# Heartbeats wake the loop many times a second; the cloud does not change that fast.
ROUND_MIN_S = 0.2


class ClusterOrchestrator:
    """Runs each manager in a task of its own, at most once at a time."""

    def __init__(self, clusters: Iterable[ClusterSpec], wiring: Wiring) -> None:
        self._wiring = wiring
        self._managers = {spec.name: ClusterManager(spec, wiring) for spec in clusters}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ran_at: dict[str, float] = {}
        self._marks: dict[str, int] = {}
        """What each cluster's rows looked like when its last round began."""
        self._closed = False

    def update(
        self, clusters: Iterable[ClusterSpec], timers: Timers, policy: CapacityPolicy
    ) -> None:
        """As configured from now on. A cluster that is not there any more keeps its manager: what
        it still has is drained and given back."""
        self._wiring = replace(self._wiring, timers=timers, policy=policy)
        left = dict(self._managers)
        for spec in clusters:
            manager = left.pop(spec.name, None)
            if manager is None:
                self._managers[spec.name] = ClusterManager(spec, self._wiring)
            else:
                manager.update(spec, self._wiring)
        for manager in left.values():
            gone = replace(manager.spec, vm_max=0, vm_min=0, regions=())
            manager.update(gone, self._wiring)
        self._ran_at.clear()  # all are due: what idles in a withdrawn region waits for nobody

    def poke(self, view: View) -> None:
        """Start a round for every cluster that is due: one whose rows have moved, soon; one that
        only waits for the cloud, as often as the cloud is looked at. Returns at once: cloud calls
        take seconds, and a job on a warm VM must not wait for them."""
        self._take_over_retired(view)
        timers, marks = self._wiring.timers, marks_of(view)
        for name in self._managers:
            mark = marks.get(name)
            pace_s = timers.observe_idle_s if mark is None else timers.observe_s
            if self._is_due(name, pace_s if mark == self._marks.get(name) else ROUND_MIN_S):
                self._start(name, mark)

    async def close(self) -> None:
        """Stop all rounds; what was written down is repeated by the next leader."""
        self._closed = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(manager.close() for manager in self._managers.values()))

    def _take_over_retired(self, view: View) -> None:
        """A cluster that left the configuration keeps a manager as long as it has VMs: they are
        drained and given back, and nothing is added."""
        for vm in view.vms:
            if vm.cluster not in self._managers:
                log.warning("cluster is not configured, draining it", cluster=vm.cluster)
                self._managers[vm.cluster] = ClusterManager(_retired(vm), self._wiring)

    def _is_due(self, name: str, pace_s: float) -> bool:
        last = self._ran_at.get(name)
        return last is None or self._wiring.clock.monotonic() - last >= pace_s

    def _start(self, name: str, mark: int | None) -> None:
        if self._closed or name in self._running:
            return
        if mark is None:
            self._marks.pop(name, None)
        else:
            self._marks[name] = mark
        self._running[name] = asyncio.create_task(self._round(name), name=f"cluster-{name}")

    async def _round(self, name: str) -> None:
        try:
            await self._managers[name].reconcile()
        except (TermPassed, StoreDown) as error:
            log.info("round given up", cluster=name, why=str(error))
        except ZenError as error:
            log.warning("round failed", cluster=name, why=str(error))
        except Exception:
            # A fault in one cluster's round must not take the others down; it is logged whole.
            log.exception("round crashed", cluster=name)
        finally:
            self._ran_at[name] = self._wiring.clock.monotonic()
            self._running.pop(name, None)


def marks_of(view: View) -> dict[str, int]:
    """Cluster → a number that changes with its rows, for those that have something to do now:
    demand, VMs, or calls without an answer."""
    marks: dict[str, int] = {}
    for vm in view.vms:
        marks[vm.cluster] = hash((marks.get(vm.cluster), vm.uid, vm.version))
    for job in view.jobs:
        if job.status is JobStatus.PROVISIONING:
            marks[job.cluster] = hash((marks.get(job.cluster), job.uid, job.version))
    for request in view.requests:
        marks[request.cluster] = hash((marks.get(request.cluster), request.request_id))
    return marks


def _retired(vm: Vm) -> ClusterSpec:
    gpus, gpu_type = parse_cluster(vm.cluster)
    return ClusterSpec(
        name=vm.cluster,
        gpu_type=gpu_type,
        gpus=gpus,
        machine_type="",
        vm_max=0,
        regions=(),
        spot=vm.spot,
    )
