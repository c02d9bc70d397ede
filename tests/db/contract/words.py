"""What the parts of the contract share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from core.changes import (
    JobNote,
    Send,
)
from core.job import JobStatus, TimelineEntry
from core.messages import OutMessage
from tests.db.builders import (
    at,
)

ExpireLeader = Callable[[], Awaitable[None]]
EndSession = Callable[[], Awaitable[None]]


def note(uid: str, words: str, dedup_key: str | None = None) -> JobNote:
    entry = TimelineEntry(
        at=at(1),
        event="note",
        from_status=None,
        to_status=JobStatus.QUEUED,
        attempt=0,
        reason=words,
        data={"deep": [1, {"x": None}]},
        dedup_key=dedup_key,
    )
    return JobNote(uid, entry)


def send(words: bytes) -> Send:
    return Send(OutMessage("topic", words, {"k": "v"}, "key"))
