"""What Prometheus reads: counters kept by this replica, gauges asked of the store per scrape."""

from __future__ import annotations

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from core.alerts import ALERTS
from core.job import WAITING, Job, JobStatus
from core.reads import ServiceSummary, VmCount
from core.vm import vm_word

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_CYCLE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_WAIT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 30, 60, 180, 600, 1800, 3600, 14400, 86400)


class Metrics:
    """One registry per service, so that two services in one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._make_counters()
        self._make_gauges()

    def _make_counters(self) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"gpu_scheduler_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            full, registry = f"gpu_scheduler_{name}", self.registry
            return Histogram(full, text, labels, buckets=buckets, registry=registry)

        self._jobs = counter("jobs", "Jobs that reached a status.", "status", "cluster")
        words = (
            "Attempts that gave way: kind is spot (reclaimed by the cloud) or yield (preempted)."
        )
        self._preemptions = counter("preemptions", words, "cluster", "kind")
        words = "Calls to the cloud by kind and outcome."
        self._cloud_calls = counter("cloud_calls", words, "kind", "outcome")
        words = "Dollars of settled VM time by what it was spent on; counted by the leader."
        self._cost = counter("cost_usd", words, "kind", "cluster")
        words = "Messages on the heartbeat topic that prove nothing about their sender, by reason."
        self._unproven = counter("messages_refused", words, "reason")
        words = "Seconds of one decision cycle."
        self._cycle = histogram("scheduling_latency", words, _CYCLE_BUCKETS)
        words = "Jobs that started after they had been told when; counted by the leader."
        self._told = counter("eta_starts", words, "cluster")
        words = "Those of them that started before the first p50 or p90 that they were told."
        self._held = counter("eta_held", words, "cluster", "quantile")
        words = "Seconds from submission to the first RUNNING."
        self._wait = histogram("wait_seconds", words, _WAIT_BUCKETS, "cluster")

    def _make_gauges(self) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"gpu_scheduler_{name}", text, labels, registry=self.registry)

        self._queue = gauge("queue_size", "Jobs that wait.", "cluster")
        words = "GPUs of VMs that have work, divided by GPUs of live VMs."
        self._utilization = gauge("gpu_utilization", words, "cluster")
        self._vms = gauge("vms", "VMs by state.", "cluster", "region", "state")
        words = "What the VMs that are billed now cost by the hour."
        self._burn = gauge("burn_usd_per_hour", words, "cluster")
        self._outbox = gauge("outbox", "Messages the bus has not confirmed.")
        self._leader = gauge("leader", "1 if this replica leads.")
        self._alerts = gauge("alerts_open", "Open alerts.")
        self._alerts_by_kind = gauge("alerts", "Open alerts by kind.", "kind", "severity")
        words = (
            "1 if the store answered this scrape; the other gauges are of this scrape only then."
        )
        self._database = gauge("database_up", words)

    # --- called by the loop and the API ---------------------------------------------------

    def cycle(self, seconds: float) -> None:
        """One decision cycle took this long."""
        self._cycle.observe(seconds)

    def submitted(self, first: Job, count: int) -> None:
        """The jobs of a submission were stored."""
        self._jobs.labels(first.status, first.cluster).inc(count)

    def job_moved(self, before: Job, after: Job) -> None:
        """A step was committed."""
        if before.status is after.status:
            return
        self._jobs.labels(after.status, after.cluster).inc()
        if after.preemptions > before.preemptions:
            self._preemptions.labels(after.cluster, "spot").inc()
        elif after.times_preempted > before.times_preempted:
            self._preemptions.labels(after.cluster, "yield").inc()
        # The queue clock still shows the submission: it runs for the first time.
        first = after.queued_since == after.submitted_at
        if after.status is JobStatus.RUNNING and first and after.started_at is not None:
            waited = (after.started_at - after.submitted_at).total_seconds()
            self._wait.labels(after.cluster).observe(max(0.0, waited))

    def eta(self, cluster: str, *, p50: bool, p90: bool) -> None:
        """A job has started that was told when: whether before its first p50, and its p90."""
        self._told.labels(cluster).inc()
        self._held.labels(cluster, "p50").inc(p50)
        self._held.labels(cluster, "p90").inc(p90)

    def message_refused(self, reason: str) -> None:
        self._unproven.labels(reason).inc()

    def cloud_call(self, kind: str, outcome: str) -> None:
        """A call to the cloud was answered, or was not."""
        self._cloud_calls.labels(kind, outcome).inc()

    def cost(self, kind: str, cluster: str, usd: float) -> None:
        """So much VM time was settled."""
        self._cost.labels(kind, cluster).inc(usd)

    def leading(self, leads: bool) -> None:
        self._leader.set(1 if leads else 0)

    # --- called at a scrape ---------------------------------------------------------------

    def refresh(self, summary: ServiceSummary | None) -> None:
        """Gauges as they are now. None: the store is silent, and old numbers would be lies."""
        by_label = (self._queue, self._utilization, self._vms, self._burn, self._alerts_by_kind)
        for gauge in by_label:
            gauge.clear()
        self._database.set(0 if summary is None else 1)
        if summary is None:
            self._outbox.set(float("nan"))
            self._alerts.set(float("nan"))
            return
        self._outbox.set(summary.outbox)
        self._alerts.set(sum(summary.open_alerts.values()))
        for kind in ALERTS.values():
            count = summary.open_alerts.get(kind.name, 0)
            self._alerts_by_kind.labels(kind.name, kind.severity).set(count)
        self._set_queues(summary)
        self._set_vms(summary.vms)
        for cluster, usd_per_hour in summary.burn_usd_per_hour.items():
            self._burn.labels(cluster).set(usd_per_hour)

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)

    def _set_queues(self, summary: ServiceSummary) -> None:
        waiting: Tally[str] = Tally()
        for (cluster, status), count in summary.jobs.items():
            waiting[cluster] += count if status in WAITING else 0
        for cluster, count in waiting.items():
            self._queue.labels(cluster).set(count)

    def _set_vms(self, counts: tuple[VmCount, ...]) -> None:
        live: Tally[str] = Tally()
        busy: Tally[str] = Tally()
        for row in counts:
            self._vms.labels(row.cluster, row.region, vm_word(row.state, row.busy)).inc(row.count)
            live[row.cluster] += row.count if row.state.up else 0
            busy[row.cluster] += row.count if row.state.up and row.busy else 0
        # All VMs of a cluster have the same number of GPUs, so VMs divide as GPUs do.
        for cluster, vms in live.items():
            self._utilization.labels(cluster).set(busy[cluster] / vms if vms else 0.0)
