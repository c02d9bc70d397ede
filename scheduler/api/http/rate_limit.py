"""Requests per caller: each has a bucket of tokens; an empty one is answered 429."""

from __future__ import annotations

import math

from starlette.types import Scope

from config.settings import ApiSettings
from core.errors import TooManyRequests
from core.ports import Clock
from core.token_buckets import TokenBuckets


class RateLimit:
    """One set of buckets; the caller is a principal or, before anybody is known, an address."""

    def __init__(self, api: ApiSettings, clock: Clock) -> None:
        per_s = api.requests_per_s
        self._buckets = None if per_s is None else TokenBuckets(per_s, api.requests_burst)
        self._clock = clock

    def check(self, caller: str) -> None:
        """Takes a token of the caller's, or raises TooManyRequests."""
        if self._buckets is None:
            return
        wait_s = self._buckets.take(caller, self._clock.monotonic())
        if wait_s > 0:
            seconds = max(1, math.ceil(wait_s))
            raise TooManyRequests("too many requests: wait, then send fewer at once", seconds)


def client_address(scope: Scope, *, behind_proxy: bool) -> str:
    """Where the request comes from. A declared proxy appends the address of its client to
    X-Forwarded-For; what stands before that was written by the client and is not believed."""
    if behind_proxy:
        for name, value in reversed(scope["headers"]):
            if name == b"x-forwarded-for":
                last: str = value.decode("latin-1").rpartition(",")[2].strip()
                return last[:64]
    client = scope.get("client")
    return str(client[0]) if client else "unknown"
