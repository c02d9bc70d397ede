"""Google's exceptions in our words, each named after the caller's next move."""

from __future__ import annotations

import requests
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import GoogleAuthError, TransportError
from google.protobuf.json_format import ParseError
from urllib3.exceptions import MaxRetryError, NewConnectionError

from core.errors import CloudBusy, CloudRefused, CloudUnsure, Forbidden, MigMissing, ZenError

TRANSLATED = (
    GoogleAPICallError,
    GoogleAuthError,
    requests.RequestException,
    ParseError,
    TimeoutError,
)
"""What a call is expected to fail with. Anything else is a bug of ours and stays visible."""

_LATER = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "resourceNotReady"})


def translate(exc: Exception, *, write: bool, what: str = "Compute Engine") -> ZenError:
    """The error to raise in place of `exc`. `write`: the call changes something, so that an
    answer that is lost leaves us unsure whether it did."""
    if isinstance(exc, GoogleAPICallError):
        return _from_answer(exc, write, what)
    if isinstance(exc, GoogleAuthError):
        return _from_auth(exc, what)
    if _never_sent(exc) or not write:
        return CloudBusy(f"{what}: {_words(exc)}")
    return CloudUnsure(f"{what}: no answer, it may have taken effect: {_words(exc)}")


def _from_answer(exc: GoogleAPICallError, write: bool, what: str) -> ZenError:
    status = int(exc.code or 0)
    reason = _reason(exc)
    text = f"{what}: {status} {reason}: {exc.message}"
    if status == 429 or reason in _LATER:
        return CloudBusy(text)
    if status in (401, 403):
        return Forbidden(text)
    if status == 404:
        return MigMissing(text)
    if status == 501:
        return CloudRefused(text)  # not implemented there: no repeat will help
    if status >= 500 or status in (0, 408):
        return CloudUnsure(text) if write else CloudBusy(text)
    return CloudRefused(text)


def _from_auth(exc: GoogleAuthError, what: str) -> ZenError:
    # The token is fetched before the call is made, so nothing has taken effect.
    if isinstance(exc, TransportError) or exc.retryable:
        return CloudBusy(f"{what}: the token server does not answer: {_words(exc)}")
    return Forbidden(f"{what}: no usable Google credentials: {_words(exc)}")


def _reason(exc: GoogleAPICallError) -> str:
    for entry in exc.errors:
        if isinstance(entry, dict) and entry.get("reason"):
            return str(entry["reason"])
    return "noReason"


def _never_sent(exc: Exception) -> bool:
    """Nobody listened: the request did not leave, so a write did not take effect."""
    if isinstance(exc, requests.exceptions.ConnectTimeout):
        return True
    cause = exc.args[0] if exc.args else None
    return isinstance(cause, MaxRetryError) and isinstance(cause.reason, NewConnectionError)


def _words(exc: Exception) -> str:
    """One bounded line; some of these exceptions say nothing but their name."""
    text = " ".join(str(exc).split())
    return f"{type(exc).__name__}: {text}"[:500]
