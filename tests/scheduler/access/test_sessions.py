"""Sessions of browsers, on two replicas over one store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from core.access import Principal
from core.access_rules import AccessRules
from core.audit_log import Actor, AuditAction, AuditRow
from core.errors import StoreDown
from core.ids import RandomIds
from core.sessions import BrowserSession, cookie_text, csrf_matches, csrf_token
from scheduler.access.authenticator import FRESH_S, STALE_S, Unauthenticated
from scheduler.access.sessions import BrowserSessions
from sim.memory.sessions import MemorySessions
from tests.scheduler.api.fakes import StillClock

ADA = Principal("key:ada000000000", "ada", "nightly", {})
ACTOR = Actor("key:ada000000000", "", "10.0.0.1", "r1")
RULES = AccessRules(session_idle_s=100, session_max_s=1000)


class Away(MemorySessions):
    """A store that may be away."""

    down = False

    async def session(self, session_id: str) -> BrowserSession | None:
        if self.down:
            raise StoreDown("the database does not answer")
        return await super().session(session_id)


class Two:
    """Two replicas."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.audit_log: list[AuditRow] = []
        self.store = Away(self.audit_log)
        self.here, self.there = (
            BrowserSessions(self.store, lambda: RULES, self.clock, RandomIds()) for _ in range(2)
        )

    def later(self, seconds: float) -> None:
        self.clock.at += timedelta(seconds=seconds)


@pytest.fixture
def two() -> Two:
    return Two()


async def test_a_session_counts_on_every_replica(two: Two) -> None:
    """And its sign-in is audited."""
    cookie = await two.here.open(ADA, ACTOR, b"hash")
    assert (await two.there.find(cookie)).principal == ADA.name
    assert [row.entry.action for row in two.audit_log] == [AuditAction.SIGN_IN]


async def test_a_sign_out_counts_on_every_replica(two: Two) -> None:
    """Here at once, there within FRESH_S."""
    cookie = await two.here.open(ADA, ACTOR, b"hash")
    session = await two.there.find(cookie)
    await two.here.end(await two.here.find(cookie), ACTOR)
    with pytest.raises(Unauthenticated, match="ended"):
        await two.here.find(cookie)
    two.later(FRESH_S)
    with pytest.raises(Unauthenticated, match="ended"):
        await two.there.find(cookie)
    assert session.ended_at is None


async def test_an_idle_session_ends(two: Two) -> None:
    """One that is used goes on, as long as its uses are remembered."""
    cookie = await two.here.open(ADA, ACTOR, b"hash")
    two.later(99)
    found = await two.here.find(cookie)
    await two.store.seen([found.session_id], two.clock.now())
    two.later(99)
    await two.there.find(cookie)
    two.later(2)
    with pytest.raises(Unauthenticated, match="expired"):
        await two.there.find(cookie)


async def test_no_session_is_endless(two: Two) -> None:
    """However busy."""
    cookie = await two.here.open(ADA, ACTOR, b"hash")
    for _ in range(9):
        two.later(99)
        found = await two.here.find(cookie)
        await two.store.seen([found.session_id], two.clock.now())
    two.later(99)
    found = await two.here.find(cookie)
    await two.store.seen([found.session_id], two.clock.now())
    two.later(10)
    with pytest.raises(Unauthenticated, match="expired"):
        await two.here.find(cookie)


async def test_wrong_cookies_open_nothing(two: Two) -> None:
    """An unknown id, another secret, and no cookie at all."""
    cookie = await two.here.open(ADA, ACTOR, b"hash")
    session_id = cookie.partition("_")[0]
    for wrong in (
        "",
        "x",
        cookie_text("unknown00000", bytes(32)),
        cookie_text(session_id, bytes(32)),
    ):
        with pytest.raises(Unauthenticated):
            await two.here.find(wrong)


async def test_the_store_holds_no_cookie(two: Two) -> None:
    """Who reads the table cannot call with what stands in it."""
    cookie = await two.here.open(ADA, ACTOR, b"hash")
    (stored,) = await two.store.sessions(10, None)
    assert cookie.partition("_")[2] not in repr(stored)
    assert bytes.fromhex(cookie.partition("_")[2]) != stored.hash


async def test_what_was_known_outlives_a_moment_without_the_database(two: Two) -> None:
    """But no longer than STALE_S."""
    cookie = await two.here.open(ADA, ACTOR, b"hash")
    await two.here.find(cookie)
    two.store.down = True
    two.later(FRESH_S)
    await two.here.find(cookie)
    two.later(STALE_S)
    with pytest.raises(StoreDown):
        await two.here.find(cookie)


def test_a_csrf_token_belongs_to_its_cookie() -> None:
    """Another session's does not fit."""
    one, other = (cookie_text("abcdefghijkl", bytes([n]) * 32) for n in (1, 2))
    assert csrf_matches(one, csrf_token(one))
    assert not csrf_matches(one, csrf_token(other))
    assert not csrf_matches(one, "")
