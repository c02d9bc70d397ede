"""Jobs in the words of the command lines `tgpu` and `gpu-cli`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.client import Json

TGPU = "tgpu"
GPU_CLI = "gpu-cli"


def in_words_of(job: Json, words: str) -> Json:
    """What the command line of that name says differently of a job."""
    from core.client_statuses import tgpu_priority

    state = state_in(job["status"], words)
    if words != TGPU:
        return {"state": state}
    return {"state": state, "priority": tgpu_priority(job["priority"])}


def state_in(status: str, words: str) -> str:
    """A status of ours in the words of that command line."""
    from core.client_statuses import WORDS
    from core.job_status import JobStatus

    told = WORDS[JobStatus(status)]
    return told.tgpu if words == TGPU else told.multi_tenant
