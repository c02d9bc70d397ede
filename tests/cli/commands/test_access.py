"""zen grants, zen audit: what they print and write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.api.examples import example_of
from scheduler.api.routes.access import AuditRowOut
from tests.cli.commands.submissions import Zen

if TYPE_CHECKING:
    from tests.cli.conftest import Api

ROW = {**example_of(AuditRowOut), "address": "10.1.2.3", "tenant_id": "vision"}


def test_grants_say_where_they_stand(zen: Zen, api: Api) -> None:
    """Grants of the configuration are changed there."""
    grant = {"principal": "group:ml", "tenant_id": "vision", "role": "member"}
    api.on("GET", "/api/v1/grants", {"grants": [{**grant, "source": "configuration"}]})
    words = zen("grants").out.split()
    assert words[-4:] == ["group:ml", "vision", "member", "configuration"]


def test_the_audit_log_says_from_where_and_for_which_tenant(zen: Zen, api: Api) -> None:
    api.on("GET", "/api/v1/audit", {"rows": [ROW], "next_before": None})
    shown = zen("audit", "list").out
    assert "10.1.2.3" in shown
    assert "vision" in shown


def test_the_audit_log_is_written_to_a_new_file(zen: Zen, api: Api, tmp_path: Path) -> None:
    """For its owner alone, and over no other file."""
    api.on("GET", "/api/v1/audit", {"rows": [ROW, ROW], "next_before": None})
    file = tmp_path / "audit.jsonl"
    assert "2 rows are in" in zen("audit", "export", "--file", str(file)).out
    assert [json.loads(line) for line in file.read_text().splitlines()] == [ROW, ROW]
    assert file.stat().st_mode & 0o777 == 0o600
    again = zen("audit", "export", "--file", str(file))
    assert (again.code, again.out) == (1, "")
    assert "File exists" in again.err
