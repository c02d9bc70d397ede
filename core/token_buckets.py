"""How often each of many callers may ask: a bucket of tokens per caller. Time is an argument."""

from __future__ import annotations

from collections import OrderedDict


class TokenBuckets:
    """Buckets that hold `burst` tokens and gain `per_s` of them each second. Of more than
    `callers_max` callers the one that has been silent longest is forgotten: its bucket is the
    fullest, or will soon be."""

    def __init__(self, per_s: float, burst: int, callers_max: int = 10_000) -> None:
        assert per_s > 0, per_s
        assert burst >= 1, burst
        self._per_s, self._burst, self._callers_max = per_s, burst, callers_max
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, now: float) -> float:
        """Takes a token: 0. Without one, nothing is taken: the seconds until there is one."""
        tokens, since = self._buckets.get(caller, (float(self._burst), now))
        tokens = min(self._burst, tokens + max(0.0, now - since) * self._per_s)
        missing = 1.0 - tokens
        self._buckets[caller] = (tokens if missing > 0 else tokens - 1.0, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > self._callers_max:
            self._buckets.popitem(last=False)
        return max(0.0, missing / self._per_s)

    def __len__(self) -> int:
        return len(self._buckets)
