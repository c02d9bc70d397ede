"""Who an issuer says somebody is: claims of a token whose signature was checked, judged."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from core.errors import ZenError

LEEWAY_S = 30.0
"""Clocks of two machines differ by less."""
GROUPS_MAX = 500
GROUP_CHARS_MAX = 256
EMAIL = re.compile(r"[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[a-z0-9][a-z0-9.-]{0,188}\Z")
_USER_ID_CHARS_MAX = 63
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-")


class BadToken(ZenError):
    """The token does not count: sign in again, or use another one."""

    code = "bad_token"


@dataclass(frozen=True, slots=True)
class Person:
    """A person, as an issuer vouches for them."""

    issuer: str
    """Its name in the configuration."""
    email: str
    """In small letters."""
    groups: tuple[str, ...]
    expires_at: datetime

    @property
    def user(self) -> str:
        """As grants name the person."""
        return f"user:{self.email}"


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """What the claims of one issuer must say."""

    name: str
    issuers: tuple[str, ...]
    """`iss` is one of these."""
    audiences: tuple[str, ...]
    groups_claim: str = "groups"
    email_domains: tuple[str, ...] = ()
    vouches: bool = False
    """The issuer asserts verified addresses alone and does not say so in each token."""


def identity_of(claims: Mapping[str, object], rules: ClaimRules, now: datetime) -> Person:
    """BadToken says which claim is wrong."""
    assert rules.audiences, "a token for anybody is a token for nobody"
    if claims.get("iss") not in rules.issuers:
        raise BadToken(f"iss: the token is not of {rules.issuers[0]}")
    audience = claims.get("aud")
    meant_for = audience if isinstance(audience, list) else [audience]
    if not any(isinstance(one, str) and one in rules.audiences for one in meant_for):
        raise BadToken("aud: the token is meant for another service")
    expires_at = _check_times(claims, now)
    return Person(
        rules.name, _email(claims, rules), _groups(claims, rules.groups_claim), expires_at
    )


def _check_times(claims: Mapping[str, object], now: datetime) -> datetime:
    leeway = timedelta(seconds=LEEWAY_S)
    expires_at, issued_at = _time(claims, "exp"), _time(claims, "iat")
    if expires_at + leeway <= now:
        raise BadToken(f"exp: the token has expired at {expires_at:%Y-%m-%d %H:%M} UTC")
    if issued_at - leeway > now:
        raise BadToken("iat: the token was issued in the future")
    if "nbf" in claims and _time(claims, "nbf") - leeway > now:
        raise BadToken("nbf: the token does not count yet")
    return expires_at


def _time(claims: Mapping[str, object], name: str) -> datetime:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadToken(f"{name}: the token has no such time")
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        raise BadToken(f"{name}: the token's time is out of range") from None


def _email(claims: Mapping[str, object], rules: ClaimRules) -> str:
    given = claims.get("email")
    email = given.lower() if isinstance(given, str) and given.isascii() else ""
    if not EMAIL.match(email):
        raise BadToken("email: the token has no e-mail address that we can use")
    if not rules.vouches and claims.get("email_verified") not in (True, "true"):
        raise BadToken("email_verified: the issuer has not verified the e-mail address")
    domain = email.rpartition("@")[2]
    if rules.email_domains and domain not in rules.email_domains:
        raise BadToken(f"email: addresses of {domain} do not count here")
    return email


def _groups(claims: Mapping[str, object], claim: str) -> tuple[str, ...]:
    given = claims.get(claim, ())
    words = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    if len(words) > GROUPS_MAX:
        raise BadToken(f"{claim}: got {len(words)} groups, expected at most {GROUPS_MAX}")
    named = {word for word in words if isinstance(word, str) and 0 < len(word) <= GROUP_CHARS_MAX}
    return tuple(sorted(word for word in named if word.isprintable()))


NAMES_ITSELF = "authorization_response_iss_parameter_supported"
"""What an issuer's own configuration says if its answers to sign-ins name it (RFC 9207)."""


def is_answer_of(issuer: str, said: str | None, configuration: Mapping[str, object]) -> bool:
    """Whether the answer to a sign-in may be the issuer's: `said` is its parameter `iss`. An issuer
    whose configuration says that it names itself always does; of another one no name is no fault.
    So no issuer passes an answer off as another's (RFC 9207)."""
    if said is None:
        return configuration.get(NAMES_ITSELF) is not True
    return said == issuer


def user_id_of(email: str) -> str:
    """Whose jobs the submissions of this address are. No two addresses have the same id: every
    other character than small letters, digits, dots and hyphens is spelled between underscores."""
    spelled = "".join(_spelled(letter) for letter in email)
    if spelled[0] not in "._-" and len(spelled) <= _USER_ID_CHARS_MAX:
        return spelled
    return f"u-{hashlib.sha256(email.encode()).hexdigest()[:40]}"


def _spelled(letter: str) -> str:
    if letter in _PLAIN:
        return letter
    return {"@": "_at_", "_": "__"}.get(letter, f"_{ord(letter):02x}_")
