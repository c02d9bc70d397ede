"""Sessions of browsers: what every SessionStore does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.api_keys import secret_hash
from core.audit_log import Actor, AuditAction, AuditEntry
from core.errors import NotFound
from core.sessions import KEPT_S, OPEN_MAX, BrowserSession, SessionStore
from tests.db.builders import at

SESSION = BrowserSession(
    session_id="abcdefghijk2",
    hash=secret_hash("1"),
    principal="user:ada@example.com",
    created_at=at(1),
    expires_at=at(1000),
    last_seen_at=at(1),
    issuer="corp",
    groups=("all", "ml"),
    key_hash=secret_hash("2"),
)
SIGN_IN = AuditEntry(at(1), Actor("user:ada@example.com"), AuditAction.SIGN_IN, "session/abc")
SIGN_OUT = replace(SIGN_IN, action=AuditAction.SIGN_OUT)


class Sessions:
    async def test_a_session_comes_back(self, sessions: SessionStore) -> None:
        """All that was stored."""
        await sessions.add_session(SESSION, SIGN_IN)
        assert await sessions.session(SESSION.session_id) == SESSION
        assert await sessions.session("unknown") is None

    async def test_the_first_end_counts(self, sessions: SessionStore) -> None:
        """And what is not there cannot end."""
        await sessions.add_session(SESSION, SIGN_IN)
        ended = await sessions.end_session(SESSION.session_id, at(5), SIGN_OUT)
        again = await sessions.end_session(SESSION.session_id, at(9), SIGN_OUT)
        assert (ended.ended_at, again.ended_at) == (at(5), at(5))
        with pytest.raises(NotFound, match="nope"):
            await sessions.end_session("nope", at(5), SIGN_OUT)

    async def test_the_newest_use_is_kept(self, sessions: SessionStore) -> None:
        """Replicas tell in any order."""
        await sessions.add_session(SESSION, SIGN_IN)
        await sessions.seen([SESSION.session_id, "unknown"], at(20))
        await sessions.seen([SESSION.session_id], at(10))
        found = await sessions.session(SESSION.session_id)
        assert found is not None
        assert found.last_seen_at == at(20)

    async def test_pages_by_principal(self, sessions: SessionStore) -> None:
        """By id, each once."""
        for number, who in enumerate(("user:a@b.c", "user:d@e.f", "user:a@b.c")):
            made = replace(SESSION, session_id=f"s{number}".ljust(12, "x"), principal=who)
            await sessions.add_session(made, SIGN_IN)
        everybody = [one.session_id for one in await sessions.sessions(10, None)]
        assert everybody == ["s0xxxxxxxxxx", "s1xxxxxxxxxx", "s2xxxxxxxxxx"]
        own = await sessions.sessions(1, "s0xxxxxxxxxx", "user:a@b.c")
        assert [one.session_id for one in own] == ["s2xxxxxxxxxx"]

    async def test_a_principal_has_so_many_at_most(self, sessions: SessionStore) -> None:
        """Another one ends the oldest."""
        for number in range(OPEN_MAX + 1):
            name = f"s{number:02}".ljust(12, "x")
            made = replace(SESSION, session_id=name, created_at=at(number))
            await sessions.add_session(made, SIGN_IN)
        ended = [one.session_id for one in await sessions.sessions(100, None) if one.ended_at]
        assert ended == ["s00xxxxxxxxx"]

    async def test_what_has_ended_long_ago_is_forgotten(self, sessions: SessionStore) -> None:
        """At the next sign-in."""
        await sessions.add_session(SESSION, SIGN_IN)
        later = at(1001 + KEPT_S)
        made = replace(SESSION, session_id="later0000000", created_at=later, expires_at=later)
        await sessions.add_session(made, SIGN_IN)
        assert [one.session_id for one in await sessions.sessions(10, None)] == ["later0000000"]
