"""Answers of the API to zen submit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cli.conftest import Ended


Zen = Callable[..., "Ended"]


Job = dict[str, Any]


ANSWER = {
    "job_id": "j-1",
    "user_id": "0",
    "status": "submitted",
    "message": "goes to 1xl4, the cheapest that fits",
    "cluster": "1xl4",
}
