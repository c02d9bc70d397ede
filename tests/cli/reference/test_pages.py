"""docs/reference/ is what the code says."""

from __future__ import annotations

from pathlib import Path

from cli.paths import ROOT
from cli.reference.markdown import cell, code, meanings, table
from cli.reference.pages import PAGES, stale, write
from core.job_fields import FIELDS
from core.waits import WaitKind


def test_committed_pages_are_up_to_date() -> None:
    """A change of a table of the code comes with the page that it makes."""
    assert not stale(ROOT / "docs" / "reference"), "renew these pages with: zen docs"


def test_stale_pages_are_found_and_renewed(tmp_path: Path) -> None:
    """A page that is missing or says something else is named once, and written."""
    assert write(tmp_path) == list(PAGES)
    (tmp_path / "metrics.md").write_text("old")
    assert stale(tmp_path) == ["metrics.md"]
    assert write(tmp_path) == ["metrics.md"]
    assert stale(tmp_path) == []


def test_pages_have_what_they_are_for() -> None:
    """Commands with options, routes with parameters, metrics with labels, events."""
    commands, routes = PAGES["cli.md"](), PAGES["rest.md"]()
    assert "## zen dead-letters replay" in commands
    assert "`--gpus, -g N`" in commands
    assert "zen check --no-tests && zen test" in commands
    assert "### GET /api/v1/jobs/{job_id}/logs" in routes
    assert "| 409 | `price_not_confirmed` |" in routes
    assert "`gpu_scheduler_jobs_total` | counter | `status`, `cluster`" in PAGES["metrics.md"]()
    assert "| `exited_ok` |" in PAGES["events.md"]()
    assert all(PAGES["jobs.md"]().count(f"| `{name}` |") == 1 for name in FIELDS)
    assert "## `sick_vm`" in PAGES["alerts.md"]()


def test_cells_and_words() -> None:
    """What Markdown would read as its own is made safe; words come from under the name."""
    assert table(("A", "B"), [(cell("x <y> | z"), code("a|b"))]) == (
        "| A | B |\n|---|---|\n| x &lt;y> \\| z | `a\\|b` |\n"
    )
    assert meanings(WaitKind)["REFUSAL"] == "The region could not give that VM."
