"""Claims and the ids made of them."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from core.identity import ClaimRules, identity_of, user_id_of
from core.names import JOB_ID

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
ADDRESSES = st.from_regex(
    r"[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[a-z0-9][a-z0-9.-]{0,188}", fullmatch=True
)


def test_a_usual_address_stays_readable() -> None:
    """In `zen jobs` people find themselves."""
    assert user_id_of("ada.l@example.com") == "ada.l_at_example.com"
    assert user_id_of("ada_l+zen@example.com") == "ada__l_2b_zen_at_example.com"


@given(ADDRESSES)
def test_every_address_has_an_id(email: str) -> None:
    """That every part of the service takes."""
    assert JOB_ID.match(user_id_of(email))


@given(ADDRESSES, ADDRESSES)
def test_no_two_addresses_have_the_same_id(one: str, other: str) -> None:
    """Else the jobs of the one would be the other's."""
    assert (user_id_of(one) == user_id_of(other)) == (one == other)


def test_addresses_that_look_alike_stay_apart() -> None:
    """Addresses that spell an escape, and addresses longer than an id."""
    like = ["a@b.c", "a_at_b.c@b.c", "a_40_b.c@b.c", "a__at__b.c@b.c", "a@b_c.d"]
    like += [f"{'a' * 60}{end}@example.com" for end in "bcd"]
    assert len({user_id_of(email) for email in like}) == len(like)


def test_groups_may_be_one_word_or_many() -> None:
    """What is no printable word is left out."""
    rules = ClaimRules("corp", ("i",), ("a",))
    claims = {"iss": "i", "aud": ["x", "a"], "exp": 2e9, "iat": 1.7e9, "email": "a@b.c"}
    claims["email_verified"] = True

    def groups(value: object) -> tuple[str, ...]:
        return identity_of({**claims, "groups": value}, rules, NOW).groups

    assert groups("ml") == ("ml",)
    assert groups(["ml", "all", "ml", 5, "", "a\nb", "x" * 300]) == ("all", "ml")
    assert groups({"ml": 1}) == ()
