"""Groups of commands: what they do alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]
EMPTY: dict[str, Any] = {"total": 0, "next_page_token": None, "next_before": None}


@pytest.mark.parametrize(
    ("group", "rows"),
    [
        ("keys", "keys"),
        ("grants", "grants"),
        ("audit", "rows"),
        ("sessions", "sessions"),
        ("secrets", "secrets"),
        ("dead-letters", "dead_letters"),
        ("tenants", "tenants"),
    ],
)
def test_json_of_a_group_alone(zen: Zen, api: Api, group: str, rows: str) -> None:
    """A group alone is its list, also for scripts."""
    api.on("GET", f"/api/v1/{group}", {rows: [], **EMPTY})
    assert zen(group, "--json").json == zen(group, "list", "--json").json


def test_json_before_a_command_is_refused(zen: Zen) -> None:
    ended = zen("keys", "--json", "list")
    assert ended.code == 2
    assert "--json: put it behind list" in ended.err
