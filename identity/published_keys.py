"""The public keys of one issuer: fetched when needed, kept for a while, never fetched too often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from core.errors import IssuerDown
from core.ports import Clock

FRESH_S = 600.0
"""Keys that were withdrawn count for this long."""
KEPT_S = 3600.0
"""While the issuer does not answer, its keys count for this long; then none of its tokens does."""
PAUSE_S = 10.0
"""Between two fetches: tokens with invented key ids must not make us call the issuer."""
KEYS_MAX = 200

Keys = Mapping[str, object]
"""By key id."""


class PublishedKeys:
    """One per issuer and replica."""

    def __init__(self, fetch: Callable[[], Awaitable[Keys]], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: Keys = {}
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._problem: IssuerDown | None = None
        self._one = asyncio.Lock()

    async def key(self, key_id: str) -> object | None:
        """None: the issuer has no such key. IssuerDown: nobody knows."""
        if key_id not in self._keys or self._older_than(FRESH_S):
            await self._refresh(key_id)
        if self._older_than(KEPT_S):
            raise self._problem or IssuerDown("the issuer's keys are not known yet: try again")
        return self._keys.get(key_id)

    async def _refresh(self, key_id: str) -> None:
        async with self._one:
            # Those who waited for the lock find what the first of them fetched.
            if key_id in self._keys and not self._older_than(FRESH_S):
                return
            now = self._clock.monotonic()
            if self._tried_at is not None and now - self._tried_at < PAUSE_S:
                return
            self._tried_at = now
            try:
                found = await self._fetch()
            except IssuerDown as error:
                self._problem = error
                return
            self._keys = dict(list(found.items())[:KEYS_MAX])
            self._read_at, self._problem = now, None

    def _older_than(self, seconds: float) -> bool:
        return self._read_at is None or self._clock.monotonic() - self._read_at >= seconds
