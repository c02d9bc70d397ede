"""The form of keys, and when one opens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from core.api_keys import ApiKey, key_text, opens, parse_key

NOW = datetime(2026, 1, 2, tzinfo=UTC)
TEXT = key_text("abcdefghijk2", bytes(range(32)))


def stored(expires_at: datetime | None = None, revoked_at: datetime | None = None) -> ApiKey:
    parsed = parse_key(TEXT)
    assert parsed is not None
    return ApiKey(parsed[0], parsed[1], "n", "ada", NOW, "key:owner", expires_at, revoked_at)


def test_a_key_is_told_by_its_text() -> None:
    """The id finds the row, the secret opens it; the row does not hold the secret."""
    parsed = parse_key(TEXT)
    assert parsed is not None
    assert opens(stored(), parsed[1])
    assert TEXT.rpartition("_")[2] not in repr(stored())


@pytest.mark.parametrize("text", ["", "zen_", TEXT[:-1], TEXT + "0", TEXT.upper(), f" {TEXT}"])
def test_other_texts_are_no_keys(text: str) -> None:
    """Nothing but the one form is looked up."""
    assert parse_key(text) is None


def test_another_secret_opens_nothing() -> None:
    """Though the id is right."""
    wrong = parse_key(key_text("abcdefghijk2", bytes(32)))
    assert wrong is not None
    assert not opens(stored(), wrong[1])


def test_when_a_key_ends() -> None:
    """At its expiry and from its revocation on, with a reason to tell."""
    hour = timedelta(hours=1)
    assert stored(expires_at=NOW + hour).refusal(NOW) is None
    assert "expired" in (stored(expires_at=NOW).refusal(NOW) or "")
    assert "revoked" in (stored(revoked_at=NOW).refusal(NOW) or "")
