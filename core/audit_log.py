"""The audit log: who changed what, as a chain of hashes.

A row is written in the transaction of the change. The leader links rows afterwards, so that
replicas do not wait for each other: each link holds the hash of its row and of the link before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from core.job_fields import JobSpec

# Made once: json.dumps makes a new one in each call with options.
_hashed_text = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
FIRST = bytes(32)
"""What the first link follows."""


class AuditAction(StrEnum):
    """What was done."""

    SUBMIT = "job.submit"
    STOP = "job.stop"
    STOP_GROUP = "group.stop"
    TENANT_SET = "tenant.set"
    TENANT_DELETE = "tenant.delete"
    CONFIG_CHANGE = "config.change"
    CONFIG_ROLLBACK = "config.rollback"
    DEAD_LETTER_REPLAY = "dead_letter.replay"
    KEY_CREATE = "key.create"
    KEY_ROTATE = "key.rotate"
    KEY_REVOKE = "key.revoke"
    SIGN_IN = "session.sign_in"
    SIGN_OUT = "session.sign_out"
    SESSION_REVOKE = "session.revoke"
    GRANT_ADD = "grant.add"
    GRANT_REMOVE = "grant.remove"
    SECRET_SET = "secret.set"  # noqa: S105  # no password
    SECRET_DELETE = "secret.delete"  # noqa: S105  # no password
    SECRET_REKEY = "secret.rekey"  # noqa: S105  # no password


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did it, and from where."""

    principal: str
    user_id: str = ""
    address: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change of state by a principal."""

    at: datetime
    actor: Actor
    action: AuditAction
    target: str
    tenant_id: str = ""
    outcome: str = "done"
    detail: Mapping[str, str] = field(default_factory=dict)
    """What else matters: on whose behalf, which role, which version. Never a secret."""


@dataclass(frozen=True, slots=True)
class AuditLink:
    """The place of a row in the chain."""

    number: int
    """Counts from 1 without gaps."""
    hash: bytes


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A stored entry; without a link until the leader has been there."""

    seq: int
    entry: AuditEntry
    link: AuditLink | None = None


@dataclass(frozen=True, slots=True)
class AuditFault:
    """Where the chain is broken."""

    seq: int | None
    """The row, if there is one."""
    words: str


def job_target(spec: JobSpec) -> str:
    """A job as the audit log names it."""
    return f"job/{spec.tenant_id}/{spec.user_id}/{spec.job_id}"


def link_hash(previous: bytes, number: int, row: AuditRow) -> bytes:
    """Of the row, its number, and all that came before."""
    entry, actor = row.entry, row.entry.actor
    words = [
        *(number, row.seq, entry.at.astimezone(UTC).isoformat()),
        *(actor.principal, actor.user_id, actor.address, actor.request_id),
        *(entry.action, entry.target, entry.tenant_id, entry.outcome),
        sorted(entry.detail.items()),
    ]
    return hashlib.sha256(previous + _hashed_text(words).encode()).digest()


def links_for(rows: Iterable[AuditRow], head: AuditLink | None) -> list[tuple[int, AuditLink]]:
    """(seq, link) of rows that have none yet, in their order, behind the head."""
    number, previous = (head.number, head.hash) if head is not None else (0, FIRST)
    made: list[tuple[int, AuditLink]] = []
    for row in rows:
        number += 1
        previous = link_hash(previous, number, row)
        made.append((row.seq, AuditLink(number, previous)))
    return made


def faults_in(rows: Iterable[AuditRow], before: AuditLink | None = None) -> Iterator[AuditFault]:
    """What is wrong with linked rows in the order of their numbers, behind the link `before`. After
    a fault the chain goes on with what is stored, so that each fault is told once."""
    number, previous = (before.number, before.hash) if before is not None else (0, FIRST)
    for row in rows:
        link = row.link
        assert link is not None, "only linked rows have an order"
        if link.number != number + 1:
            missing = _span(number + 1, link.number - 1)
            yield AuditFault(None, f"{missing} missing before link {link.number}")
        elif link_hash(previous, link.number, row) != link.hash:
            yield AuditFault(row.seq, f"row {row.seq} (link {link.number}) was changed or replaced")
        number, previous = link.number, link.hash


def unlinked_fault(rows: Sequence[AuditRow]) -> AuditFault | None:
    """Rows without a link are not protected yet."""
    if not rows:
        return None
    seqs = ", ".join(str(row.seq) for row in rows[:10])
    more = f" and {len(rows) - 10} more" if len(rows) > 10 else ""
    return AuditFault(rows[0].seq, f"not linked yet: {seqs}{more}")


def _span(first: int, last: int) -> str:
    return f"link {first} is" if first == last else f"links {first} to {last} are"
