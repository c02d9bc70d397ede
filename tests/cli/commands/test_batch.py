"""zen submit --batch: a job in each line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands.submissions import Zen

if TYPE_CHECKING:
    from tests.cli.conftest import Api

STORED = {
    "status": "submitted",
    "job_id": "a",
    "tenant_id": "vision",
    "cluster": "1xl4",
    "usd_per_hour": 0.7,
}
REFUSED = {"status": "refused", "code": "bad_input", "error": "gpu_count: got 99"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "jobs.jsonl"
    made.write_text('{"command": ["a"]}\n\n{"command": ["b"], "gpu_count": 99}\n')
    return made


def test_results_have_line_numbers(zen: Zen, api: Api, file: Path) -> None:
    """Jobs with their tenant and price; refusals with their line. One refusal: exit code 1."""
    answer = {"submitted": 1, "refused": 1, "results": [STORED, REFUSED]}
    api.on("POST", "/api/v1/jobs:batch", answer)
    ended = zen("submit", "--batch", str(file))
    assert ended.code == 1
    assert ended.err == "zen: line 3: gpu_count: got 99\n"
    assert ended.out.splitlines()[1].split() == ["1", "a", "vision", "1xl4", "$0.70", "-"]
    told = zen("submit", "--batch", str(file), "--json").json
    assert [one["line"] for one in told["results"]] == [1, 3]
    assert zen("submit", "--batch", str(file), "-q").out == "a\n"


def test_every_bad_line_is_named(zen: Zen, file: Path) -> None:
    """Nothing is submitted then."""
    file.write_text('{"command": ["a"]}\n{\n[]\n')
    ended = zen("submit", "--batch", str(file))
    assert ended.code == 1
    assert f"{file}:2: not JSON" in ended.err
    assert f"{file}:3: expected a JSON object" in ended.err


def test_fields_of_the_line_are_refused(zen: Zen, file: Path) -> None:
    assert zen("submit", "--batch", str(file), "--gpus", "2").code == 2
    assert zen("submit", "--batch", str(file), "--wait").code == 2
    file.write_text("\n")
    assert "no jobs" in zen("submit", "--batch", str(file)).err
