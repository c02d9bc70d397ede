"""Versions of the configuration: values, and the port behind which they are kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from core.audit_log import Actor, AuditAction, AuditEntry

DIFF_CHARS_MAX = 2000
FILES_MAX = 1000
"""Files that were not looked at for the longest time are forgotten: hosts come and go."""
VERSIONS_MAX = 1000
"""Older ones are forgotten: a program that edits the file each minute fills no disk."""


@dataclass(frozen=True, slots=True)
class ConfigVersion:
    """One configuration that was in force. The newest is the one that is."""

    version: int
    """Counts from 1 without gaps."""
    at: datetime
    author: str
    """Who brought it: a replica that read its file, or a person by name."""
    source: str
    """The file, or the version that was rolled back to."""
    digest: str
    """Of what all replicas share in it: equal content has equal ones."""
    document: Mapping[str, Any]
    """As written, without secrets."""
    diff: tuple[str, ...]
    """Against the version before, in words."""
    rollback_of: int | None = None
    """The version whose document it restores; None: a file brought it."""
    actor: Actor | None = field(default=None, compare=False)
    """Who brought it, if it was no file; not stored here, but in the audit log."""


@dataclass(frozen=True, slots=True)
class FileSeen:
    """What a file said when it was last considered."""

    host: str
    """Replicas on one machine share a file, those on two may have different ones at one path."""
    path: str
    digest: str


@dataclass(frozen=True, slots=True)
class ConfigPage:
    """Newest first."""

    rows: tuple[ConfigVersion, ...]
    total: int
    next_before: int | None
    """Ask for versions before this one to go on."""


def audited(new: ConfigVersion) -> AuditEntry:
    """The row of the audit log for a version that is recorded: who brought it by name, or the
    replica that read it in its file."""
    rolled = new.rollback_of is not None
    # In words: what drains a cluster shall be found here too.
    changes = "; ".join(new.diff)[:DIFF_CHARS_MAX]
    detail = {"source": new.source, "changes": str(len(new.diff)), "diff": changes}
    return AuditEntry(
        at=new.at,
        actor=new.actor or Actor(f"replica:{new.author}"),
        action=AuditAction.CONFIG_ROLLBACK if rolled else AuditAction.CONFIG_CHANGE,
        target=f"config/{new.version}",
        detail=detail,
    )


class ConfigVersions(Protocol):
    """The one truth about which configuration is in force. Every call may raise StoreDown."""

    async def newest_number(self) -> int:
        """0: nothing was recorded yet. Asked every second by every replica."""
        ...

    async def newest(self) -> ConfigVersion | None: ...

    async def version(self, number: int) -> ConfigVersion:
        """NotFound if there is none, or not any more."""
        ...

    async def history(self, size: int, before: int | None) -> ConfigPage: ...

    async def last_with(self, digest: str) -> int | None:
        """The newest version with this very content that a file has brought, not a rollback."""
        ...

    async def file_seen(self, host: str, path: str) -> str | None:
        """The digest that this file had when it was last considered. Of a file that never was: of
        the newest one at the same path elsewhere, since hosts may be made anew for each start."""
        ...

    async def saw(self, seen: FileSeen) -> None:
        """The file was considered: until it changes, it is no edit."""
        ...

    async def jobs_in(self, clusters: Collection[str]) -> Mapping[str, int]:
        """Jobs that have not ended, of those of these clusters that have any."""
        ...

    async def record(
        self, new: ConfigVersion, unused: Collection[str], seen: FileSeen | None = None
    ) -> bool:
        """Guards: its number is the next one, and no job of the clusters `unused` is left. Both
        are checked where it is written, so two replicas cannot record the same number. False:
        the world moved, look again. `seen`: the file that brought it, considered by this. Its
        row of the audit log is written with it."""
        ...
