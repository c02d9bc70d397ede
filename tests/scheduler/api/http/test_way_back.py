"""The way back to a page that a browser asked for before it signed in."""

from __future__ import annotations

import pytest

from scheduler.api.http.way_back import SIGN_IN, WAY_BACK_MAX, safe_way_back


@pytest.mark.parametrize("path", ["/docs", "/", "/api/v1/jobs?status=RUNNING&label=a%3Db"])
def test_own_paths_are_kept(path: str) -> None:
    assert safe_way_back(path) == path


@pytest.mark.parametrize(
    "elsewhere",
    [
        *("", "docs", "//evil.example", "/\\evil.example", "https://evil.example", "javascript:1"),
        *("/docs\r\nset-cookie: a=b", "/docs\n", "/\tx", "/do cs", "/'><script>", "/ä"),
        "/" + "a" * WAY_BACK_MAX,
    ],
)
def test_nobody_is_sent_elsewhere(elsewhere: str) -> None:
    """A link to the sign-in page with another site as the way back ends at the sign-in page."""
    assert safe_way_back(elsewhere) == SIGN_IN
