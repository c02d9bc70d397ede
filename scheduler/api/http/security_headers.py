"""Headers that tell browsers what not to do with an answer."""

from __future__ import annotations

from collections.abc import Iterable

Header = tuple[bytes, bytes]

ALWAYS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
UNLESS_SAID: tuple[Header, ...] = (
    # A log or an output is a job's own text: shown by a browser, it runs nothing.
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
    (b"cache-control", b"no-store"),
)
"""A route that knows better says so."""
PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)
"""Of a page of ours with a style and without scripts."""


def secured(headers: Iterable[Header]) -> list[Header]:
    """The headers of an answer, with what every answer says."""
    whole = [*headers]
    said = {name for name, _ in whole}
    whole += ALWAYS
    whole += [header for header in UNLESS_SAID if header[0] not in said]
    return whole
