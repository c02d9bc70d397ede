"""Page tokens."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from core.pages import PageCursor, _digest, place_of, token_for
from tests.db.builders import Maker, at


def test_tokens_come_back_as_they_went() -> None:
    """A token holds the place it was made for, and serves one question."""
    uid = Maker().job().uid
    token = token_for(("jobs", "a"), PageCursor(at(0.123456), uid))
    place = place_of(("jobs", "a"), token)
    assert place is not None
    assert (place.at, str(place.uid)) == (at(0.123456), uid)
    with pytest.raises(BadInput, match="page_token"):
        place_of(("jobs", "b"), token)


@given(st.text())
def test_no_token_of_others_is_taken(token: str) -> None:
    """Any other text is refused with the name of the field."""
    with pytest.raises(BadInput, match="page_token"):
        place_of("jobs", token)


@pytest.mark.parametrize("body", [b"7", b"[1, 2]", b'["2026-01-01", {}]', b"[]", b"null", b'"ab"'])
def test_a_forged_place_is_refused(body: bytes) -> None:
    """The digest is no secret: what it fits may still be no place."""
    forged = base64.urlsafe_b64encode(_digest("jobs", body) + body).decode()
    with pytest.raises(BadInput, match="page_token"):
        place_of("jobs", forged)
