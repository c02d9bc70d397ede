"""Sessions of browsers, for admins."""

from __future__ import annotations

import msgspec
from starlette.requests import Request

from core.access import Right
from core.audit_log import AuditAction
from core.sessions import BrowserSession
from scheduler.api.caller import ApiCaller
from scheduler.api.http.endpoint import Routes, route
from scheduler.api.http.params import Param, Query
from scheduler.api.shapes import iso, iso_or_none


class SessionOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session without its cookie."""

    session_id: str
    principal: str
    created_at: str
    last_seen_at: str
    expires_at: str
    issuer: str
    """Who vouched for the person; empty: a key was shown."""
    ended_at: str | None = None


class SessionsOut(msgspec.Struct, frozen=True):
    """A page of sessions."""

    sessions: tuple[SessionOut, ...]
    next_page_token: str | None


class SessionRoutes(Routes):
    """Who has signed in with a browser."""

    tag = "access"

    @route(
        "GET /api/v1/sessions",
        Right.KEYS,
        "A page of sessions.",
        params=(
            Param("principal", "text", "Only of this one."),
            Param("page_size", "whole", "Rows per page.", 100, 1, 500),
            Param("page_token", "text", "`next_page_token` of the page before."),
        ),
    )
    async def sessions(self, query: Query) -> SessionsOut:
        """The sessions of browsers, with the ones of the last days."""
        size, token = query.whole("page_size"), query.text("page_token")
        store = self._services.access.sessions.store
        rows = await store.sessions(size + 1, token, query.text("principal"))
        further = rows[size - 1].session_id if len(rows) > size else None
        return SessionsOut(tuple(map(_shown, rows[:size])), further)

    @route("DELETE /api/v1/sessions/{session_id}", Right.KEYS, "It has ended.", errors=(404,))
    async def end(self, request: Request, caller: ApiCaller) -> SessionOut:
        """End a session, on every replica within 5 seconds."""
        session_id, now = str(request.path_params["session_id"])[:80], self._services.clock.now()
        audited = caller.did(AuditAction.SESSION_REVOKE, f"session/{session_id}", now)
        store = self._services.access.sessions.store
        return _shown(await store.end_session(session_id, now, audited))


def _shown(session: BrowserSession) -> SessionOut:
    return SessionOut(
        session_id=session.session_id,
        principal=session.principal,
        created_at=iso(session.created_at),
        last_seen_at=iso(session.last_seen_at),
        expires_at=iso(session.expires_at),
        issuer=session.issuer,
        ended_at=iso_or_none(session.ended_at),
    )
