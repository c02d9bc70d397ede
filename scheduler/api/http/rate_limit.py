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


def client_address(scope: Scope, hops: int) -> str:
    """Where the request comes from. Each of `hops` declared proxies appends the address of its
    client to X-Forwarded-For; what stands before was written by the client and is not believed."""
    if hops:
        values = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        said = b",".join(values).decode("latin-1").split(",")
        if values and len(said) >= hops:
            return said[-hops].strip()[:64]
    client = scope.get("client")
    return str(client[0]) if client else "unknown"
