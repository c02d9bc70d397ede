"""The public keys of the issuer of identity tokens: fetched off the event loop, kept, bounded.

google-auth fetches them anew for every token that it checks. Here they are asked for when they are
older than their issuer says, and when a token names a key that is not among them, at most once in
REFETCH_S: a token that anybody can send must not make us call Google each time.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import requests
import structlog

from core.ports import Clock
from core.worker_identity import IdentityUnsure

log = structlog.get_logger("migs")
GOOGLE_CERTIFICATES = "https://www.googleapis.com/oauth2/v1/certs"
FETCH_S = 5.0
BYTES_MAX = 256 * 1024
KEYS_MAX = 64
REFETCH_S = 2.0
KEPT_LEAST_S, KEPT_MOST_S = 60.0, 24 * 3600.0
STALE_MAX_S = 24 * 3600.0
"""An issuer that does not answer stops no VM that it has vouched for, for a day."""
_MAX_AGE = re.compile(r"max-age=(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Fetched:
    """{key id: X.509 certificate} as it came, and how long it is good for."""

    body: bytes
    keys: frozenset[str]
    kept_s: float


Fetch = Callable[[str], Fetched]
"""Blocking; OSError or ValueError if there is no good answer."""


class IssuerKeys:
    """The certificates at one URL. Belongs to one event loop."""

    def __init__(self, url: str, clock: Clock, fetch: Fetch | None = None) -> None:
        self._url, self._clock, self._fetch = url, clock, fetch or fetch_certificates
        self._lock = asyncio.Lock()
        self._held: Fetched | None = None
        self._held_at = 0.0
        self._tried_at: float | None = None
        self._problem = ""

    async def having(self, key_id: str) -> bytes | None:
        """Certificates that hold this key; None: the issuer has no such key. IdentityUnsure if it
        does not answer."""
        held = self._held
        fresh = held is not None and self._clock.monotonic() - self._held_at <= held.kept_s
        if held is not None and fresh and key_id in held.keys:
            return held.body  # nobody waits while a key that somebody invented is asked for
        async with self._lock:
            held = self._held
            age_s = self._clock.monotonic() - self._held_at
            if held is None or age_s > held.kept_s or key_id not in held.keys:
                await self._refresh()
            held = self._held
            age_s = self._clock.monotonic() - self._held_at
            if held is None or age_s > held.kept_s + STALE_MAX_S:
                raise IdentityUnsure(f"{self._url}: {self._problem or 'no certificates'}")
            if key_id in held.keys:
                return held.body
            if self._problem:
                raise IdentityUnsure(f"{self._url}: {self._problem}")
            return None

    async def _refresh(self) -> None:
        now = self._clock.monotonic()
        if self._tried_at is not None and now - self._tried_at < REFETCH_S:
            return
        self._tried_at = now
        try:
            self._held = await asyncio.to_thread(self._fetch, self._url)
        except (OSError, ValueError) as error:
            self._problem = f"{type(error).__name__}: {error}"
            log.warning("certificates of identity tokens", url=self._url, why=self._problem)
        else:
            self._held_at, self._problem = now, ""


def fetch_certificates(url: str) -> Fetched:
    """One call, bounded in time and size; no redirects."""
    with requests.Session() as session:
        # A plain-text address is one of our own, near by: no proxy would reach it.
        session.trust_env = url.startswith("https://")
        with session.get(url, timeout=FETCH_S, stream=True, allow_redirects=False) as answer:
            body = answer.raw.read(BYTES_MAX + 1, decode_content=True)
            if answer.status_code != 200:
                raise ValueError(f"HTTP status {answer.status_code}, expected 200")
            return read_certificates(body, answer.headers)


def read_certificates(body: bytes, headers: Mapping[str, str]) -> Fetched:
    """The answer, or ValueError."""
    if len(body) > BYTES_MAX:
        raise ValueError(f"more than {BYTES_MAX} bytes")
    keys = json.loads(body)
    certificates = keys.values() if isinstance(keys, dict) else [None]
    if len(keys) > KEYS_MAX or not all(_is_certificate(text) for text in certificates):
        raise ValueError(f"expected at most {KEYS_MAX} X.509 certificates by key id")
    age = _MAX_AGE.search(headers.get("Cache-Control", ""))
    kept_s = float(age[1]) if age else KEPT_LEAST_S
    return Fetched(body, frozenset(keys), min(max(kept_s, KEPT_LEAST_S), KEPT_MOST_S))


def _is_certificate(text: object) -> bool:
    return isinstance(text, str) and text.startswith("-----BEGIN CERTIFICATE-----")
