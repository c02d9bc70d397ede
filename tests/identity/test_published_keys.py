"""How often an issuer is asked for its keys."""

from __future__ import annotations

import asyncio

import pytest

from core.errors import IssuerDown
from identity.published_keys import FRESH_S, KEPT_S, KEYS_MAX, PAUSE_S, PublishedKeys


class Hand:
    """A clock that the test turns, and an issuer that it changes."""

    def __init__(self) -> None:
        self.at = 1000.0
        self.keys: dict[str, object] = {"a": 1}
        self.down = False
        self.fetches = 0

    def monotonic(self) -> float:
        return self.at

    async def fetch(self) -> dict[str, object]:
        self.fetches += 1
        await asyncio.sleep(0)
        if self.down:
            raise IssuerDown("nobody there")
        return dict(self.keys)


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def keys(hand: Hand) -> PublishedKeys:
    return PublishedKeys(hand.fetch, hand)  # type: ignore[arg-type]


async def test_keys_are_fetched_once(hand: Hand, keys: PublishedKeys) -> None:
    """Also if a hundred ask at once."""
    assert await asyncio.gather(*(keys.key("a") for _ in range(100))) == [1] * 100
    assert hand.fetches == 1


async def test_a_rotated_key_is_found(hand: Hand, keys: PublishedKeys) -> None:
    """An id that is not known yet is asked for at once, if the last fetch is a while ago."""
    await keys.key("a")
    hand.keys = {"b": 2}
    hand.at += PAUSE_S
    assert await keys.key("b") == 2
    assert await keys.key("a") is None


async def test_invented_ids_do_not_reach_the_issuer(hand: Hand, keys: PublishedKeys) -> None:
    """One fetch per pause at most."""
    for number in range(1000):
        assert await keys.key(f"invented-{number}") is None
    assert hand.fetches == 1
    hand.at += PAUSE_S
    assert await keys.key("invented") is None
    assert hand.fetches == 2


async def test_withdrawn_keys_stop_counting(hand: Hand, keys: PublishedKeys) -> None:
    """When the fetched keys are no longer fresh, they are fetched again."""
    await keys.key("a")
    hand.keys = {}
    hand.at += FRESH_S
    assert await keys.key("a") is None


async def test_keys_outlive_a_short_outage(hand: Hand, keys: PublishedKeys) -> None:
    """But not a long one: then nobody knows whether they were withdrawn."""
    await keys.key("a")
    hand.down = True
    hand.at += FRESH_S
    assert await keys.key("a") == 1
    hand.at += KEPT_S - FRESH_S
    with pytest.raises(IssuerDown, match="nobody there"):
        await keys.key("a")
    hand.down = False
    hand.at += PAUSE_S
    assert await keys.key("a") == 1


async def test_an_issuer_that_was_never_reached_is_asked_at_most_so_often(
    hand: Hand, keys: PublishedKeys
) -> None:
    """Everybody is told that it is down meanwhile."""
    hand.down = True
    for _ in range(10):
        with pytest.raises(IssuerDown):
            await keys.key("a")
    assert hand.fetches == 1


async def test_keys_are_bounded(hand: Hand, keys: PublishedKeys) -> None:
    """An issuer with very many has the first of them."""
    hand.keys = {str(number): number for number in range(2 * KEYS_MAX)}
    assert await keys.key(str(KEYS_MAX - 1)) == KEYS_MAX - 1
    assert await keys.key(str(KEYS_MAX)) is None
