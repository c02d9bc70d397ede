"""Who a caller is: keys as Bearer or Basic, revocation, guesses."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta

import pytest

from core.access_store import KnownKey, NewSecret
from core.api_keys import key_text, parse_key
from core.errors import StoreDown, TooManyRequests
from scheduler.access.authenticator import (
    FAILURES_MAX,
    FAILURES_S,
    FRESH_S,
    LOOKUPS_MAX,
    STALE_S,
    Authenticator,
    Credentials,
    Unauthenticated,
)
from sim.memory.access import MemoryAccess
from tests.access import bearer, known
from tests.scheduler.api.fakes import StillClock

HERE = "10.0.0.1"
KEY, ADA = known("ada000000000", ("ml", "member"))
OTHER, BOB = known("bob000000000", ("ml", "viewer"), user_id="bob")


class Door:
    """An authenticator over keys in memory, and time that moves by hand."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.store = MemoryAccess([ADA, BOB])
        self.authenticator = Authenticator(self.store, self.clock)

    async def open(self, header: str | None, address: str = HERE) -> str:
        return (await self.authenticator.principal(Credentials(header), address)).name

    def later(self, seconds: float) -> None:
        self.clock.at += timedelta(seconds=seconds)


def of(key: str) -> str:
    return bearer(key)["authorization"]


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anyone:{password}".encode()).decode()


@pytest.mark.parametrize("header", [of(KEY), f"bearer  {KEY} ", basic(KEY)])
async def test_a_key_opens_as_bearer_and_as_basic_password(header: str) -> None:
    assert await Door().open(header) == "key:ada000000000"


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (None, "no credentials"),
        ("", "no API key"),
        ("Bearer", "no API key"),
        (KEY, "no API key"),
        ("Basic !!!", "no API key"),
        ("Basic " + base64.b64encode(b"\xff\xfe").decode(), "no API key"),
        (of(KEY[:-1] + ("0" if KEY[-1] != "0" else "1")), "wrong"),
        (of(KEY.replace("ada0", "eve0")), "wrong"),
        (of(KEY + "\n0"), "no API key"),
    ],
)
async def test_everything_else_is_told_what_to_send(header: str | None, said: str) -> None:
    with pytest.raises(Unauthenticated, match=said):
        await Door().open(header)


async def test_a_revoked_key_opens_nothing_once_it_was_read_again() -> None:
    door = Door()
    await door.open(of(KEY))
    await door.store.revoke_key("ada000000000", door.clock.now())
    door.later(FRESH_S)
    with pytest.raises(Unauthenticated, match="revoked"):
        await door.open(of(KEY))


async def test_a_rotated_key_opens_with_its_new_secret_at_once() -> None:
    door = Door()
    await door.open(of(KEY))
    rotated = key_text("ada000000000", b"new".ljust(32))
    parsed = parse_key(rotated)
    assert parsed is not None
    await door.store.rotate_key(NewSecret("ada000000000", parsed[1]))
    assert await door.open(of(rotated)) == "key:ada000000000"


async def test_while_the_database_is_away_known_keys_count_for_seconds_only() -> None:
    door = Door()
    await door.open(of(KEY))

    async def away(key_id: str) -> None:
        raise StoreDown("no database")

    door.store.key = away  # type: ignore[method-assign]
    door.later(FRESH_S)
    await door.open(of(KEY))
    door.later(STALE_S)
    with pytest.raises(StoreDown):
        await door.open(of(KEY))


async def test_guesses_are_told_to_wait_and_keys_open() -> None:
    """Also from the same address, and also a key that nobody used before."""
    door = Door()
    await door.open(of(KEY))
    for _ in range(FAILURES_MAX - 1):
        with pytest.raises(Unauthenticated):
            await door.open(of("zen_guess"))
    for _ in range(3):
        with pytest.raises(TooManyRequests) as refused:
            await door.open(of("zen_guess"))
        assert refused.value.retry_after_s == FAILURES_S
    assert await door.open(of(KEY)) == "key:ada000000000"
    assert await door.open(of(OTHER)) == "key:bob000000000"
    with pytest.raises(TooManyRequests):
        await door.open(of(KEY[:-1] + "g"))
    door.later(FAILURES_S)
    with pytest.raises(Unauthenticated):
        await door.open(of("zen_guess"))


async def test_a_flood_of_unknown_keys_asks_the_database_a_few_at_a_time() -> None:
    """And a key that was just used opens meanwhile."""
    door = Door()
    await door.open(of(KEY))
    asked, answer, ask = 0, asyncio.Event(), door.store.key

    async def slow(key_id: str) -> KnownKey | None:
        nonlocal asked
        asked += 1
        await answer.wait()
        return await ask(key_id)

    door.store.key = slow  # type: ignore[method-assign]
    keys = [key_text(f"guess{n:07}", bytes(32)) for n in range(50)]
    flood = asyncio.gather(*(door.open(of(key)) for key in keys), return_exceptions=True)
    for _ in range(10):
        await asyncio.sleep(0)
    assert asked == LOOKUPS_MAX
    assert await door.open(of(KEY)) == "key:ada000000000"
    answer.set()
    assert len(await flood) == asked == len(keys)
