"""The leader tells people of subscriptions that were lost."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import AsyncMock

import pytest

from core.changes import ClearAlert, RaiseAlert
from core.errors import BusDown, Forbidden, StoreDown
from core.messages import SubscriptionFault
from scheduler.cycle.leadership import DatabaseClock, Leadership
from scheduler.cycle.subscription_watch import STANDS_S, SubscriptionWatch
from tests.builders import live
from tests.scheduler.cycle.test_outbox_relay import HandClock, Shelf

DELETED = SubscriptionFault("ear", "it was deleted", made_again=True)
REPLACED = SubscriptionFault("ear", "its filter is 'x'", made_again=False)


class Mender:
    """Finds what it is told to find."""

    def __init__(self) -> None:
        self.finds: list[SubscriptionFault] | Exception = []

    async def mend(self) -> Sequence[SubscriptionFault]:
        if isinstance(self.finds, Exception):
            raise self.finds
        return self.finds


async def watched() -> tuple[Mender, Shelf, SubscriptionWatch]:
    mender, shelf = Mender(), Shelf(clock=HandClock())
    leader = Leadership(shelf, "me", live(), DatabaseClock(shelf.clock))  # type: ignore[arg-type]
    await leader.renew()
    watch = SubscriptionWatch(
        mender.mend,
        ("ear",),
        shelf,  # type: ignore[arg-type]
        leader,
        shelf.clock,
    )
    return mender, shelf, watch


async def after(seconds: float, shelf: Shelf, watch: SubscriptionWatch) -> list[object]:
    """What is told then, while the lease is renewed."""
    shelf.clock.passed_s += seconds
    await watch._leadership.renew()
    shelf.batches.clear()
    await watch.look()
    return shelf.told


async def test_loss_is_told_and_stands_for_a_while() -> None:
    """Each deletion is told at once; ten minutes after the last one the alert is cleared."""
    mender, shelf, watch = await watched()
    mender.finds = [DELETED]
    (told,) = await after(0, shelf, watch)
    assert isinstance(told, RaiseAlert)
    assert (told.kind, told.subject) == ("subscription_lost", "ear")
    assert "it was deleted; it was made again" in told.message
    assert len(await after(3, shelf, watch)) == 1
    mender.finds = []
    assert await after(STANDS_S - 1, shelf, watch) == []
    (cleared,) = await after(2, shelf, watch)
    assert isinstance(cleared, ClearAlert)
    assert await after(STANDS_S, shelf, watch) == []


async def test_loss_is_told_later_where_the_database_was_away() -> None:
    """It was made again, so that the next look finds nothing; the alert is raised all the same."""
    mender, shelf, watch = await watched()
    mender.finds = [DELETED]
    commit, shelf.commit = shelf.commit, AsyncMock(side_effect=StoreDown("away"))  # type: ignore[method-assign]
    with pytest.raises(StoreDown):
        await watch.look()
    shelf.commit = commit  # type: ignore[method-assign]
    mender.finds = []
    (told,) = await after(3, shelf, watch)
    assert isinstance(told, RaiseAlert)
    assert await after(3, shelf, watch) == []


async def test_what_cannot_be_mended_is_told_once() -> None:
    """It stays at fault: the same words are not written every few seconds."""
    mender, shelf, watch = await watched()
    mender.finds = [REPLACED]
    assert len(await after(0, shelf, watch)) == 1
    assert await after(STANDS_S * 2, shelf, watch) == []
    mender.finds = Forbidden("subscription ear: Pub/Sub refuses our credentials")
    (told,) = await after(1, shelf, watch)
    assert isinstance(told, RaiseAlert)
    assert "refuses our credentials" in told.message


async def test_bus_that_is_away_says_nothing() -> None:
    """An outage of the bus is no loss of a subscription."""
    mender, shelf, watch = await watched()
    mender.finds = BusDown("away")
    assert await after(0, shelf, watch) == []


async def test_alert_of_a_former_leader_is_cleared() -> None:
    """By its successor, once all has been well for as long."""
    _, shelf, watch = await watched()
    assert await after(STANDS_S - 1, shelf, watch) == []
    (cleared,) = await after(1, shelf, watch)
    assert isinstance(cleared, ClearAlert)
