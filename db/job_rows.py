"""Rows of the table `jobs`, as they are written."""

from __future__ import annotations

from dataclasses import dataclass

from core.job import Job
from core.members import SharedMember
from db.rows import JOB_BIRTH, JOB_STATE, BulkColumn, Shape
from db.shared_specs import own_document
from db.spec_documents import spec_document

AT_DEFAULT = frozenset(
    {
        *("lease_id", "vm_name", "vm_uid", "lease_region", "lease_zone", "slots", "stop_reason"),
        *("offer", "failures", "losses", "preemptions", "exit_code", "started_at", "ended_at"),
        *("retry_at", "gang_region", "holds", "attained_gpu_s", "saved_s", "saved_share"),
    }
)
"""Columns that stand at the default of the table when a job begins."""


@dataclass(frozen=True, slots=True)
class JobWrite:
    """A job with what its row holds besides."""

    job: Job
    content_hash: str
    last_seq: int
    shared: SharedMember | None = None

    @property
    def document(self) -> str:
        spec = self.job.spec
        return spec_document(spec) if self.shared is None else own_document(spec, self.shared)


def _of_job(field: BulkColumn[Job]) -> BulkColumn[JobWrite]:
    return BulkColumn(field.name, field.kind, lambda write: field.value(write.job))


_SEQ: BulkColumn[JobWrite] = BulkColumn("last_seq", "int", lambda w: w.last_seq)
_HASH: BulkColumn[JobWrite] = BulkColumn("content_hash", "text", lambda w: w.content_hash)
_SPEC: BulkColumn[JobWrite] = BulkColumn("spec", "jsonb", lambda w: w.document)
_SPEC_ID: BulkColumn[JobWrite] = BulkColumn(
    "spec_id", "uuid", lambda w: w.shared and w.shared.spec_id
)
JOB_MOVE: Shape[JobWrite] = Shape((*map(_of_job, JOB_STATE), _SEQ))
JOB_NEW: Shape[JobWrite] = Shape(
    (*map(_of_job, (*JOB_STATE, *JOB_BIRTH)), _SPEC, _SPEC_ID, _SEQ, _HASH)
)
