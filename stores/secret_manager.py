"""Google Secret Manager over its REST API: one call, so that its client library, which costs the
service 30 MB, is not needed. Answers are never logged: they hold values."""

from __future__ import annotations

import asyncio
import base64
import binascii
from concurrent.futures import ThreadPoolExecutor
from threading import local
from typing import TYPE_CHECKING

from core.errors import SecretRefused, SecretsAway
from core.secret_references import ManagedSecret

if TYPE_CHECKING:
    import requests

GOOGLE = "https://secretmanager.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
CALL_TIMEOUT_S = 10.0
THREADS = 8
_REFUSALS = {
    400: "has no such enabled version",
    403: "may not be read by the scheduler's account (roles/secretmanager.secretAccessor)",
    404: "does not exist",
}


class SecretManager:
    """Calls from threads of its own: slow ones hold up nobody else. `url`: of a pretend one, which
    is called without credentials; None: Google's own."""

    def __init__(self, url: str | None = None) -> None:
        self._url, self._authorized = (url or GOOGLE).rstrip("/"), url is None
        self._threads = ThreadPoolExecutor(THREADS, "secrets")
        self._sessions = local()

    async def access(self, secret: ManagedSecret) -> bytes:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._access, secret)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _access(self, secret: ManagedSecret) -> bytes:
        import requests  # noqa: PLC0415  # 20 MB that only jobs with such secrets pay
        from google.auth import exceptions as auth_errors  # noqa: PLC0415

        name = f"projects/{secret.project}/secrets/{secret.name}/versions/{secret.version}"
        try:
            answer = self._session().get(f"{self._url}/v1/{name}:access", timeout=CALL_TIMEOUT_S)
        except auth_errors.DefaultCredentialsError:
            words = "the scheduler has no Google credentials for Secret Manager"
            raise SecretRefused(words) from None
        except (requests.RequestException, auth_errors.GoogleAuthError) as error:
            words = f"Secret Manager does not answer ({type(error).__name__})"
            raise SecretsAway(words) from None
        if answer.status_code in _REFUSALS:
            raise SecretRefused(f"secret {name} {_REFUSALS[answer.status_code]}")
        if not answer.ok:
            raise SecretsAway(f"Secret Manager answers {answer.status_code}")
        try:
            return base64.b64decode(answer.json()["payload"]["data"], validate=True)
        except (ValueError, KeyError, TypeError, binascii.Error):
            raise SecretsAway("Secret Manager answers something else than a secret") from None

    def _session(self) -> requests.Session:
        """One for each thread: sessions are not shared between threads."""
        if not hasattr(self._sessions, "one"):
            self._sessions.one = _open_session(self._authorized)
        session: requests.Session = self._sessions.one
        return session


def _open_session(authorized: bool) -> requests.Session:
    import requests  # noqa: PLC0415  # see _access

    if not authorized:
        return requests.Session()
    import google.auth  # noqa: PLC0415
    from google.auth.transport.requests import AuthorizedSession  # noqa: PLC0415

    credentials, _ = google.auth.default(scopes=[SCOPE])
    return AuthorizedSession(credentials)  # type: ignore[no-untyped-call]  # google-auth's
