"""The session by which the others see that the leader lives."""

from __future__ import annotations

import asyncio

import pytest

from core.errors import TermPassed
from core.ports import Store
from tests.db.builders import Maker, submitted
from tests.db.contract.keeping import Another
from tests.db.contract.words import EndSession


class LeaderSessions:
    async def test_gone_leader_is_replaced_before_its_lease_ends(
        self, store: Store, another: Another, end_session: EndSession, maker: Maker
    ) -> None:
        """Another one that names its term leads at once, in a later one, and the old one cannot
        write any more."""
        first, other = await store.lead("a", 60), await another()
        await end_session()
        seen = await other.lead("b", 60)
        assert (seen.leading, seen.gone, seen.term) == (False, True, first.term)
        second = await other.lead("b", 60, first.term)
        assert (second.leading, second.term) == (True, first.term + 1)
        assert not (await store.lead("a", 60)).leading
        with pytest.raises(TermPassed):
            await store.commit([(submitted(maker.job()),)], first.term)

    async def test_leader_that_lives_is_not_replaced(self, store: Store, another: Another) -> None:
        """A replica that believes it gone waits for its lease."""
        first, other = await store.lead("a", 60), await another()
        answer = await other.lead("b", 60, first.term)
        assert (answer.leading, answer.gone, answer.holder) == (False, False, "a")

    async def test_leader_that_comes_back_keeps_its_lease(
        self, store: Store, another: Another, end_session: EndSession
    ) -> None:
        """A leader that lost its session shows another one with its next renewal."""
        first, other = await store.lead("a", 60), await another()
        await end_session()
        async with asyncio.timeout(30):
            await store.session_lost()
        assert (await other.lead("b", 60)).gone
        again = await store.lead("a", 60)
        assert (again.leading, again.term) == (True, first.term)
        answer = await other.lead("b", 60, first.term)
        assert (answer.leading, answer.gone) == (False, False)

    async def test_who_waits_since_before_the_session_hears_of_its_end(
        self, store: Store, end_session: EndSession
    ) -> None:
        """Of each one's, and of none that we ended."""
        lost = asyncio.create_task(store.session_lost())
        for _ in range(2):
            first = await store.lead("a", 60)
            await store.resign("a", first.term)
        await store.lead("a", 60)
        await asyncio.sleep(0)
        assert not lost.done()
        await end_session()
        async with asyncio.timeout(30):
            await lost
        await store.lead("a", 60)
        lost = asyncio.create_task(store.session_lost())
        await asyncio.sleep(0)
        assert not lost.done()
        await end_session()
        async with asyncio.timeout(30):
            await lost

    async def test_another_leader_has_come_meanwhile(
        self, store: Store, another: Another, end_session: EndSession
    ) -> None:
        """A replica that saw an earlier leader go does not replace the next one."""
        first, other, third = await store.lead("a", 60), await another(), await another()
        await end_session()
        second = await other.lead("b", 60, first.term)
        answer = await third.lead("c", 60, first.term)
        assert (answer.leading, answer.gone, answer.term) == (False, False, second.term)
