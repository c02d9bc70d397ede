"""Which issuer's keys check a token, under the rules in force."""

from __future__ import annotations

from collections.abc import Callable

from core.access_rules import AccessRules
from core.identity import BadToken, Person
from core.ports import Clock
from identity.google_tokens import GOOGLE_ISSUERS, GoogleTokens, google_people, iap_people
from identity.oidc import OidcTokens, unchecked


class TokenVerifier:
    """One per replica. Follows the configuration: what it knows of an issuer is kept until the
    issuer's entry changes."""

    def __init__(self, rules: Callable[[], AccessRules], clock: Clock) -> None:
        self._rules = rules
        self._clock = clock
        self._oidc: dict[str, OidcTokens] = {}
        self._google: tuple[object, GoogleTokens] | None = None
        self._iap: tuple[object, GoogleTokens] | None = None

    async def identity(self, token: str) -> Person:
        """BadToken, IssuerDown, or who this is."""
        rules = self._rules()
        url, audience = unchecked(token)
        if url in GOOGLE_ISSUERS and audience in rules.google_audiences:
            return await self._google_tokens(rules).identity(token)
        issuer = rules.by_issuer(url)
        if issuer is None:
            raise BadToken("iss: tokens of this issuer do not count here")
        return await self.oidc(issuer.name).identity(token)

    async def iap_identity(self, assertion: str) -> Person:
        """Of the header that Identity-Aware Proxy adds."""
        audience = self._rules().iap_audience
        if audience is None:
            raise BadToken(
                "assertions of Identity-Aware Proxy do not count: see access.iap_audience"
            )
        if self._iap is None or self._iap[0] != audience:
            self._iap = audience, iap_people(audience, self._clock)
        return await self._iap[1].identity(assertion)

    def oidc(self, name: str) -> OidcTokens:
        """The tokens of an issuer that is configured under this name; BadToken: none is."""
        rules = self._rules()
        issuer = rules.issuers.get(name)
        if issuer is None:
            raise BadToken("no such issuer is configured")
        known = self._oidc.get(name)
        if known is None or known.issuer != issuer:
            kept = {one: tokens for one, tokens in self._oidc.items() if one in rules.issuers}
            self._oidc = {**kept, name: (known := OidcTokens(issuer, self._clock))}
        return known

    def _google_tokens(self, rules: AccessRules) -> GoogleTokens:
        said = rules.google_audiences, rules.google_email_domains
        if self._google is None or self._google[0] != said:
            self._google = said, google_people(said[0], said[1], self._clock)
        return self._google[1]
