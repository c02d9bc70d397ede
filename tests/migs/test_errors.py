"""Google's exceptions become errors that name the next move."""

from __future__ import annotations

from typing import Any

import pytest
import requests
from google.api_core import exceptions as api_exceptions
from google.auth import exceptions as auth_exceptions
from google.protobuf.json_format import ParseError
from urllib3 import HTTPConnectionPool
from urllib3.exceptions import MaxRetryError, NewConnectionError

from core.errors import CloudBusy, CloudRefused, CloudUnsure, Forbidden, MigMissing, ZenError
from migs.errors import translate

api: Any = api_exceptions  # neither of them types its constructors
auth: Any = auth_exceptions


def answer(status: int, reason: str = "") -> Any:
    errors = [{"reason": reason, "message": "words"}] if reason else []
    return api.from_http_status(status, "words of Google", errors=errors)


@pytest.mark.parametrize(
    ("exc", "on_read", "on_write"),
    [
        (answer(403, "rateLimitExceeded"), CloudBusy, CloudBusy),
        (answer(403, "userRateLimitExceeded"), CloudBusy, CloudBusy),
        (answer(429), CloudBusy, CloudBusy),
        (answer(400, "resourceNotReady"), CloudBusy, CloudBusy),
        (answer(403, "forbidden"), Forbidden, Forbidden),
        (answer(403), Forbidden, Forbidden),
        (answer(401), Forbidden, Forbidden),
        (answer(404, "notFound"), MigMissing, MigMissing),
        (answer(400, "invalid"), CloudRefused, CloudRefused),
        (answer(409, "alreadyExists"), CloudRefused, CloudRefused),
        (answer(412, "conditionNotMet"), CloudRefused, CloudRefused),
        (answer(408), CloudBusy, CloudUnsure),
        (answer(500), CloudBusy, CloudUnsure),
        (answer(503, "backendError"), CloudBusy, CloudUnsure),
        (requests.ReadTimeout("slow"), CloudBusy, CloudUnsure),
        (requests.ConnectionError("reset"), CloudBusy, CloudUnsure),
        (requests.ConnectTimeout("far"), CloudBusy, CloudBusy),
        (TimeoutError(), CloudBusy, CloudUnsure),
        (ParseError("half a body"), CloudBusy, CloudUnsure),
        (auth.TransportError("token server"), CloudBusy, CloudBusy),
        (auth.RefreshError("revoked"), Forbidden, Forbidden),
        (auth.DefaultCredentialsError("none found"), Forbidden, Forbidden),
    ],
)
def test_translate(exc: Exception, on_read: type[ZenError], on_write: type[ZenError]) -> None:
    """A read that failed can be repeated; a write whose answer was lost leaves us unsure; what
    never left us is not unsure."""
    assert type(translate(exc, write=False)) is on_read
    assert type(translate(exc, write=True)) is on_write


def test_refused_connection_did_not_happen() -> None:
    """Nobody listened: a write that was never sent is not unsure."""
    pool = HTTPConnectionPool("127.0.0.1", 1)
    refused = NewConnectionError(pool, "refused")  # type: ignore[arg-type]
    exc = requests.ConnectionError(MaxRetryError(pool, "/", refused))
    assert isinstance(translate(exc, write=True), CloudBusy)


def test_words_are_kept() -> None:
    """The group, Google's reason and its message are in the error."""
    text = str(translate(answer(409, "alreadyExists"), write=True, what="my-mig"))
    assert text == "my-mig: 409 alreadyExists: words of Google"
