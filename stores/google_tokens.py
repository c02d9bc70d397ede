"""Tokens of Google's for jobs, by google-auth: the scheduler's own access token, exchanged at the
Security Token Service for one that opens some prefixes of one bucket (a Credential Access
Boundary), or used to ask for one of a tenant's account (impersonation). Answers are never logged:
they hold tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from threading import Lock
from typing import TYPE_CHECKING, Any

from core.clock import SystemClock
from core.errors import SecretRefused, SecretsAway
from core.job_tokens import AccessToken

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

STS = "https://sts.googleapis.com"
IAM = "https://iamcredentials.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
ROLE = "roles/storage.objectUser"
"""Create, read, list and replace objects; no access lists."""
READ_ROLE = "roles/storage.objectViewer"
LIFE_S = 3600
CALL_TIMEOUT_S = 10.0
THREADS = 8
FRESH_S = 900.0
"""A down-scoped token ends with the one that it was made of: an older one is refreshed before."""
_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105  # the name of a type

_STALE = "invalid_grant"
"""Our own token is not taken any more: the next try has a new one."""
_REFUSALS = frozenset({"invalid_request", "invalid_target", "invalid_scope", "unauthorized_client"})

_IAM_REFUSALS = frozenset({"PERMISSION_DENIED", "NOT_FOUND", "INVALID_ARGUMENT"})


def condition(bucket: str, prefixes: Sequence[str]) -> str:
    """The objects below the prefixes, and lists of them, in Google's expression language."""
    parts = []
    for prefix in prefixes:
        below = _literal(f"projects/_/buckets/{bucket}/objects/{prefix}")
        parts.append(f"resource.name.startsWith({below})")
        listed = "api.getAttribute('storage.googleapis.com/objectListPrefix', '')"
        parts.append(f"{listed}.startsWith({_literal(prefix)})")
    return " || ".join(parts)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class GoogleTokenMint:
    """Calls from threads of its own: slow ones hold up nobody else. `url`: of a pretend cloud that
    has the same services; None: Google's own."""

    def __init__(self, url: str | None = None) -> None:
        self._sts = (url or STS).rstrip("/")
        self._iam = f"{(url or IAM).rstrip('/')}/v1/projects/-/serviceAccounts/"
        self._threads = ThreadPoolExecutor(THREADS, "tokens")
        self._lock = Lock()
        self._source: Credentials | None = None

    async def for_prefixes(
        self, bucket: str, prefixes: Sequence[str], read: Sequence[str] = ()
    ) -> AccessToken:
        """A token for these prefixes of the bucket alone, and to read these others. SecretRefused,
        SecretsAway."""
        rules = [(ROLE, prefixes)] + ([(READ_ROLE, read)] if read else [])
        return await self._call(lambda: self._downscoped(bucket, rules))

    async def for_account(self, account: str) -> AccessToken:
        """A token of that service account, for an hour at most. SecretRefused, SecretsAway."""
        return await self._call(lambda: self._impersonated(account))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _call(self, mint: Callable[[], AccessToken]) -> AccessToken:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, _told, mint)
        except SecretsAway:
            self._source = None
            raise

    def _downscoped(self, bucket: str, opened: Sequence[tuple[str, Sequence[str]]]) -> AccessToken:
        from google.auth import downscoped  # noqa: PLC0415  # only stores in buckets pay for it
        from google.oauth2 import sts  # noqa: PLC0415

        source, ends_at = self._own()
        rules = [
            downscoped.AccessBoundaryRule(  # type: ignore[no-untyped-call]  # google-auth's
                available_resource=f"//storage.googleapis.com/projects/_/buckets/{bucket}",
                available_permissions=[f"inRole:{role}"],
                availability_condition=downscoped.AvailabilityCondition(  # type: ignore[no-untyped-call]
                    condition(bucket, prefixes)
                ),
            )
            for role, prefixes in opened
        ]
        boundary = downscoped.CredentialAccessBoundary(rules)  # type: ignore[no-untyped-call]
        # Not downscoped.Credentials: its address is fixed, and it refreshes the source each time.
        answer = sts.Client(f"{self._sts}/v1/token").exchange_token(  # type: ignore[no-untyped-call]
            request=_request(),
            grant_type=_GRANT,
            subject_token=source,
            subject_token_type=_ACCESS_TOKEN,
            requested_token_type=_ACCESS_TOKEN,
            additional_options=boundary.to_json(),  # type: ignore[no-untyped-call]
        )
        life_s = answer.get("expires_in")
        if life_s:
            ends_at = min(ends_at, SystemClock().now().timestamp() + float(life_s))
        return AccessToken(str(answer["access_token"]), ends_at)

    def _impersonated(self, account: str) -> AccessToken:
        from google.auth import impersonated_credentials  # noqa: PLC0415
        from google.oauth2.credentials import Credentials as Bearer  # noqa: PLC0415

        source, _ = self._own()
        wanted = impersonated_credentials.Credentials(  # type: ignore[no-untyped-call]
            source_credentials=Bearer(source),  # type: ignore[no-untyped-call]
            target_principal=account,
            target_scopes=[SCOPE],
            lifetime=LIFE_S,
            iam_endpoint_override=f"{self._iam}{account}:generateAccessToken",
        )
        wanted.refresh(_request())  # type: ignore[no-untyped-call]
        return AccessToken(str(wanted.token), _ends_at(wanted), account)

    def _own(self) -> tuple[str, float]:
        """The scheduler's own token, and when it ends."""
        import google.auth  # noqa: PLC0415

        with self._lock:
            if self._source is None:
                self._source, _ = google.auth.default(scopes=[SCOPE])
            source, now = self._source, SystemClock().now().timestamp()
            if not source.valid or _ends_at(source) - now < FRESH_S:
                source.refresh(_request())  # type: ignore[no-untyped-call]
            return str(source.token), _ends_at(source)


