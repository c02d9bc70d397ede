"""What a job may use of its VM: configuration and workers share these words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

SHARED_DIRECTORY = "ZEN_SHARED_DIRECTORY"
"""Environment variable of an agent on a laptop: its jobs may read this directory."""
GB = 1000**3
MB = 1000**2


@dataclass(frozen=True, slots=True)
class SandboxRules:
    """The same for all jobs of a deployment. Every bound is a whole number above 0."""

    outputs_max_gb: int = 100
    """What one attempt may leave in its output directory; a job that leaves more fails with exit
    code 74, and nothing of it is stored. Holes of sparse files count."""
    log_max_mb: int = 1000
    """The log of one attempt; the job goes on, the rest of its output is dropped."""
    checkpoints_max_gb: int = 500
    """What a job may have in its checkpoint directory where that is kept in a bucket; a checkpoint
    with more is not stored, and the job's log says so."""
    checkpoints_keep: int = 3
    """How many checkpoints of a job a bucket keeps: the newest ones."""
    status_max_mb: int = 64
    """How much of one attempt's status file is read."""
    code_cache_max_gb: int = 20
    """Code of jobs that a VM keeps for the next ones; what was not used for longest goes first."""
    pids_max: int = 16_384
    """Processes and threads of one job, where the agent is root."""
    uid_first: int = 1_879_048_192
    """Where the agent is root, each job has a user of its own: from this number on. The default
    range is one that no distribution gives out."""
    uid_count: int = 268_435_455
    """How many numbers from `uid_first` on are for jobs."""

    @property
    def outputs_max(self) -> int:
        return self.outputs_max_gb * GB

    @property
    def code_cache_max(self) -> int:
        return self.code_cache_max_gb * GB

    @property
    def log_max(self) -> int:
        return self.log_max_mb * MB

    @property
    def checkpoints_max(self) -> int:
        return self.checkpoints_max_gb * GB

    @property
    def status_max(self) -> int:
        return self.status_max_mb * MB


BOUNDS = {
    "code_cache_max_gb": (1, 1_000_000),
    "outputs_max_gb": (1, 1_000_000),
    "log_max_mb": (1, 1_000_000),
    "checkpoints_max_gb": (1, 1_000_000),
    "checkpoints_keep": (1, 1000),
    "status_max_mb": (1, 1_000_000),
    "pids_max": (16, 4_000_000),
    "uid_first": (1000, 2**31 - 2),
    "uid_count": (1, 2**28),
}
"""The least and the most of each."""
SANDBOX_WORDS = (
    f"a JSON object with any of {', '.join(field.name for field in fields(SandboxRules))}"
)


def sandbox_of(words: object) -> SandboxRules | None:
    """The rules from plain values, as instance metadata carries them; None if they are wrong."""
    if not isinstance(words, Mapping):
        return None
    for name, value in words.items():
        if name not in BOUNDS or isinstance(value, bool) or not isinstance(value, int):
            return None
        least, most = BOUNDS[name]
        if not least <= value <= most:
            return None
    return SandboxRules(**words)
