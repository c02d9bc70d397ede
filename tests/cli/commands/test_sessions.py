"""zen sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

SESSION = {
    "session_id": "abcdefghijk2",
    "principal": "user:ada@example.com",
    "created_at": "2026-01-31T12:00:00.000Z",
    "last_seen_at": "2026-01-31T12:05:00.000Z",
    "expires_at": "2026-02-01T00:00:00.000Z",
    "issuer": "corp",
}


def test_sessions_are_listed(zen: Callable[..., Ended], api: Api) -> None:
    """With who vouched for the person, and whether they have ended."""
    over = {"session_id": "over00000000", "issuer": "", "ended_at": "2026-01-31T12:06:00Z"}
    ended = {**SESSION, **over}
    api.on("GET", "/api/v1/sessions", {"sessions": [SESSION, ended], "next_page_token": None})
    done = zen("sessions", "list", "--principal", "user:ada@example.com")
    first, second = done.out.splitlines()[1:]
    assert {"abcdefghijk2", "user:ada@example.com", "corp"} <= set(first.split())
    assert {"over00000000", "key", "ended"} <= set(second.split())
    assert api.query()["principal"] == "user:ada@example.com"


def test_a_session_is_ended(zen: Callable[..., Ended], api: Api) -> None:
    """By its id."""
    api.on("DELETE", "/api/v1/sessions/abcdefghijk2", SESSION)
    done = zen("sessions", "revoke", "abcdefghijk2")
    assert done.out.strip() == "session abcdefghijk2 of user:ada@example.com has ended"
