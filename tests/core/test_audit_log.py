"""The chain of the audit log names whatever was done to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from core.audit_log import (
    Actor,
    AuditAction,
    AuditEntry,
    AuditRow,
    faults_in,
    links_for,
    unlinked_fault,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ADA = Actor("key:a", "ada", "10.0.0.1", "r1")


def chain(count: int) -> list[AuditRow]:
    rows = [
        AuditRow(
            seq, AuditEntry(NOW + timedelta(seconds=seq), ADA, AuditAction.SUBMIT, f"j{seq}", "red")
        )
        for seq in range(10, 10 + count)
    ]
    return [
        replace(row, link=link) for row, (_, link) in zip(rows, links_for(rows, None), strict=True)
    ]


CHAINS = st.integers(2, 8).map(chain)


@given(CHAINS, st.data())
def test_links_go_on_where_the_last_ended(rows: list[AuditRow], data: st.DataObject) -> None:
    """Linked in two batches or in one: the same chain, without a fault."""
    cut = data.draw(st.integers(1, len(rows) - 1))
    bare = [replace(row, link=None) for row in rows]
    rest = links_for(bare[cut:], rows[cut - 1].link)
    assert [link for _, link in rest] == [row.link for row in rows[cut:]]
    assert not list(faults_in(rows))
    assert not list(faults_in(rows[cut:], rows[cut - 1].link))


@given(CHAINS, st.data())
def test_a_flipped_row_is_named(rows: list[AuditRow], data: st.DataObject) -> None:
    """Whatever of it was changed."""
    at = data.draw(st.integers(0, len(rows) - 1))
    entry = rows[at].entry
    changed = data.draw(
        st.sampled_from(
            [
                replace(entry, target="other"),
                replace(entry, tenant_id="blue"),
                replace(entry, outcome="refused"),
                replace(entry, at=NOW),
                replace(entry, actor=replace(ADA, principal="key:b")),
                replace(entry, detail={"role": "admin"}),
            ]
        )
    )
    rows[at] = replace(rows[at], entry=changed)
    assert [fault.seq for fault in faults_in(rows)] == [rows[at].seq]


@given(CHAINS, st.data())
def test_a_dropped_row_is_missed(rows: list[AuditRow], data: st.DataObject) -> None:
    """All but the last: the head says how far the chain went."""
    at = data.draw(st.integers(0, len(rows) - 2))
    gone = rows.pop(at)
    (fault,) = faults_in(rows)
    assert gone.link is not None
    assert f"link {gone.link.number} is missing" in fault.words


@given(st.integers(3, 8).map(chain), st.data())
def test_swapped_rows_are_named(rows: list[AuditRow], data: st.DataObject) -> None:
    """Two rows that changed places in the chain."""
    at = data.draw(st.integers(0, len(rows) - 2))
    one, other = rows[at], rows[at + 1]
    rows[at], rows[at + 1] = replace(other, link=one.link), replace(one, link=other.link)
    assert {fault.seq for fault in faults_in(rows)} == {one.seq, other.seq}


def test_rows_without_a_link_are_told() -> None:
    """They are not protected yet."""
    bare = [replace(row, link=None) for row in chain(12)]
    fault = unlinked_fault(bare)
    assert fault is not None
    assert fault.words.endswith("and 2 more")
    assert unlinked_fault([]) is None
