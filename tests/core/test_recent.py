"""The bounded memory."""

from __future__ import annotations

from core.recent import Recent


def test_the_newest_stay() -> None:
    """What was put again is new again."""
    recent: Recent[int] = Recent(2)
    for key in ("a", "b", "a", "c"):
        recent.put(key, len(key))
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (1, None, 1)
