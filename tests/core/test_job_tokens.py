"""When tokens of attempts are renewed."""

from __future__ import annotations

from core.job_tokens import AccessToken, TokenKind, TokenSpan, due, span_of

SPANS = {"young": TokenSpan(100, 200), "old": TokenSpan(0, 180), "older": TokenSpan(0, 160)}


def test_at_half_of_their_life_the_first_to_end_first() -> None:
    assert due(["young", "old", "older"], SPANS, {}, 120, 60) == ["older", "old"]
    assert due(["young"], SPANS, {}, 150, 60) == ["young"]


def test_what_nobody_knows_of_is_renewed_at_once() -> None:
    """A former leader minted it."""
    assert due(["young", "unknown"], SPANS, {}, 101, 60) == ["unknown"]


def test_one_that_was_asked_for_has_its_time() -> None:
    assert due(["old"], SPANS, {"old": 100.0}, 120, 60) == []
    assert due(["old"], SPANS, {"old": 100.0}, 160, 60) == ["old"]


def test_a_token_is_in_no_repr() -> None:
    token = AccessToken("ya29.hush", 300)
    assert "hush" not in repr(token)
    assert span_of({TokenKind.STORE: token}, 100) == TokenSpan(100, 300)
