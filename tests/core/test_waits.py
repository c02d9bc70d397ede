"""What a waiting job met is folded into few notes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from core.waits import (
    REASON_MAX,
    REPEAT_S,
    WaitKind,
    WaitNote,
    WaitNotes,
    WaitRow,
    fold_key,
    folded,
)

K = WaitKind
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def tried(seconds: float, reason: str = "no room") -> WaitNote:
    return WaitNote("job", K.PREEMPTION, "", reason, at(seconds))


def test_reasons_that_differ_in_numbers_are_one() -> None:
    """The moment at which a block ends, a price, a count; not the region."""
    one = fold_key("us-east1 stockout until 12:05:00 UTC; 3 VMs at $1.20 are wanted")
    assert one == fold_key("us-east1 stockout until 12:07:30 UTC; 11 VMs at $0.9 are wanted")
    where = "the zone 'projects/p/zones/us-east1-{}' is full, vm zen-1xl4-us-east1-vm-{}"
    assert fold_key(where.format("a", "ab3d")) == fold_key(where.format("b", "zzzz"))
    assert one != fold_key("us-west1 stockout until 12:05:00 UTC; 3 VMs at $1.20 are wanted")


def test_row_has_the_first_and_the_last_and_the_newest_words() -> None:
    """Also when notes come out of order, and long words are cut."""
    notes = [tried(10, "a 1"), tried(30, "a 3"), tried(20, "a 2")]
    row = None
    for note in notes:
        row = folded(row, note)
    assert row == WaitRow(K.PREEMPTION, "", "a 3", at(10), at(30), 3)
    assert len(folded(None, tried(0, "x" * 9999)).reason) == REASON_MAX


def test_what_happens_again_is_written_once_a_minute() -> None:
    """The first at once; then the repeats of a minute, counted."""
    notes = WaitNotes()
    notes.happened(tried(0))
    assert notes.take(at(0)) == [tried(0)]
    for second in (10, 20, 30):
        notes.happened(tried(second))
        assert notes.take(at(second)) == []
    (written,) = notes.take(at(REPEAT_S))
    assert (written.at, written.count) == (at(30), 3)
    assert notes.take(at(3 * REPEAT_S)) == []
    notes.happened(tried(400))
    assert notes.take(at(400)) == [tried(400)], "after a pause it is news"


def test_what_stands_is_written_when_it_begins_and_when_it_ends() -> None:
    """However often it is looked at in between, and whatever numbers change."""
    notes = WaitNotes()
    for second in range(100):
        notes.stands({("job", "r"): f"stockout until {second}"}, K.NOT_ASKED, at(second))
    begun = notes.take(at(99))
    assert [(note.reason, note.at, note.count) for note in begun] == [
        ("stockout until 0", at(0), 1)
    ]
    notes.stands({("job", "r"): "too dear"}, K.NOT_ASKED, at(100))
    told = [(note.reason, note.at, note.count) for note in notes.take(at(100))]
    assert told == [("stockout until 0", at(99), 0), ("too dear", at(100), 1)]
    notes.stands({}, K.NOT_ASKED, at(101))
    assert notes.take(at(101)) == []


@given(st.lists(st.tuples(st.integers(0, 500), st.sampled_from("abc")), max_size=60))
def test_nothing_is_lost_by_folding(events: list[tuple[int, str]]) -> None:
    """Whatever happens when: all of it is counted in the end."""
    notes, counted = WaitNotes(), 0
    for second, reason in sorted(events):
        notes.happened(tried(second, reason))
        counted += sum(note.count for note in notes.take(at(second)))
    counted += sum(note.count for note in notes.take(at(500 + REPEAT_S)))
    assert counted == len(events)
