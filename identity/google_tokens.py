"""Google's identity tokens and the assertions of Identity-Aware Proxy, by google-auth."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from google.auth import exceptions, transport
from google.oauth2 import id_token

from core.identity import BadToken, ClaimRules, Person, identity_of
from core.ports import Clock
from identity.fetch import get_json
from identity.oidc import header_of
from identity.published_keys import Keys, PublishedKeys

GOOGLE_ISSUERS = ("https://accounts.google.com", "accounts.google.com")
GOOGLE_KEYS = "https://www.googleapis.com/oauth2/v1/certs"
IAP_ISSUER = "https://cloud.google.com/iap"
IAP_KEYS = "https://www.gstatic.com/iap/verify/public_key"
SKEW_S = 30


class GoogleTokens:
    """Tokens that one of Google's services signs."""

    def __init__(self, rules: ClaimRules, algorithm: str, keys_url: str, clock: Clock) -> None:
        self._rules = rules
        self._algorithm = algorithm
        self._url = keys_url
        self._clock = clock
        self._keys = PublishedKeys(self._fetch_keys, clock)

    async def identity(self, token: str) -> Person:
        """BadToken, IssuerDown, or who this is."""
        key_id, algorithm = header_of(token)
        if algorithm != self._algorithm:
            raise BadToken(f"alg: got {algorithm[:20]}, expected {self._algorithm}")
        key = await self._keys.key(key_id)
        if key is None:
            raise BadToken("kid: Google has no such key")
        audiences = list(self._rules.audiences)
        try:
            claims = id_token.verify_token(
                token, _Published({key_id: key}), audiences, self._url, SKEW_S
            )
        except (ValueError, exceptions.GoogleAuthError) as error:
            raise BadToken(f"the token does not count: {str(error)[:200]}") from error
        return identity_of(claims, self._rules, self._clock.now())

    async def _fetch_keys(self) -> Keys:
        return await get_json(self._url)


class _Published(transport.Request):
    """What google-auth would fetch, fetched already."""

    def __init__(self, keys: Keys) -> None:
        self._body = msgspec.json.encode(keys)

    def __call__(self, *_: object, **__: object) -> transport.Response:
        return _Answer(self._body)


class _Answer(transport.Response):
    def __init__(self, body: bytes) -> None:
        self._body = body

    @property
    def status(self) -> int:
        return 200

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    @property
    def data(self) -> bytes:
        return self._body


def google_people(
    audiences: tuple[str, ...], email_domains: tuple[str, ...], clock: Clock, url: str = GOOGLE_KEYS
) -> GoogleTokens:
    """People and service accounts with a Google identity token for one of the audiences."""
    rules = ClaimRules("google", GOOGLE_ISSUERS, audiences, email_domains=email_domains)
    return GoogleTokens(rules, "RS256", url, clock)


def iap_people(audience: str, clock: Clock, url: str = IAP_KEYS) -> GoogleTokens:
    """Those whom Identity-Aware Proxy let through; it knows verified addresses alone."""
    rules = ClaimRules("iap", (IAP_ISSUER,), (audience,), vouches=True)
    return GoogleTokens(rules, "ES256", url, clock)
