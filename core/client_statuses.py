"""One state machine, five vocabularies: how clients of other systems call our statuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.job import JobStatus

S = JobStatus


@dataclass(frozen=True, slots=True)
class Words:
    """One status, in the words of each family of clients."""

    v1: str
    """pipeline-zen and its customer API."""
    definition: str
    """Clients that submit a `definition`."""
    multi_tenant: str
    unified: str
    """UnifiedJob."""
    tgpu: str


WORDS: Mapping[JobStatus, Words] = {
    S.QUEUED: Words("NEW", "pending", "pending", "Waiting", "queued"),
    S.PROVISIONING: Words("WAIT_FOR_VM", "pending", "pending", "Pending", "queued"),
    S.ASSIGNED: Words("FOUND_VM", "assigned", "scheduled", "Pending", "queued"),
    S.STARTING: Words("DETACHED_VM", "assigned", "scheduled", "Pending", "queued"),
    S.RUNNING: Words("RUNNING", "running", "running", "Running", "running"),
    S.PREEMPTING: Words("RUNNING", "running", "preempted", "Migrating", "running"),
    S.STOPPING: Words("STOPPING", "running", "running", "Running", "running"),
    S.SUCCEEDED: Words("COMPLETED", "succeeded", "completed", "Complete", "finished"),
    S.FAILED: Words("FAILED", "failed", "failed", "Failed", "failed"),
    S.CANCELLED: Words("STOPPED", "aborted", "cancelled", "Failed", "failed"),
}


def statuses_called(word: str) -> tuple[JobStatus, ...]:
    """Our statuses that clients with a `definition` call so."""
    return tuple(status for status, words in WORDS.items() if words.definition == word)


TGPU_PRIORITY_STEP = 100
_PRIORITY_HIGHEST = 9999


def priority_of_tgpu(priority: int) -> int:
    """tgpu counts 0, 1, 2…, where 5 is normal: 1–4 are low here, 5–9 normal, 10–19 high, 20 and
    more urgent. Larger stays larger, up to our highest."""
    return max(0, min(priority * TGPU_PRIORITY_STEP, _PRIORITY_HIGHEST))


def tgpu_priority(priority: int) -> int:
    """Our priority in tgpu's numbers."""
    return priority // TGPU_PRIORITY_STEP
