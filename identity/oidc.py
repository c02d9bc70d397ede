"""Any OpenID Connect issuer, by PyJWT."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jwt
from jwt.types import Options

from core.access_rules import ALGORITHMS, OidcIssuer
from core.errors import IssuerDown
from core.identity import BadToken, ClaimRules, Person, identity_of, is_answer_of
from core.ports import Clock
from identity.fetch import get_json, post_form
from identity.published_keys import Keys, PublishedKeys

DISCOVERY_S = 600.0
_CHECKED_BY_US: Options = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
"""core/identity judges the claims, at the time that the caller says."""


class OidcTokens:
    """The tokens of one issuer."""

    def __init__(self, issuer: OidcIssuer, clock: Clock) -> None:
        assert set(issuer.algorithms) <= set(ALGORITHMS), issuer.algorithms
        self.issuer = issuer
        self._clock = clock
        self._keys = PublishedKeys(self._fetch_keys, clock)
        self._discovery: Mapping[str, object] | None = None
        self._discovered_at = 0.0
        self._rules = ClaimRules(
            name=issuer.name,
            issuers=(issuer.issuer,),
            audiences=issuer.audiences,
            groups_claim=issuer.groups_claim,
            email_domains=issuer.email_domains,
        )

    async def identity(self, token: str, nonce: str | None = None) -> Person:
        """BadToken, IssuerDown, or who this is. `nonce`: what the sign-in asked for."""
        claims = await self._claims(token)
        if nonce is not None and claims.get("nonce") != nonce:
            raise BadToken("nonce: the token answers another sign-in")
        return identity_of(claims, self._rules, self._clock.now())

    async def _claims(self, token: str) -> Mapping[str, object]:
        key_id, algorithm = header_of(token)
        if algorithm not in self.issuer.algorithms:
            raise BadToken(f"alg: got {algorithm[:20]}, which does not count")
        key = await self._keys.key(key_id)
        if key is None:
            raise BadToken("kid: the issuer has no such key")
        assert isinstance(key, jwt.PyJWK)
        try:
            # A PyJWK knows its own algorithm: one that the token names instead is refused.
            found = jwt.decode(
                token, key, algorithms=list(self.issuer.algorithms), options=_CHECKED_BY_US
            )
        except (jwt.InvalidTokenError, ValueError) as error:
            raise BadToken(f"the token's signature does not count: {error}") from error
        return dict(found)

    async def _fetch_keys(self) -> Keys:
        url = self.issuer.jwks_url or await self.endpoint("jwks_uri")
        listed = (await get_json(url)).get("keys")
        if not isinstance(listed, list):
            raise IssuerDown(f"{url} lists no keys")
        found: dict[str, object] = {}
        for given in listed:
            if (key := _signing_key(given)) is not None and key.key_id:
                found[key.key_id] = key
        return found

    async def endpoint(self, name: str) -> str:
        """One of the issuer's addresses, as its own configuration says."""
        address = (await self._discovered()).get(name)
        if not isinstance(address, str) or not as_safe(address, self.issuer.issuer):
            raise IssuerDown(f"{self._configuration_url} has no {name} that we can use")
        return address

    @property
    def _configuration_url(self) -> str:
        return f"{self.issuer.issuer.rstrip('/')}/.well-known/openid-configuration"

    async def _discovered(self) -> Mapping[str, object]:
        """What the issuer says of itself, kept for a while: sign-ins need no credentials, and must
        not make us call the issuer each time."""
        now, url = self._clock.monotonic(), self._configuration_url
        if self._discovery is None or now - self._discovered_at > DISCOVERY_S:
            self._discovery, self._discovered_at = await get_json(url), now
        if self._discovery.get("issuer") != self.issuer.issuer:
            raise IssuerDown(f"{url} speaks for another issuer")
        return self._discovery

    async def check_answer(self, said: str | None) -> None:
        """BadToken: the answer to a sign-in names another issuer, or lacks its name."""
        if not is_answer_of(self.issuer.issuer, said, await self._discovered()):
            raise BadToken("iss: the answer is not of the issuer that was asked: begin again")

    async def redeem(self, code: str, verifier: str, redirect_uri: str, nonce: str) -> Person:
        """The identity behind the code of a sign-in (RFC 7636)."""
        issuer = self.issuer
        assert issuer.client_id is not None
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": verifier,
            "redirect_uri": redirect_uri,
            "client_id": issuer.client_id,
        }
        if issuer.client_secret_file is not None:
            form["client_secret"] = _secret_in(issuer.client_secret_file)
        answer = await post_form(await self.endpoint("token_endpoint"), form)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise BadToken(f"the issuer gave no token: {str(answer.get('error', 'unknown'))[:80]}")
        return await self.identity(token, nonce)


def header_of(token: str) -> tuple[str, str]:
    """(kid, alg) as the token says, unchecked; BadToken if it is none."""
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.InvalidTokenError, ValueError, RecursionError) as error:
        raise BadToken("this is no signed token") from error
    key_id, algorithm = header.get("kid"), header.get("alg")
    if not isinstance(key_id, str) or not isinstance(algorithm, str):
        raise BadToken("kid: the token names no key")
    return key_id, algorithm


def unchecked(token: str) -> tuple[str, str]:
    """(iss, aud) as the token says, unchecked: only to find whose keys check it."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.InvalidTokenError, ValueError, RecursionError) as error:
        raise BadToken("this is no signed token") from error
    issuer, audience = claims.get("iss"), claims.get("aud")
    return str(issuer), audience if isinstance(audience, str) else ""


def as_safe(address: str, issuer: str) -> bool:
    """Whether an address is as safe as its issuer's: plain HTTP for issuers on loopback alone."""
    return address.startswith("https://") or (
        issuer.startswith("http://") and address.startswith("http://")
    )


def _signing_key(given: object) -> jwt.PyJWK | None:
    """None for what cannot check a signature of ours: other kinds of keys may be listed too."""
    if not isinstance(given, dict) or given.get("use", "sig") != "sig":
        return None
    if given.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    try:
        return jwt.PyJWK(given)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None


def _secret_in(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise IssuerDown(f"cannot read the client's secret in {file}") from error
