"""Credentials to principals, checked against the store at most a few seconds old."""

from __future__ import annotations

import asyncio
import base64
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from core.access import ROLES, Principal, Right, allowed_by
from core.access_store import AccessStore, KnownKey
from core.api_keys import opens, parse_key
from core.errors import StoreDown, TooManyRequests, ZenError
from core.ports import Clock
from core.sessions import BrowserSession

FRESH_S = 2.0
"""A key that was revoked opens nothing after this long, on every replica."""
STALE_S = 5.0
"""While the database does not answer, what was known counts for this long."""
KNOWN_MAX = 4096
REMEMBER_S = 10.0
FAILURES_MAX = 20
"""Wrong credentials of one address within FAILURES_S; further wrong ones are told to wait."""
FAILURES_S = 60.0
LOOKUPS_MAX = 3
"""Questions to the database at a time about keys, or sessions, that are not known here: a flood of
wrong ones leaves connections to everybody else."""
ADDRESSES_MAX = 10_000
TOKEN_DOTS = 2
"""header.claims.signature; a key has none."""
HOW = "send an API key (Authorization: Bearer zen_…) or sign in with zen login"
Roles = Mapping[str, frozenset[Right]]


class Unauthenticated(ZenError):
    """Nobody that we know: send a key that counts."""

    code = "unauthenticated"


class NotAllowed(ZenError):
    """Known, but without the right: ask an admin for a role that has it."""

    code = "forbidden"


@dataclass(frozen=True, slots=True)
class _Cached:
    known: KnownKey
    principal: Principal
    read_at: float


class SignedIn(Protocol):
    """Those who come with a token of an issuer instead of a key."""

    async def by_token(self, token: str) -> Principal: ...
    async def by_iap(self, assertion: str) -> Principal: ...
    async def by_session(self, session: BrowserSession) -> Principal: ...


