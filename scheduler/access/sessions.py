"""Sessions of browsers: opened after a sign-in, found by their cookie, ended on every replica."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from core.access import Principal
from core.access_rules import AccessRules
from core.audit_log import Actor, AuditAction, AuditEntry
from core.errors import StoreDown
from core.identity import Person
from core.ports import Clock, Ids
from core.recent import Recent
from core.sessions import BrowserSession, SessionStore, cookie_text, parse_cookie
from scheduler.access.authenticator import FRESH_S, KNOWN_MAX, LOOKUPS_MAX, STALE_S, Unauthenticated

REMEMBER_S = 10.0
AGAIN = "sign in again"


@dataclass(frozen=True, slots=True)
class _CachedSession:
    session: BrowserSession
    read_at: float


class BrowserSessions:
    """One per replica."""

    def __init__(
        self, store: SessionStore, rules: Callable[[], AccessRules], clock: Clock, ids: Ids
    ) -> None:
        self.store = store
        self._rules = rules
        self._clock = clock
        self._ids = ids
        self._cache: Recent[_CachedSession] = Recent(KNOWN_MAX)
        self._seen: set[str] = set()
        self._lookups = asyncio.Semaphore(LOOKUPS_MAX)

    async def open(self, principal: Principal, actor: Actor, by: Person | bytes) -> str:
        """The cookie of a new session. `by`: the person whom an issuer vouched for, or the hash of
        the key that was shown."""
        now = self._clock.now()
        session_id, secret = self._ids.api_key()
        cookie = cookie_text(session_id, secret)
        parsed = parse_cookie(cookie)
        assert parsed is not None
        session = BrowserSession(
            session_id=session_id,
            hash=parsed[1],
            principal=principal.name,
            created_at=now,
            expires_at=now + timedelta(seconds=self._rules().session_max_s),
            last_seen_at=now,
            issuer=by.issuer if isinstance(by, Person) else "",
            groups=by.groups if isinstance(by, Person) else (),
            key_hash=by if isinstance(by, bytes) else b"",
        )
        entry = AuditEntry(now, actor, AuditAction.SIGN_IN, f"session/{session_id}")
        await self.store.add_session(session, entry)
        return cookie

    async def find(self, cookie: str) -> BrowserSession:
        """The session of a cookie; Unauthenticated says why there is none."""
        parsed = parse_cookie(cookie)
        if parsed is None:
            raise Unauthenticated(f"the session's cookie is damaged: {AGAIN}")
        session_id, presented = parsed
        session = await self._cached(session_id)
        if session is None or not hmac.compare_digest(session.hash, presented):
            raise Unauthenticated(f"there is no such session: {AGAIN}")
        refusal = session.refusal(self._clock.now(), self._rules().session_idle_s)
        if refusal is not None:
            raise Unauthenticated(f"{refusal}: {AGAIN}")
        self._seen.add(session_id)
        return session

    async def end(self, session: BrowserSession, actor: Actor) -> None:
        """By its owner, here at once and elsewhere within FRESH_S."""
        now = self._clock.now()
        entry = AuditEntry(now, actor, AuditAction.SIGN_OUT, f"session/{session.session_id}")
        ended = await self.store.end_session(session.session_id, now, entry)
        self._cache.put(session.session_id, _CachedSession(ended, self._clock.monotonic()))

    async def _cached(self, session_id: str) -> BrowserSession | None:
        now = self._clock.monotonic()
        known = self._cache.get(session_id)
        if known is not None and now - known.read_at < FRESH_S:
            return known.session
        try:
            async with self._lookups:
                found = await self.store.session(session_id)
        except StoreDown:
            if known is not None and now - known.read_at < STALE_S:
                return known.session
            raise
        if found is not None:
            self._cache.put(session_id, _CachedSession(found, now))
        return found

    async def remember(self) -> None:
        """Writes down the last use of sessions now and then, for ever."""
        while True:
            await asyncio.sleep(REMEMBER_S)
            if self._seen:
                seen, self._seen = sorted(self._seen), set()
                await self.store.seen(seen, self._clock.now())
