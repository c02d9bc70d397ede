"""People: identities of issuers become principals, by grants of the configuration and the store."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from core.access import Grant, Principal, allowed_by
from core.access_rules import AccessRules
from core.access_store import AccessStore
from core.errors import StoreDown
from core.identity import BadToken, Person, user_id_of
from core.ports import Clock
from core.recent import Recent
from core.sessions import BrowserSession
from identity.verifier import TokenVerifier
from scheduler.access.authenticator import (
    FRESH_S,
    KNOWN_MAX,
    STALE_S,
    Unauthenticated,
)

VERIFIED_S = 60.0
"""A token whose signature was checked is not checked again for this long."""


@dataclass(frozen=True, slots=True)
class _Verified:
    identity: Person
    rules: AccessRules
    at: float


@dataclass(frozen=True, slots=True)
class _Granted:
    grants: Sequence[Grant]
    read_at: float


class People:
    """One per replica."""

    def __init__(
        self,
        store: AccessStore,
        verifier: TokenVerifier,
        rules: Callable[[], AccessRules],
        clock: Clock,
    ) -> None:
        self._store = store
        self.verifier = verifier
        self._rules = rules
        self._clock = clock
        self._verified: Recent[_Verified] = Recent(KNOWN_MAX)
        self._granted: Recent[_Granted] = Recent(KNOWN_MAX)

    async def by_token(self, token: str) -> Principal:
        """Whose identity token this is; Unauthenticated says what is wrong with it."""
        rules, now = self._rules(), self._clock.monotonic()
        name = _name(token)
        known = self._verified.get(name)
        if known is None or known.rules is not rules or now - known.at >= VERIFIED_S:
            identity = await self._checked(self.verifier.identity(token))
            known = self._verified.put(name, _Verified(identity, rules, now))
        if known.identity.expires_at <= self._clock.now():
            raise Unauthenticated("the token has expired: sign in again with zen login")
        return await self.principal(known.identity)

    async def by_iap(self, assertion: str) -> Principal:
        """Whom Identity-Aware Proxy let through."""
        return await self.principal(await self._checked(self.verifier.iap_identity(assertion)))

    async def by_session(self, session: BrowserSession) -> Principal:
        """The person who signed in; Unauthenticated if their issuer counts no more."""
        if session.issuer not in self._rules().issuers:
            raise Unauthenticated("the issuer of this session counts no more: sign in again")
        email = session.principal.partition(":")[2]
        return await self.principal(
            Person(session.issuer, email, session.groups, session.expires_at)
        )

    async def _checked(self, checking: Awaitable[Person]) -> Person:
        try:
            return await checking
        except BadToken as error:
            raise Unauthenticated(f"{error}: sign in again with zen login") from error

    async def principal(self, identity: Person) -> Principal:
        """With the rights that the grants of the person and of their groups add up to."""
        rules = self._rules()
        names = rules.principals(identity)
        said = [grant for name in names for grant in rules.grants.get(name, ())]
        stored = await self._stored(names)
        allowed = allowed_by([*said, *stored], roles=rules.roles)
        return Principal(identity.user, user_id_of(identity.email), identity.email, allowed)

    async def _stored(self, names: tuple[str, ...]) -> Sequence[Grant]:
        now = self._clock.monotonic()
        known = self._granted.get(names)
        if known is not None and now - known.read_at < FRESH_S:
            return known.grants
        try:
            grants = await self._store.grants_of(names)
        except StoreDown:
            if known is not None and now - known.read_at < STALE_S:
                return known.grants
            raise
        return self._granted.put(names, _Granted(grants, now)).grants


def _name(token: str) -> bytes:
    """Under which a token is remembered: the token itself stays nowhere."""
    return hashlib.sha256(token.encode()).digest()
