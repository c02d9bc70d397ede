"""Checks against DNS rebinding and cross-site requests."""

from __future__ import annotations

import pytest

from core.browser_checks import AllowedHosts, host_name, is_cross_site, may_be_a_browser

HOSTS = AllowedHosts.of("zen.example.org", ["Other.example.", "*.zen.internal"])


@pytest.mark.parametrize(
    "header",
    [
        "zen.example.org",
        "ZEN.example.org.:8080",
        "other.example",
        "a.b.zen.internal:1",
        "localhost:8080",
        "zen.localhost",
        "127.0.0.1",
        "127.1.2.3:9",
        "[::1]:8080",
        "10.0.0.7:8080",
    ],
)
def test_own_names_are_allowed(header: str) -> None:
    """The configured names, loopback, and the address that the connection came to."""
    assert HOSTS.allow(header, "10.0.0.7")


@pytest.mark.parametrize(
    "header",
    [
        "evil.example",
        "zen.internal",
        "evilzen.internal",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example:127.0.0.1",
        "zen.example.org@evil.example",
        "10.0.0.8",
        "[::1].evil.example]",
        "0.0.0.0",
        "",
        "*",
    ],
)
def test_other_names_are_not(header: str) -> None:
    """What merely looks like one of our names is another host."""
    assert not HOSTS.allow(header, "10.0.0.7")


def test_every_address_is_no_name() -> None:
    """A service that listens on all addresses is not called 0.0.0.0."""
    assert not AllowedHosts.of("0.0.0.0", ()).allow("0.0.0.0:8080", "10.0.0.7")
    assert not AllowedHosts.of("::", ()).allow("[::]", None)


def test_host_name_has_no_port() -> None:
    """Ports, brackets and the root's dot are no part of a name."""
    assert [host_name(h) for h in ("A.b.:1", "[::1]:80", "::1]")] == ["a.b", "::1", ""]


@pytest.mark.parametrize(
    ("origin", "site", "refused"),
    [
        (None, None, False),
        (None, "same-origin", False),
        (None, "none", False),
        (None, "cross-site", True),
        (None, "same-site", True),
        (None, "nonsense", True),
        ("http://zen:8080", None, False),
        ("http://zen:8080", "same-origin", False),
        ("http://zen", None, True),
        ("https://evil.example", None, True),
        ("null", None, True),
        ("https://evil.example", "cross-site", True),
        ("https://dash.example", "cross-site", False),
        ("https://dash.example", None, False),
        ("http://dash.example", None, True),
        ("https://zen:8080@evil.example", None, True),
    ],
)
def test_pages_of_other_sites_change_nothing(
    origin: str | None, site: str | None, refused: bool
) -> None:
    """A page's request needs to be of the service itself or of a named origin; programs send
    neither header."""
    allowed = ("https://dash.example",)
    assert is_cross_site("POST", "zen:8080", origin, site, allowed) is refused
    assert not is_cross_site("GET", "zen:8080", origin, site, allowed)


def test_any_origin() -> None:
    """A star allows all pages that say who they are."""
    assert not is_cross_site("POST", "zen", "https://evil.example", "cross-site", ("*",))
    assert is_cross_site("POST", "zen", None, "cross-site", ("*",))


@pytest.mark.parametrize(
    ("host", "origin", "site", "browser"),
    [
        ("127.0.0.1:8085", None, None, False),
        ("localhost:8085", None, None, False),
        ("cloud:8090", None, None, False),
        ("10.0.0.7", None, None, False),
        ("[::1]:8085", None, None, False),
        ("evil.example:8085", None, None, True),
        ("127.0.0.1", "https://evil.example", None, True),
        ("127.0.0.1", None, "same-origin", True),
    ],
)
def test_servers_for_programs(
    host: str, origin: str | None, site: str | None, browser: bool
) -> None:
    """Pages say who they are, or come by a public name that was rebound."""
    assert may_be_a_browser(host, origin, site) is browser
