"""Sessions of browsers: a cookie `<id>_<secret>` stands for somebody who has signed in. Only the
hash of the secret is stored."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from core.api_keys import secret_hash
from core.audit_log import AuditEntry

SESSIONS_MAX = 1000
"""On one page."""
OPEN_MAX = 20
"""Of one principal; another one ends the oldest."""
KEPT_S = 7 * 86_400.0
"""What has ended is listed for so long."""
_COOKIE = re.compile(r"([a-z0-9]{12})_([0-9a-f]{64})\Z")


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """As it is stored: nobody can call with what stands here."""

    session_id: str
    hash: bytes
    """SHA-256 of the secret."""
    principal: str
    """`key:<id>` or `user:<e-mail>`."""
    created_at: datetime
    expires_at: datetime
    last_seen_at: datetime
    issuer: str = ""
    """Who vouched for the person; empty: a key did."""
    groups: tuple[str, ...] = ()
    key_hash: bytes = b""
    """Of the key that was shown: a new secret of the key ends the session."""
    ended_at: datetime | None = None

    def refusal(self, now: datetime, idle_s: float) -> str | None:
        """Why the session counts no more; None if it does."""
        if self.ended_at is not None:
            return "the session was ended"
        if self.expires_at <= now or self.last_seen_at + timedelta(seconds=idle_s) <= now:
            return "the session has expired"
        return None


class SessionStore(Protocol):
    """Every call may raise StoreDown. What changes something writes its row of the audit log in
    the same transaction."""

    async def session(self, session_id: str) -> BrowserSession | None:
        """Also one that has ended; None: there is none."""
        ...

    async def sessions(
        self, size: int, after: str | None, principal: str | None = None
    ) -> Sequence[BrowserSession]:
        """A page by id, behind the id `after`; of one principal or of everybody."""
        ...

    async def add_session(self, session: BrowserSession, audited: AuditEntry) -> None:
        """Ends the principal's oldest beyond OPEN_MAX, and forgets what has ended long ago."""
        ...

    async def end_session(
        self, session_id: str, at: datetime, audited: AuditEntry
    ) -> BrowserSession:
        """Idempotent: the first end counts. NotFound."""
        ...

    async def seen(self, session_ids: Sequence[str], at: datetime) -> None:
        """Remember the last use of these sessions."""
        ...


def cookie_text(session_id: str, secret: bytes) -> str:
    """What the browser keeps."""
    return f"{session_id}_{secret.hex()}"


def parse_cookie(text: str) -> tuple[str, bytes] | None:
    """(id, hash of the secret), or None if this is none of ours."""
    found = _COOKIE.match(text)
    return (found[1], secret_hash(found[2])) if found else None


def csrf_token(cookie: str) -> str:
    """What a write must carry besides the cookie. A page of another site can make the browser send
    the cookie, but can read neither it nor this."""
    return hmac.new(cookie.encode(), b"csrf", hashlib.sha256).hexdigest()


def csrf_matches(cookie: str, given: str) -> bool:
    """In constant time."""
    return hmac.compare_digest(csrf_token(cookie).encode(), given.encode())
