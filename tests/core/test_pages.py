"""Page tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from core.pages import place_of, token_for
from tests.db.builders import Maker, at


def test_tokens_come_back_as_they_went() -> None:
    """A token holds the place it was made for, and serves one question."""
    uid = Maker().job().uid
    token = token_for(("jobs", "a"), at(0.123456), uid)
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
