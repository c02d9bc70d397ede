"""The keys of the section `access`: who may call, by configuration."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from config.keys import REQUIRED, Key
from config.value_types import SECONDS, ValueType, optional, text, texts
from core.access_rules import ALGORITHMS, ROLE_NAME, USUAL_ALGORITHMS, AccessRules
from core.browser_checks import is_loopback
from core.identity import EMAIL, GROUP_CHARS_MAX


def _is_safe_url(value: object) -> bool:
    """Who can change what a plain connection carries could sign as anybody."""
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", value):
        return False
    return value.startswith("https://") or is_loopback(urlsplit(value).hostname or "")


def _is_grant_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


GRANTS = ValueType("a list of {tenant: ID, role: ROLE}", _is_grant_list)
SAFE_URL = ValueType("an https URL, e.g. https://login.example.org", _is_safe_url)
ACCESS_NAMES: Final[dict[str, ValueType]] = {
    "access.issuers.*": text("small letters, digits and -", r"[a-z][a-z0-9-]{0,30}"),
    "access.groups.*": text("a group as issuers name it", rf"\S.{{0,{GROUP_CHARS_MAX - 1}}}"),
    "access.users.*": ValueType(
        "an e-mail address", lambda v: isinstance(v, str) and EMAIL.match(v.lower()) is not None
    ),
    "access.roles.*": text("small letters, digits, _ and -", ROLE_NAME),
}
_ACCESS = AccessRules()
_WORD = text("a word without spaces", r"\S{1,512}")
_WORDS = texts("a list of words without spaces", r"\S{1,512}")
_DOMAINS = texts("a list of domains, e.g. [example.org]", r"[a-z0-9][a-z0-9.-]{0,188}")
ACCESS_KEYS: Final[tuple[Key, ...]] = (
    Key(
        "access.issuers.*.issuer",
        SAFE_URL,
        REQUIRED,
        "An OpenID Connect issuer whose identity tokens count, as their claim `iss` has it.",
    ),
    Key(
        "access.issuers.*.audiences",
        _WORDS,
        [],
        "Whom tokens are meant for (claim `aud`), besides the client ids below.",
    ),
    Key(
        "access.issuers.*.algorithms",
        ValueType(
            f"a list among {', '.join(ALGORITHMS)}",
            lambda v: isinstance(v, list) and bool(v) and all(word in ALGORITHMS for word in v),
        ),
        list(USUAL_ALGORITHMS),
        "With which signatures.",
    ),
    Key(
        "access.issuers.*.jwks_url",
        optional(SAFE_URL),
        None,
        "Its public keys; null: where `<issuer>/.well-known/openid-configuration` says.",
    ),
    Key(
        "access.issuers.*.groups_claim", _WORD, "groups", "The claim that lists a person's groups."
    ),
    Key(
        "access.issuers.*.email_domains",
        _DOMAINS,
        [],
        "Only people with addresses of these domains; empty: of all that the issuer verified.",
    ),
    Key(
        "access.issuers.*.client_id",
        optional(_WORD),
        None,
        "The client of the sign-in page (`/sign-in`, call-back `/sign-in/callback`); null: it does "
        "not offer this issuer.",
    ),
    Key(
        "access.issuers.*.client_secret_file",
        optional(text("an absolute path", r"/[^\x00-\x1f]{0,4095}")),
        None,
        "A file with that client's secret, if it has one.",
    ),
    Key(
        "access.issuers.*.cli_client_id",
        optional(_WORD),
        None,
        "The client of `zen login`; null: `zen login` needs --client-id.",
    ),
    Key(
        "access.google.audiences",
        _WORDS,
        [],
        "Google identity tokens for these audiences count (people, and service accounts).",
    ),
    Key("access.google.email_domains", _DOMAINS, [], "Only of these domains; empty: of all."),
    Key(
        "access.iap_audience",
        optional(_WORD),
        None,
        "Assertions of Identity-Aware Proxy count: /projects/<number>/global/backendServices/<id>.",
    ),
    Key("access.groups.*", GRANTS, REQUIRED, "The roles of a group's members."),
    Key("access.users.*", GRANTS, REQUIRED, "The roles of a person, by e-mail address."),
    Key(
        "access.roles.*",
        ValueType(
            "a list of rights", lambda v: isinstance(v, list) and all(isinstance(w, str) for w in v)
        ),
        REQUIRED,
        "A role of your own, by its rights (docs/operator/sign-in.md).",
    ),
    Key(
        "access.session_idle_s",
        SECONDS,
        _ACCESS.session_idle_s,
        "A session of a browser that sends nothing for so long has ended.",
    ),
    Key(
        "access.session_max_s", SECONDS, _ACCESS.session_max_s, "How long a session lasts at most."
    ),
)
