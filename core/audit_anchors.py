"""Heads of the audit log's chain that were written down elsewhere, where nobody can change them.

An owner of the database can rewrite the whole chain, or cut its end off; not what an anchor
says of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from core.audit_log import AuditFault, AuditLink


@dataclass(frozen=True, slots=True)
class AuditAnchor:
    """The head of the chain at one moment."""

    head: AuditLink
    at: datetime

    @property
    def key(self) -> str:
        """Where it is stored: by day, so that a page of names stays short."""
        return f"{self.at.astimezone(UTC):%Y%m%d}/{self.head.number}/{FILE}"


FILE = "head.json"
"""An anchor's object, below its day and number."""
ANCHOR_BYTES_MAX = 1000


def anchor_text(anchor: AuditAnchor) -> bytes:
    """As it is stored, for people too."""
    words = {
        "number": anchor.head.number,
        "hash": anchor.head.hash.hex(),
        "at": anchor.at.astimezone(UTC).isoformat(),
    }
    return json.dumps(words).encode() + b"\n"


def anchor_of(text: bytes) -> AuditAnchor | None:
    """None: this is no anchor."""
    try:
        words = json.loads(text)
        head = AuditLink(int(words["number"]), bytes.fromhex(words["hash"]))
        return AuditAnchor(head, datetime.fromisoformat(words["at"]))
    except (ValueError, TypeError, KeyError):
        return None


def anchor_faults(
    anchors: Iterable[AuditAnchor], found: Mapping[int, bytes], last: int
) -> Iterator[AuditFault]:
    """Where the chain is not the one that was anchored. `found`: the hash of each link with the
    number of an anchor; `last`: the number of the chain's last link."""
    for anchor in anchors:
        number, at = anchor.head.number, f"{anchor.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        stored = found.get(number)
        if number > last:
            more = number > last + 1
            gone = f"links {last + 1} to {number} are" if more else f"link {number} is"
            yield AuditFault(None, f"{gone} missing at the end: the anchor of {at} has them")
        elif stored is None:
            yield AuditFault(None, f"link {number} is missing: the anchor of {at} has it")
        elif stored != anchor.head.hash:
            words = f"link {number} is not the one that was anchored at {at}: the chain up to there"
            yield AuditFault(None, f"{words} was written anew")