class OpenSessions(Protocol):
    """Browsers that come with a cookie."""

    async def find(self, cookie: str) -> BrowserSession: ...


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request brings; the first that is there counts."""

    authorization: str | None = None
    session: str | None = None
    """The cookie of a browser."""
    assertion: str | None = None
    """What Identity-Aware Proxy says."""


class Authenticator:
    """One per replica."""

    def __init__(
        self,
        store: AccessStore,
        clock: Clock,
        people: SignedIn | None = None,
        sessions: OpenSessions | None = None,
        roles: Callable[[], Roles] = lambda: ROLES,
    ) -> None:
        self._store = store
        self._clock = clock
        self._people = people
        self._sessions = sessions
        self._roles = roles
        self._cache: OrderedDict[str, _Cached] = OrderedDict()
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._used: set[str] = set()
        self._lookups = asyncio.Semaphore(LOOKUPS_MAX)
        self._reading: dict[str, asyncio.Future[KnownKey | None]] = {}

    async def principal(self, given: Credentials, address: str) -> Principal:
        """Who sent these from this address; Unauthenticated says what to send."""
        if given == Credentials():
            raise Unauthenticated(f"no credentials: {HOW}")
        presented = "" if given.authorization is None else _presented(given.authorization)
        parsed = parse_key(presented)
        # What is presented is checked first, also from an address that guesses: guesses from a
        # shared address shut nobody else out, and a look-up costs less than the request.
        try:
            if parsed is not None:
                key_id, secret = parsed
                return await self._by_key(key_id, secret)
            if given.authorization is not None:
                return await self._by_token(presented)
            return await self._by_browser(given)
        except Unauthenticated:
            self._failed(address)
            if self._blocked(address):
                raise self._wait(address) from None
            raise

    async def _by_token(self, presented: str) -> Principal:
        if self._people is None or presented.count(".") != TOKEN_DOTS:
            raise Unauthenticated(f"these credentials are no API key and no token: {HOW}")
        return await self._people.by_token(presented)

    async def _by_browser(self, given: Credentials) -> Principal:
        """By the cookie; behind Identity-Aware Proxy also without one, or with an old one."""
        if self._people is None:
            raise Unauthenticated(f"browsers do not sign in here: {HOW}")
        if given.session is not None and self._sessions is not None:
            try:
                return await self._by_session(await self._sessions.find(given.session))
            except Unauthenticated:
                if given.assertion is None:
                    raise
        return await self._people.by_iap(given.assertion or "")

    async def _by_session(self, session: BrowserSession) -> Principal:
        kind, _, name = session.principal.partition(":")
        if kind != "key":
            assert self._people is not None, "browsers need people"
            return await self._people.by_session(session)
        cached = await self._cached(name, FRESH_S)
        if (
            cached is None
            or not opens(cached.known.key, session.key_hash)
            or cached.known.key.refusal(self._clock.now()) is not None
        ):
            raise Unauthenticated("the key of this session counts no more: sign in with another")
        return cached.principal

    async def by_key(self, text: str) -> Principal:
        """Whose API key this is, for doors without addresses; Unauthenticated."""
        parsed = parse_key(text)
        if parsed is None:
            raise Unauthenticated("the credentials are no API key: zen_<id>_<secret>")
        return await self._by_key(parsed[0], parsed[1])

    async def _by_key(self, key_id: str, presented: bytes) -> Principal:
        cached = await self._cached(key_id, FRESH_S)
        if cached is not None and not opens(cached.known.key, presented):
            cached = await self._cached(key_id, 0.0)  # it may have been rotated a moment ago
        if cached is None or not opens(cached.known.key, presented):
            raise Unauthenticated("the key is wrong: check it, or ask an admin for a new one")
        refusal = cached.known.key.refusal(self._clock.now())
        if refusal is not None:
            raise Unauthenticated(f"{refusal}: ask an admin for a new one")
        self._used.add(key_id)
        return cached.principal

    async def _cached(self, key_id: str, fresh_s: float) -> _Cached | None:
        now = self._clock.monotonic()
        found = self._cache.get(key_id)
        if found is not None and now - found.read_at < fresh_s:
            return found
        try:
            known = await (self._shared_read(key_id) if fresh_s else self._read(key_id))
        except StoreDown:
            if found is not None and now - found.read_at < STALE_S:
                return found
            raise
        if known is None:
            self._cache.pop(key_id, None)
            return None
        principal = principal_of_key(known, self._roles())
        self._cache[key_id] = cached = _Cached(known, principal, now)
        self._cache.move_to_end(key_id)
        while len(self._cache) > KNOWN_MAX:
            self._cache.popitem(last=False)
        return cached

    async def _shared_read(self, key_id: str) -> KnownKey | None:
        """Requests that find the key too old at the same moment read it once."""
        reading = self._reading.get(key_id)
        if reading is None:
            reading = asyncio.ensure_future(self._read(key_id))
            self._reading[key_id] = reading
            reading.add_done_callback(lambda _: self._reading.pop(key_id, None))
        return await asyncio.shield(reading)

    async def _read(self, key_id: str) -> KnownKey | None:
        async with self._lookups:
            return await self._store.key(key_id)

    async def remember(self) -> None:
        """Writes down the last use of keys now and then, for ever."""
        while True:
            await asyncio.sleep(REMEMBER_S)
            if self._used:
                used, self._used = sorted(self._used), set()
                await self._store.used(used, self._clock.now())

    def _blocked(self, address: str) -> bool:
        count, since = self._failures.get(address, (0, 0.0))
        return count >= FAILURES_MAX and self._clock.monotonic() - since < FAILURES_S

    def _wait(self, address: str) -> TooManyRequests:
        _, since = self._failures[address]
        left_s = max(1, math.ceil(since + FAILURES_S - self._clock.monotonic()))
        return TooManyRequests(
            f"too many wrong credentials from {address}: try again in {left_s} s", left_s
        )

    def _failed(self, address: str) -> None:
        now = self._clock.monotonic()
        count, since = self._failures.get(address, (0, now))
        if now - since >= FAILURES_S:
            count, since = 0, now
        self._failures[address] = (count + 1, since)
        self._failures.move_to_end(address)
        while len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)


def principal_of_key(known: KnownKey, roles: Roles = ROLES) -> Principal:
    """Who calls with this key."""
    key = known.key
    allowed = allowed_by(known.grants, key.scopes, roles)
    return Principal(key.principal, key.user_id, key.name, allowed, key.scopes)


def _presented(authorization: str) -> str:
    """The key: after Bearer, or as the password of Basic."""
    kind, _, rest = authorization.strip().partition(" ")
    match kind.lower():
        case "bearer":
            return rest.strip()
        case "basic":
            try:
                plain = base64.b64decode(rest.strip(), validate=True).decode()
            except ValueError:  # no base64, no ASCII, no UTF-8
                return ""
            return plain.partition(":")[2]
        case _:
            return ""