def _ends_at(source: Credentials) -> float:
    if source.expiry is None:
        return SystemClock().now().timestamp() + FRESH_S
    return float(source.expiry.replace(tzinfo=UTC).timestamp())


def _request() -> Any:
    from google.auth.transport.requests import Request  # noqa: PLC0415

    call = Request()

    def bounded(*args: Any, **words: Any) -> Any:
        return call(*args, **{"timeout": CALL_TIMEOUT_S, **words})

    return bounded


def _code(error: Exception) -> str:
    """The protocol's own word for it (RFC 6749); empty if there is none."""
    try:
        said = json.loads(str(error.args[-1]))
    except ValueError:
        return ""
    code = said.get("error", "") if isinstance(said, dict) else ""
    return code if code in _REFUSALS or code == _STALE else ""


def _status(error: Exception) -> str:
    """The word of Google's own error model; empty if there is none."""
    try:
        said = json.loads(str(error.args[-1]))["error"]["status"]
    except (ValueError, KeyError, TypeError):
        return ""
    return said if said in _IAM_REFUSALS else ""


def _told(mint: Callable[[], AccessToken]) -> AccessToken:
    """What goes wrong, without words that may hold a token."""
    from google.auth import exceptions  # noqa: PLC0415

    try:
        return mint()
    except exceptions.DefaultCredentialsError:
        words = "the scheduler has no Google credentials to make tokens of"
        raise SecretRefused(words) from None
    except exceptions.OAuthError as error:
        code = _code(error)
        words = f"Google's Security Token Service answers {code or 'an error'}"
        raise (SecretRefused(words) if code in _REFUSALS else SecretsAway(words)) from None
    except exceptions.RefreshError as error:
        if (status := _status(error)) in _IAM_REFUSALS:
            words = f"the account of the tenant's jobs cannot be used: IAM answers {status}"
            raise SecretRefused(f"{words} (roles/iam.serviceAccountTokenCreator)") from None
        raise SecretsAway("tokens cannot be had (RefreshError)") from None
    except (exceptions.GoogleAuthError, KeyError, ValueError, TypeError) as error:
        raise SecretsAway(f"tokens cannot be had ({type(error).__name__})") from None
