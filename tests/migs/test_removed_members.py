"""What a group remembers of members that are gone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from core.mig import GroupError, MachineState, ManagedInstance, Refusal
from core.region_blocks import BlockKind
from migs.removed_members import EVERY, RECENT, ErrorHistory

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GROUP = ("us-east1", "g-mig")


def unborn(*names: str) -> list[ManagedInstance]:
    return [ManagedInstance(name, "us-east1-b", MachineState.NONE) for name in names]


def error(name: str, at: datetime) -> GroupError:
    return GroupError(at, name, Refusal(BlockKind.STOCKOUT, "", zone="us-east1-b"))


def look(history: ErrorHistory, now: datetime, *names: str) -> bool:
    """One observation that lists these members; True if the errors were asked for."""
    due = history.is_due(GROUP, unborn(*names), now)
    if due:
        history.asked(GROUP, now)
    return due


def test_first_look_owes_the_recent_past() -> None:
    """A new leader asks once; errors of before are not news."""
    history = ErrorHistory()
    assert look(history, NOW)
    old, new = error("old", NOW - RECENT), error("new", NOW - RECENT / 2)
    assert history.news(GROUP, [], [new, old], NOW) == (new,)
    assert not look(history, NOW + EVERY)


def test_asked_only_when_somebody_left_before_being_born() -> None:
    """As long as all members are there, their own errors say it all, and no call is made."""
    history = ErrorHistory()
    look(history, NOW)
    history.news(GROUP, [], [], NOW)
    later = NOW + EVERY
    assert not look(history, later, "a")
    assert not look(history, later, "a")
    assert look(history, later)


def test_asking_is_paced_and_not_forgotten() -> None:
    """Two that leave in short order cost one call; the second one's story is told later."""
    history = ErrorHistory()
    look(history, NOW, "a")
    history.news(GROUP, unborn("a"), [], NOW)
    assert not look(history, NOW + EVERY / 2)
    assert look(history, NOW + EVERY)


def test_each_error_is_told_once_and_never_of_a_member() -> None:
    """Google's list survives; what was told is not told again, and one that is still listed
    speaks for itself."""
    history = ErrorHistory()
    look(history, NOW, "here")
    first = error("gone", NOW)
    told = history.news(GROUP, unborn("here"), [first, error("here", NOW)], NOW)
    assert told == (first,)
    second = error("gone2", NOW + timedelta(seconds=1))
    assert history.news(GROUP, [], [second, first], NOW) == (second,)


def test_no_answer_leaves_the_debt() -> None:
    """A call that failed is made again, at its pace."""
    history = ErrorHistory()
    assert look(history, NOW)
    assert not look(history, NOW)
    assert look(history, NOW + EVERY)
