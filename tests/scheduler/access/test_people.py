"""People with tokens of an issuer: who they are, and what they may do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from core.access import Grant, Right
from core.access_rules import AccessRules
from core.clock import SystemClock
from core.errors import IssuerDown, StoreDown, TooManyRequests
from identity.verifier import TokenVerifier
from scheduler.access.authenticator import (
    FAILURES_MAX,
    FRESH_S,
    STALE_S,
    Authenticator,
    Credentials,
    Unauthenticated,
)
from scheduler.access.people import VERIFIED_S, People
from sim.memory.access import MemoryAccess
from tests.issuer import Issuer, serving


class Ahead(SystemClock):
    """The real clock, and what the test adds: tokens are made at the real time."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


class Counted(MemoryAccess):
    """Grants that may be away."""

    down = False
    reads = 0

    async def grants_of(self, principals: object) -> list[Grant]:
        self.reads += 1
        if self.down:
            raise StoreDown("the database does not answer")
        return list(await super().grants_of(principals))  # type: ignore[arg-type]


class World:
    """One replica and its issuer."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.clock = Ahead()
        self.store = Counted()
        self.rules = AccessRules({"local": issuer.settings()})
        verifier = TokenVerifier(lambda: self.rules, self.clock)
        self.people = People(self.store, verifier, lambda: self.rules, self.clock)
        self.authenticator = Authenticator(self.store, self.clock, self.people)

    def grant(self, principal: str, tenant: str, role: str) -> None:
        self.store._grants.add(Grant(principal, tenant, role))


@pytest.fixture
def world() -> Iterator[World]:
    with serving() as issuer:
        yield World(issuer)


async def test_a_token_is_a_bearer(world: World) -> None:
    """And the password of Basic, as a key is."""
    token = world.issuer.token()
    who = await world.authenticator.principal(Credentials(f"Bearer {token}"), "10.0.0.1")
    assert (who.name, who.user_id) == ("user:ada@example.com", "ada_at_example.com")
    assert not who.may(Right.FLEET_READ)


async def test_grants_of_the_person_and_of_their_groups_add_up(world: World) -> None:
    """From the configuration and from the database."""
    by_config = {"group:ml": (Grant("group:ml", "ml", "member"),)}
    world.rules = AccessRules(world.rules.issuers, grants=by_config)
    world.grant("user:ada@example.com", "vision", "viewer")
    world.grant("group:staff", "staff", "submitter")
    world.grant("user:eve@example.com", "*", "admin")
    who = await world.people.by_token(world.issuer.token(groups=["ml", "staff", "none"]))
    assert who.tenants(Right.JOBS_READ).names == {"ml", "vision", "staff"}
    assert who.tenants(Right.JOBS_SUBMIT).names == {"ml", "staff"}
    assert who.tenants(Right.JOBS_MANAGE).names == {"ml"}
    assert not who.may(Right.KEYS)


async def test_a_group_is_its_issuers(world: World) -> None:
    """Another issuer may have one of the same name: its people get nothing by that."""
    local = world.issuer.settings()
    other = replace(local, name="corp", issuer="https://login.example.com")
    world.rules = AccessRules({"local": local, "corp": other})
    world.grant("group:ml", "bare", "member")
    world.grant("group:corp/ml", "corp", "member")
    world.grant("group:local/ml", "local", "member")
    groups = ["ml", "corp/ml", "local/ml"]
    who = await world.people.by_token(world.issuer.token(groups=groups))
    assert who.tenants(Right.JOBS_READ).names == {"local"}


async def test_with_one_issuer_the_bare_name_of_a_group_is_enough(world: World) -> None:
    """And its whole name counts too; a group that is called like another's whole name is not it."""
    world.grant("group:ml", "bare", "member")
    world.grant("group:local/ml", "whole", "member")
    who = await world.people.by_token(world.issuer.token(groups=["ml"]))
    assert who.tenants(Right.JOBS_READ).names == {"bare", "whole"}
    who = await world.people.by_token(world.issuer.token(groups=["local/ml"]))
    assert not who.tenants(Right.JOBS_READ)


async def test_a_role_of_the_configuration_counts(world: World) -> None:
    """By its rights."""
    roles = {"auditor": frozenset({Right.AUDIT_READ})}
    world.rules = AccessRules(world.rules.issuers, roles=roles)
    world.grant("user:ada@example.com", "*", "auditor")
    who = await world.people.by_token(world.issuer.token())
    assert set(who.allowed) == {Right.AUDIT_READ}


async def test_a_grant_that_was_taken_is_gone_soon(world: World) -> None:
    """Within FRESH_S, on every replica."""
    world.grant("user:ada@example.com", "*", "viewer")
    token = world.issuer.token()
    assert (await world.people.by_token(token)).may(Right.JOBS_READ)
    world.store._grants.clear()
    world.clock.ahead_s += FRESH_S
    assert not (await world.people.by_token(token)).may(Right.JOBS_READ)


async def test_a_token_is_checked_once_in_a_while(world: World) -> None:
    """And its grants are read once in FRESH_S."""
    token = world.issuer.token()
    for _ in range(20):
        await world.people.by_token(token)
    assert (world.issuer.fetches, world.store.reads) == (1, 1)


async def test_what_was_known_outlives_a_moment_without_the_database(world: World) -> None:
    """But no longer than STALE_S."""
    token = world.issuer.token()
    await world.people.by_token(token)
    world.store.down = True
    world.clock.ahead_s += FRESH_S
    await world.people.by_token(token)
    world.clock.ahead_s += STALE_S
    with pytest.raises(StoreDown):
        await world.people.by_token(token)


async def test_a_change_of_the_rules_counts_at_once(world: World) -> None:
    """Also for tokens that were checked before."""
    token = world.issuer.token()
    await world.people.by_token(token)
    world.rules = AccessRules()
    with pytest.raises(Unauthenticated, match="iss"):
        await world.people.by_token(token)


async def test_an_issuer_that_is_down_lets_nobody_new_in(world: World) -> None:
    """Those it has vouched for stay while its keys count."""
    token = world.issuer.token()
    await world.people.by_token(token)
    world.issuer.down = True
    await world.people.by_token(token)
    world.clock.ahead_s += VERIFIED_S
    await world.people.by_token(token)
    other = World(world.issuer)
    with pytest.raises(IssuerDown):
        await other.people.by_token(token)


async def test_wrong_tokens_are_counted_as_guesses(world: World) -> None:
    """As wrong keys are. Good tokens open, also new ones."""
    for _ in range(FAILURES_MAX):
        with pytest.raises((Unauthenticated, TooManyRequests)):
            await world.authenticator.principal(Credentials("Bearer a.b.c"), "10.0.0.9")
    with pytest.raises(TooManyRequests):
        await world.authenticator.principal(Credentials("Bearer a.b.c"), "10.0.0.9")
    good = f"Bearer {world.issuer.token()}"
    await world.authenticator.principal(Credentials(good), "10.0.0.9")


async def test_an_assertion_counts_where_it_is_configured_alone(world: World) -> None:
    """The header alone lets nobody in."""
    with pytest.raises(Unauthenticated, match="iap_audience"):
        await world.authenticator.principal(Credentials(assertion=world.issuer.token()), "10.0.0.1")
    with pytest.raises(Unauthenticated, match="no credentials"):
        await world.authenticator.principal(Credentials(), "10.0.0.1")
