"""What the tests of several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from tests.cli.commands.submissions import ANSWER

if TYPE_CHECKING:
    from tests.cli.conftest import Api


@pytest.fixture
def accepts(api: Api) -> None:
    """The API takes every submission."""
    api.on("POST", "/api/v1/jobs", lambda _: httpx.Response(201, json=ANSWER))
