"""ClusterOrchestrator: all clusters. One that fails never stops the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from core.capacity import ClusterSpec, Vm
from core.changes import View
from core.errors import StoreDown, TermPassed, ZenError
from core.job import JobStatus
from core.names import parse_cluster
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
        self._closed = False

    def poke(self, view: View) -> None:
        """Start a round for every cluster that is due. Returns at once: cloud calls take
        seconds, and a job on a warm VM must not wait for them."""
        self._take_over_retired(view)
        busy = busy_clusters(view)
        for name in self._managers:
            idle_pace_s = self._wiring.timers.observe_idle_s
            if self._is_due(name, ROUND_MIN_S if name in busy else idle_pace_s):
                self._start(name)

    async def close(self) -> None:
        """Stop all rounds; what was written down is repeated by the next leader."""
        self._closed = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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

    def _start(self, name: str) -> None:
        if self._closed or name in self._running:
            return
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


def busy_clusters(view: View) -> set[str]:
    """Clusters that have something to do now: demand, VMs, or calls without an answer."""
    names = {vm.cluster for vm in view.vms} | {r.cluster for r in view.requests}
    return names | {j.cluster for j in view.jobs if j.status is JobStatus.PROVISIONING}


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
