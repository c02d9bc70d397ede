"""What the configuration says about access: issuers of identity tokens, roles, grants, sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.access import ROLES, Grant, Right
from core.identity import Person

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Signatures by a private key. `none` and HS… are not among them: a public key must not be able to
sign."""
USUAL_ALGORITHMS = ("RS256", "ES256")
ROLE_NAME = r"[a-z][a-z0-9_-]{0,62}"


@dataclass(frozen=True, slots=True)
class OidcIssuer:
    """Somebody whose identity tokens count."""

    name: str
    """As the configuration and the sign-in page call it."""
    issuer: str
    """The claim `iss`, to the letter; its configuration is below this URL."""
    audiences: tuple[str, ...]
    """The claim `aud` has one of these."""
    algorithms: tuple[str, ...] = USUAL_ALGORITHMS
    jwks_url: str | None = None
    """None: as the issuer's own configuration says."""
    groups_claim: str = "groups"
    email_domains: tuple[str, ...] = ()
    """E-mail addresses of these domains count; empty: of all."""
    client_id: str | None = None
    """Of the sign-in page; None: nobody signs in there with this issuer."""
    client_secret_file: str | None = None
    cli_client_id: str | None = None
    """Of `zen login`."""


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The section `access` of the configuration."""

    issuers: Mapping[str, OidcIssuer] = field(default_factory=dict)
    """By name."""
    google_audiences: tuple[str, ...] = ()
    """Of Google's identity tokens; empty: they do not count."""
    google_email_domains: tuple[str, ...] = ()
    iap_audience: str | None = None
    """Of Identity-Aware Proxy's assertions; None: they do not count."""
    grants: Mapping[str, tuple[Grant, ...]] = field(default_factory=dict)
    """By principal; those of the database come on top."""
    roles: Mapping[str, frozenset[Right]] = field(default_factory=lambda: ROLES)
    """The roles that every deployment has, and those of this one."""
    session_idle_s: float = 3600
    session_max_s: float = 12 * 3600

    def principals(self, person: Person) -> tuple[str, ...]:
        """Whose grants count for the person. A group is its issuer's, `group:<issuer>/<name>`:
        another issuer may have one of the same name. Its bare name is enough where there is one
        issuer alone."""
        own = f"{person.issuer}/"
        alone = len(self.issuers) == 1 and person.issuer in self.issuers
        bare = [name for name in person.groups if alone and not name.startswith(own)]
        names = (*bare, *(f"{own}{name}" for name in person.groups))
        return (person.user, *(f"group:{name}" for name in names))

    def unclear(self, principal: str) -> str:
        """What was expected of a principal if it is a group, and not clear whose; else empty."""
        kind, _, name = principal.partition(":")
        issuer, slash, _ = name.partition("/")
        if kind != "group" or len(self.issuers) < 2 or (slash and issuer in self.issuers):
            return ""
        whole = ", ".join(f"{issuer}/{name}" for issuer in sorted(self.issuers))
        return f"whose group it is, since there are several issuers: one of {whole}"

    def by_issuer(self, url: str) -> OidcIssuer | None:
        """The issuer with this `iss`."""
        return next((one for one in self.issuers.values() if one.issuer == url), None)
