"""Heads of the chain that were kept elsewhere."""

from __future__ import annotations

import pytest

from core.audit_anchors import AuditAnchor, anchor_faults, anchor_of, anchor_text
from core.audit_log import AuditLink
from tests.builders import at

HASH = bytes(range(32))
ANCHOR = AuditAnchor(AuditLink(7, HASH), at(0))


def test_an_anchor_reads_as_it_was_written() -> None:
    """Its place is its day and number."""
    assert anchor_of(anchor_text(ANCHOR)) == ANCHOR
    assert ANCHOR.key == "20260101/7/head.json"


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"number": "x"}', b"\xff"])
def test_what_is_no_anchor_is_none(text: bytes) -> None:
    assert anchor_of(text) is None


@pytest.mark.parametrize(
    ("found", "last", "words"),
    [
        ({7: HASH}, 9, []),
        ({}, 5, ["links 6 to 7 are missing at the end: the anchor of 2026-01-01 12:00:00 UTC"]),
        ({}, 6, ["link 7 is missing at the end"]),
        ({}, 9, ["link 7 is missing: the anchor of 2026-01-01 12:00:00 UTC has it"]),
        ({7: bytes(32)}, 9, ["link 7 is not the one that was anchored at 2026-01-01 12:00:00 UTC"]),
    ],
)
def test_another_chain_than_the_anchored_one_is_named(
    found: dict[int, bytes], last: int, words: list[str]
) -> None:
    """Cut off at its end, or written anew as a whole."""
    faults = [fault.words for fault in anchor_faults([ANCHOR], found, last)]
    assert len(faults) == len(words)
    assert all(told.startswith(begin) for told, begin in zip(faults, words, strict=True))
