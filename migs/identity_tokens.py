"""core.worker_identity.IdentityTokens over Google's instance identity tokens.

https://cloud.google.com/compute/docs/instances/verifying-instance-identity: a JSON Web Token,
RS256, valid for an hour, that a VM's metadata server hands to the processes of that VM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google.auth import exceptions as auth_errors
from google.auth import jwt, transport
from google.oauth2 import id_token

from config.settings import Settings
from core.ports import Clock
from core.worker_identity import IdentityRefused, VmIdentity
from migs.issuer_keys import GOOGLE_CERTIFICATES, IssuerKeys

ISSUERS = ("https://accounts.google.com", "accounts.google.com")
TOKEN_CHARS_MAX = 8192
CLOCK_SKEW_S = 30
_ALGORITHM = "RS256"
_MALFORMED = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What google-auth raises on words that are no token."""


@dataclass(frozen=True, slots=True)
class _Answer(transport.Response):
    """What google-auth wants of an HTTP call for the certificates: ours was made before."""

    data: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Held(transport.Request):
    """An HTTP client that knows one answer."""

    certificates: bytes

    def __call__(self, *_: object, **__: object) -> _Answer:
        return _Answer(self.certificates)


class GoogleIdentityTokens:
    """Checks tokens of VMs of one project. Belongs to one event loop, and never blocks it."""

    def __init__(self, project: str, keys: IssuerKeys) -> None:
        self._project, self._keys = project, keys

    async def verify(self, token: str, audience: str) -> VmIdentity | IdentityRefused:
        """Issuer, signature, time, audience, project."""
        key_id = _key_of(token)
        if isinstance(key_id, IdentityRefused):
            return key_id
        certificates = await self._keys.having(key_id)
        if certificates is None:
            return IdentityRefused("its issuer has no such key")
        claims = _claims(token, audience, certificates)
        return claims if isinstance(claims, IdentityRefused) else self._judge(claims)

    def _judge(self, claims: Mapping[str, Any]) -> VmIdentity | IdentityRefused:
        if claims.get("iss") not in ISSUERS:
            return IdentityRefused("it was not issued by Google")
        google = claims.get("google")
        machine = google.get("compute_engine") if isinstance(google, Mapping) else None
        if not isinstance(machine, Mapping):
            return IdentityRefused("it names no VM")
        words = [
            machine.get(name) for name in ("project_id", "zone", "instance_id", "instance_name")
        ]
        project, zone, number, name = (word if isinstance(word, str) else "" for word in words)
        issued_at = claims.get("iat")
        if not (zone and number and name) or not isinstance(issued_at, int):
            return IdentityRefused("it names no VM")
        if project != self._project:
            return IdentityRefused("it names a VM of another project")
        return VmIdentity(project, zone, number, name, issued_at)


def open_identity_tokens(settings: Settings, clock: Clock) -> GoogleIdentityTokens:
    """As the settings say. A Compute endpoint in plain text is a pretend cloud: what it says about
    its VMs is believed, and so are its certificates."""
    said, compute = settings.cloud["identity_certs_url"], settings.cloud["compute_url"] or ""
    pretend = compute.rstrip("/") + "/oauth2/v1/certs" if compute.startswith("http://") else ""
    url = said or pretend or GOOGLE_CERTIFICATES
    return GoogleIdentityTokens(settings.project, IssuerKeys(url, clock))


def _key_of(token: str) -> str | IdentityRefused:
    """The id of the key that it claims to be signed with. Nothing of this is believed yet."""
    if not token or len(token) > TOKEN_CHARS_MAX or not token.isascii():
        return IdentityRefused(f"expected a token of at most {TOKEN_CHARS_MAX} ASCII characters")
    try:
        header = jwt.decode_header(token)  # type: ignore[no-untyped-call]
        key_id, algorithm = header.get("kid"), header.get("alg")
    except (auth_errors.GoogleAuthError, *_MALFORMED):
        return IdentityRefused("it is no JSON Web Token")
    if algorithm != _ALGORITHM or not isinstance(key_id, str):
        return IdentityRefused(f"expected a token signed by {_ALGORITHM}, with a key id")
    return key_id


def _claims(token: str, audience: str, certificates: bytes) -> Mapping[str, Any] | IdentityRefused:
    try:
        return id_token.verify_token(
            token,
            _Held(certificates),
            audience=audience,
            clock_skew_in_seconds=CLOCK_SKEW_S,
        )
    except auth_errors.GoogleAuthError as error:
        return IdentityRefused(str(error).split(". ")[0][:200])
    except _MALFORMED as error:
        return IdentityRefused(f"it cannot be read ({type(error).__name__})")
