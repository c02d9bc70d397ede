"""ClusterOrchestrator: all clusters. One that fails never stops the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import structlog

from core.active import ActiveIndex
from core.changes import Snapshot
from core.cluster import ClusterSpec
from core.errors import StoreDown, TermPassed, ZenError
from core.job import JobStatus
from core.names import parse_cluster
from orchestrator.cluster_manager import ClusterManager
from orchestrator.reconcile.context import Wiring

log = structlog.get_logger("orchestrator")
# Heartbeats wake the loop many times a second; the cloud does not change that fast.
RECONCILE_MIN_S = 0.2
_NOBODY: Mapping[str, Sequence[str]] = MappingProxyType({})


class ClusterOrchestrator:
    """Runs each manager in a task of its own, at most once at a time."""

    def __init__(self, wiring: Wiring, driven: Iterable[tuple[str, str]] = ()) -> None:
        """`driven`: (cluster, region) of the groups that former leaders had to do with."""
        self._wiring = wiring
        self._driven: dict[str, list[str]] = {}
        for cluster, region in driven:
            self._driven.setdefault(cluster, []).append(region)
        self._managers: dict[str, ClusterManager] = {}
        self._settings = wiring.settings.current
        for spec in self._settings.clusters:
            self._manage(spec)
        for name in self._driven:
            self._retire(name)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ran_at: dict[str, float] = {}
        self._marks: dict[str, int] = {}
        """What each cluster's rows looked like when its last round began."""
        self._owed, self._poked_at = 0.0, wiring.clock.monotonic()
        self._closed = False

    def poke(self, snapshot: Snapshot, admitted: Mapping[str, Sequence[str]] = _NOBODY) -> None:
        """Start a round for every cluster that is due: one whose rows have moved, soon; one that
        only waits for the cloud, as often as the cloud is looked at. Returns at once: cloud calls
        take seconds, and a job on a warm VM must not wait for them. `admitted`: cluster → its jobs
        in the order of admission."""
        self._follow_settings()
        self._take_over_retired(snapshot)
        for name, uids in admitted.items():
            if name in self._managers:
                self._managers[name].set_admission_order(uids)
        marks = marks_of(snapshot)
        patient: list[tuple[float, str]] = []
        for name in [name for name in self._managers if name not in self._running]:
            mark, ran_at = marks.get(name), self._ran_at.get(name)
            if ran_at is None or mark != self._marks.get(name):
                if self._is_due(name, RECONCILE_MIN_S):
                    self._start(name, mark)
            elif self._is_due(name, self._pace_s(name, mark)):
                patient.append((ran_at, name))
        for _, name in sorted(patient)[: self._observations_due(self._settings.timers.observe_s)]:
            self._owed -= 1.0
            self._start(name, marks.get(name))

    def _pace_s(self, name: str, mark: int | None) -> float:
        """A cluster with nothing in motion is looked at seldom, but not before it has been seen."""
        timers = self._settings.timers
        quiet = mark is None and not self._managers[name].awaits_answers
        return timers.observe_idle_s if quiet else timers.observe_s

    def _observations_due(self, pace_s: float) -> int:
        """How many clusters may be looked at now, of the clusters that only time makes due: one
        after the other. All at once they would keep the loop waiting, and would go on to do so
        together."""
        now = self._wiring.clock.monotonic()
        since_s, self._poked_at = now - self._poked_at, now
        # What nobody needed meanwhile is not saved up.
        self._owed = min(self._owed, 1.0) + since_s * len(self._managers) / pace_s
        return int(self._owed)

    async def close(self) -> None:
        """Stop all rounds; what was written down is repeated by the next leader."""
        self._closed = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(manager.close() for manager in self._managers.values()))

    def _manage(self, spec: ClusterSpec) -> None:
        driven = self._driven.get(spec.name, ())
        self._managers[spec.name] = ClusterManager(spec, self._wiring, driven)

    def _follow_settings(self) -> None:
        """A cluster that is not there any more keeps its manager: what it still has is drained and
        given back."""
        if self._settings is self._wiring.settings.current:
            return
        self._settings = self._wiring.settings.current
        for spec in self._settings.clusters:
            if spec.name not in self._managers:
                self._manage(spec)
        self._ran_at.clear()  # all are due: what idles in a withdrawn region waits for nobody

    def _take_over_retired(self, snapshot: Snapshot) -> None:
        active = snapshot.active or ActiveIndex.of((), snapshot.vms)
        for name in active.clusters():
            self._retire(name)

    def _retire(self, name: str) -> None:
        """A cluster that left the configuration keeps a manager: what it still has is drained and
        given back, its groups are watched until they are empty, and nothing is added."""
        if name not in self._managers:
            log.warning("cluster is not configured, draining it", cluster=name)
            self._manage(_retired(name))

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
        self._running[name] = asyncio.create_task(self._reconcile(name), name=f"cluster-{name}")

    async def _reconcile(self, name: str) -> None:
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


def marks_of(snapshot: Snapshot) -> dict[str, int]:
    """Cluster → a number that changes with its rows, for clusters that have something to do now:
    demand, VMs, or calls without an answer."""
    marks = _marks_of_rows(snapshot) if snapshot.active is None else _marks_kept(snapshot.active)
    for request in snapshot.requests:
        marks[request.cluster] = hash((marks.get(request.cluster), request.request_id))
    return marks


def _marks_kept(active: ActiveIndex) -> dict[str, int]:
    demand = (active.jobs[uid].cluster for uid in active.admitted)
    return {name: active.marks[name] for name in dict.fromkeys((*active.clusters(), *demand))}


def _marks_of_rows(snapshot: Snapshot) -> dict[str, int]:
    marks: dict[str, int] = {}
    for vm in snapshot.vms:
        marks[vm.cluster] = hash((marks.get(vm.cluster), vm.uid, vm.version))
    for job in snapshot.jobs:
        if job.status is JobStatus.PROVISIONING:
            marks[job.cluster] = hash((marks.get(job.cluster), job.uid, job.version))
    return marks


def _retired(name: str) -> ClusterSpec:
    gpus, gpu_type = parse_cluster(name)
    return ClusterSpec(
        name=name, gpu_type=gpu_type, gpus=gpus, machine_type="", vm_max=0, regions=()
    )
