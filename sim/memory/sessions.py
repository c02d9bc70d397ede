"""core.sessions.SessionStore in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from core.audit_log import AuditEntry, AuditRow
from core.errors import NotFound
from core.sessions import KEPT_S, OPEN_MAX, SESSIONS_MAX, BrowserSession


class MemorySessions:
    """Sessions of browsers of one service."""

    def __init__(self, audit_log: list[AuditRow] | None = None) -> None:
        self._audit_log = [] if audit_log is None else audit_log
        self._sessions: dict[str, BrowserSession] = {}

    async def session(self, session_id: str) -> BrowserSession | None:
        return self._sessions.get(session_id)

    async def sessions(
        self, size: int, after: str | None, principal: str | None = None
    ) -> Sequence[BrowserSession]:
        found = [one for one in self._sessions.values() if principal in (None, one.principal)]
        behind = [one for one in found if one.session_id > (after or "")]
        behind.sort(key=lambda one: one.session_id)
        return behind[: min(size, SESSIONS_MAX)]

    async def add_session(self, session: BrowserSession, audited: AuditEntry) -> None:
        now = session.created_at
        self._sessions[session.session_id] = session
        own = [
            one
            for one in self._sessions.values()
            if one.principal == session.principal and one.ended_at is None
        ]
        own.sort(key=lambda one: (one.created_at, one.session_id), reverse=True)
        for oldest in own[OPEN_MAX:]:
            self._sessions[oldest.session_id] = replace(oldest, ended_at=now)
        long_ago = now - timedelta(seconds=KEPT_S)
        self._sessions = {
            name: one
            for name, one in self._sessions.items()
            if min(one.expires_at, one.ended_at or one.expires_at) >= long_ago
        }
        self._audit(audited)

    async def end_session(
        self, session_id: str, at: datetime, audited: AuditEntry
    ) -> BrowserSession:
        found = self._sessions.get(session_id)
        if found is None:
            raise NotFound(f"there is no session {session_id}")
        self._audit(audited)
        self._sessions[session_id] = replace(found, ended_at=found.ended_at or at)
        return self._sessions[session_id]

    async def seen(self, session_ids: Sequence[str], at: datetime) -> None:
        for session_id in session_ids:
            if (found := self._sessions.get(session_id)) is not None:
                last = max(found.last_seen_at, at)
                self._sessions[session_id] = replace(found, last_seen_at=last)

    def _audit(self, entry: AuditEntry) -> None:
        self._audit_log.append(AuditRow(len(self._audit_log) + 1, entry))
