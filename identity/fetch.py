"""JSON from an issuer: small, soon, or not at all."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx
import msgspec

from core.browser_checks import is_loopback
from core.errors import IssuerDown

TOTAL_S = 5.0
AT_ONCE_MAX = 16
"""Calls under way: sign-ins need no credentials, so that anybody can ask for more."""
_under_way: set[object] = set()
BYTES_MAX = 256 * 1024


async def get_json(url: str) -> dict[str, object]:
    """IssuerDown: it did not answer, or not with what an issuer answers."""
    return await _object(url, "GET", {}, None)


async def post_form(
    url: str, form: Mapping[str, str], auth: tuple[str, str] | None = None
) -> dict[str, object]:
    """The answer to a form, also if it is a refusal: RFC 6749 says why in JSON."""
    return await _object(url, "POST", form, auth)


async def _object(
    url: str, method: str, form: Mapping[str, str], auth: tuple[str, str] | None
) -> dict[str, object]:
    if len(_under_way) >= AT_ONCE_MAX:
        raise IssuerDown("too many sign-ins at once: try again in a few seconds")
    call = object()
    _under_way.add(call)
    try:
        return await _called(url, method, form, auth)
    finally:
        _under_way.discard(call)


@functools.cache
def _trusted() -> ssl.SSLContext:
    """Certificates of authorities are read once: that takes 15 ms of the event loop."""
    return ssl.create_default_context()


async def _called(
    url: str, method: str, form: Mapping[str, str], auth: tuple[str, str] | None
) -> dict[str, object]:
    local = is_loopback(urlsplit(url).hostname or "")
    try:
        # The whole exchange has one time-out: one for each read would let a slow issuer drip.
        async with (
            asyncio.timeout(TOTAL_S),
            httpx.AsyncClient(timeout=TOTAL_S, trust_env=not local, verify=_trusted()) as client,
            client.stream(method, url, data=dict(form) or None, auth=auth) as answer,
        ):
            if answer.status_code != 200 and not (method == "POST" and answer.status_code < 500):
                raise IssuerDown(f"{url} answered {answer.status_code}")
            found = msgspec.json.decode(await _bounded(answer, url))
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
        raise IssuerDown(f"{url} does not answer: {error!r}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise IssuerDown(f"{url} answered something other than JSON") from error
    if not isinstance(found, dict):
        raise IssuerDown(f"{url} answered no JSON object")
    return found


async def _bounded(answer: httpx.Response, url: str) -> bytes:
    parts, size = [], 0
    async for part in answer.aiter_bytes():
        size += len(part)
        if size > BYTES_MAX:
            raise IssuerDown(f"{url} answered more than {BYTES_MAX} bytes")
        parts.append(part)
    return b"".join(parts)
