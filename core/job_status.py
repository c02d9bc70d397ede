"""Where a job is on its road. core/job.py says what leads from one to the next."""

from __future__ import annotations

from enum import StrEnum


class JobStatus(StrEnum):
    """Where a job is on its road."""

    QUEUED = "QUEUED"
    """Valid; waits in the queue, for quota or for other jobs."""
    PROVISIONING = "PROVISIONING"
    """Admitted: it counts as demand for a VM, and is bound to none."""
    ASSIGNED = "ASSIGNED"
    """A VM (of a gang: every VM) holds the lease; the start is sent."""
    STARTING = "STARTING"
    """Claimed by the worker, not running yet."""
    RUNNING = "RUNNING"
    """Its command runs."""
    PREEMPTING = "PREEMPTING"
    """Told to save its work and stop for another job; it goes back to the queue."""
    STOPPING = "STOPPING"
    """Told to end: SIGTERM, then the grace time."""
    SUCCEEDED = "SUCCEEDED"
    """Final: it ended with exit code 0 and its outputs are stored."""
    FAILED = "FAILED"
    """Final, with a reason."""
    CANCELLED = "CANCELLED"
    """Final: somebody stopped it, or what it waited for ended badly."""

    @property
    def final(self) -> bool:
        """Final states absorb: nothing ever leaves them."""
        return self in FINAL

    @property
    def leased(self) -> bool:
        """A VM works for the job in this state."""
        return self in LEASED


_S = JobStatus
FINAL = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED})
WAITING = frozenset({_S.QUEUED, _S.PROVISIONING})
LEASED = frozenset({_S.ASSIGNED, _S.STARTING, _S.RUNNING, _S.PREEMPTING, _S.STOPPING})
