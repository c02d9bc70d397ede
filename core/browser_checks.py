"""Which requests of web browsers are served: checks against DNS rebinding and cross-site requests.

A browser sends what any page tells it to, from inside the network of the person who looks at the
page. Two headers that pages cannot forge tell it apart: Host names the server that the page
believes it talks to, Origin (or Sec-Fetch-Site) the page itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""They change nothing, and without CORS no page of another site can read their answers."""
_OWN_PAGES = frozenset({"same-origin", "none"})
_EVERY_ADDRESS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104  # compared, not listened on
_ANY = "*"
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+?)\.?)(?::[0-9]*)?")


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The names under which a server answers."""

    names: frozenset[str]
    suffixes: tuple[str, ...]
    """Of entries such as *.example.org: `.example.org`."""

    @classmethod
    def of(cls, listening_on: str, also: Iterable[str]) -> AllowedHosts:
        """The address it listens on and the names that are configured; loopback needs no entry."""
        words = [word.lower().rstrip(".") for word in (listening_on, *also)]
        return cls(
            frozenset(w for w in words if not w.startswith(_ANY) and w not in _EVERY_ADDRESS),
            tuple(w[1:] for w in words if w.startswith("*.")),
        )

    def allow(self, header: str, arrived_at: str | None) -> bool:
        """Whether a request with this Host header is meant for this server. `arrived_at` is the
        server's address of the connection: no DNS name is needed to reach it, so none was
        rebound."""
        name = host_name(header)
        if name in self.names or is_loopback(name) or (name and name == arrived_at):
            return True
        return any(name.endswith(suffix) for suffix in self.suffixes)


def host_name(header: str) -> str:
    """The name or address of a Host header, without port, brackets and the root's dot; empty if it
    is neither."""
    found = _HOST.fullmatch(header.strip().lower())
    return (found[1] or found[2]) if found else ""


def is_loopback(name: str) -> bool:
    """localhost, its subdomains and the addresses of loopback: browsers resolve them to loopback
    whatever DNS says."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def is_cross_site(
    method: str, host: str, origin: str | None, fetch_site: str | None, allowed: tuple[str, ...]
) -> bool:
    """Whether a page of another site sends a request that may change something. Programs send
    neither header; browsers have sent Sec-Fetch-Site since 2023 and Origin for longer."""
    if method in SAFE_METHODS or (origin is None and fetch_site is None):
        return False
    if origin is not None and (_ANY in allowed or origin in allowed):
        return False
    if fetch_site is not None:
        return fetch_site not in _OWN_PAGES
    return urlsplit(origin or "").netloc.lower() != host.strip().lower()


def may_be_a_browser(host: str, origin: str | None, fetch_site: str | None) -> bool:
    """Whether a page may have sent the request, for servers that only programs need. A rebound
    name is a public one, with a dot; programs use addresses and the names of one network."""
    if origin is not None or fetch_site is not None:
        return True
    name = host_name(host)
    return "." in name and not is_loopback(name) and not _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
