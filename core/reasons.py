"""Reasons: values with a kind that code may ask for, and words that people read.

No code reads the words. A new case is a new kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RefusalKind(StrEnum):
    """Which guard refused an atomic batch."""

    EXISTS = "exists"
    """The job, the VM or its name is there already."""
    MISSING = "missing"
    """What the batch changes is not stored."""
    MOVED = "moved"
    """Somebody else changed it since it was read."""
    LIMIT = "limit"
    """The cluster would count more VMs than its `vm_max`."""
    QUOTA = "quota"
    """The tenant would hold more than its quota."""
    UNSTORABLE = "unstorable"
    """The database cannot hold it: trying again changes nothing."""


@dataclass(frozen=True, slots=True)
class CommitRefusal:
    """Why an atomic batch was not written."""

    kind: RefusalKind
    words: str

    def __str__(self) -> str:
        return self.words
