"""What jobs compute on VMs, and what must never happen there: twice at once, a second time, on GPUs
of another one. Told by the pretend workers themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from core.messages import Size, StartJob
from sim.virtual.trace import Trace


@dataclass(slots=True)
class Span:
    """A job's processes on a VM."""

    order: StartJob
    vm: str


class Computing:
    """`sim.virtual.pretend_jobs.ComputeLog`. `broken` ends the run; `check_start` knows the other
    members of a gang."""

    def __init__(
        self, trace: Trace, broken: Callable[..., None], check_start: Callable[[StartJob], None]
    ) -> None:
        self._trace, self._broken, self._check_start = trace, broken, check_start
        self.spans: dict[str, Span] = {}
        """Lease → what computes for it now, or stands still."""
        self.started: set[str] = set()
        self.exits: dict[str, int | None] = {}
        self.runs: Counter[str] = Counter()
        """job → how often it was started on a VM."""
        self._sizes: dict[str, int] = {}
        """Lease → the newest size that the job was told."""
        self._going: dict[str, str] = {}
        """job → lease of the computation that runs now."""

    def begins(self, order: StartJob, vm: str) -> None:
        """One VM at a time, and each lease once."""
        job, lease = order.spec.job_id, order.lease_id
        words = f"{job} attempt {order.attempt} lease {lease} on {vm}"
        self._trace.note("compute", f"begins {words}", job, order.vm_name)
        if lease in self.started:
            self._broken("I10", f"started twice: {words}", job, order.vm_name)
        for span in self.spans.values():
            if span.vm == vm and set(span.order.slots) & set(order.slots):
                there = span.order.spec.job_id
                self._broken("slots", f"{words}: {there} has its GPUs there", job, order.vm_name)
        self._check_start(order)
        self.started.add(lease)
        self.runs[job] += 1
        self.spans[lease] = Span(order, vm)
        self._goes(lease)

    def pauses(self, lease_id: str) -> None:
        span = self.spans[lease_id]
        job = span.order.spec.job_id
        self._trace.count_fault("worker_froze_its_job")
        self._trace.note("compute", f"frozen {job} lease {lease_id}", job, span.order.vm_name)
        if self._going.get(job) == lease_id:
            del self._going[job]

    def goes_on(self, lease_id: str) -> None:
        span = self.spans[lease_id]
        job = span.order.spec.job_id
        self._trace.count_fault("worker_thawed_its_job")
        self._trace.note("compute", f"thawed {job} lease {lease_id}", job, span.order.vm_name)
        self._goes(lease_id)

    def ends(self, lease_id: str, code: int | None) -> None:
        """`code` is None when the machine or its agent went away with it."""
        span = self.spans.pop(lease_id)
        self.exits[lease_id] = code
        job = span.order.spec.job_id
        words = f"ends {job} lease {lease_id}, exit code {code}"
        self._trace.note("compute", words, job, span.order.vm_name)
        if self._going.get(job) == lease_id:
            del self._going[job]

    def resized(self, order: StartJob, size: Size) -> None:
        """Told by its agent, in order: a size never goes back in time, or out of its bounds."""
        job, ranks = order.spec.job_id, [peer.rank for peer in size.members]
        self._trace.note("compute", f"{job} is one of {ranks}", job, order.vm_name)
        self._trace.count_fault("job_resized")
        first = self._sizes.get(order.lease_id, 0)
        if size.generation <= first or order.rank not in ranks or len(ranks) > size.most:
            self._broken("I3", f"{job} was told of {ranks}, generation {size.generation}", job)
        self._sizes[order.lease_id] = size.generation

    def _goes(self, lease_id: str) -> None:
        span = self.spans[lease_id]
        job = span.order.spec.job_id
        other = self._going.get(job)
        if other is not None and other != lease_id:
            there = self.spans[other]
            words = f"attempt {there.order.attempt} on {there.vm} and {span.order.attempt}"
            what = f"{job} computes on two VMs at once: {words} on {span.vm}"
            self._broken("I2", what, job, there.order.vm_name, span.order.vm_name)
        self._going[job] = lease_id
