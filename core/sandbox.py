"""What a job may use of its VM: configuration and workers share these words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

GB = 1000**3
MB = 1000**2


@dataclass(frozen=True, slots=True)
class SandboxRules:
    """The same for all jobs of a deployment. Every bound is a whole number above 0."""

    outputs_max_gb: int = 100
    """What one attempt may leave in its output directory; holes of sparse files count."""
    log_max_mb: int = 1000
    """Of one attempt; the job goes on, the rest of its output is dropped."""
    status_max_mb: int = 64
    """Of one attempt's status file; the rest is not read."""

    @property
    def outputs_max(self) -> int:
        return self.outputs_max_gb * GB

    @property
    def log_max(self) -> int:
        return self.log_max_mb * MB

    @property
    def status_max(self) -> int:
        return self.status_max_mb * MB


BOUND_MAX = 1_000_000
"""Of each bound, in its own unit."""
SANDBOX_WORDS = (
    f"a JSON object with any of {', '.join(field.name for field in fields(SandboxRules))}"
)


def sandbox_of(words: object) -> SandboxRules | None:
    """The rules from plain values, as instance metadata carries them; None if they are wrong."""
    if not isinstance(words, Mapping):
        return None
    known = {field.name for field in fields(SandboxRules)}
    for name, value in words.items():
        if name not in known or isinstance(value, bool) or not isinstance(value, int):
            return None
        if not 1 <= value <= BOUND_MAX:
            return None
    return SandboxRules(**words)
