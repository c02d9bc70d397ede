"""zen diff: what differs between two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.commands.submissions import Job, Zen

if TYPE_CHECKING:
    from tests.cli.conftest import Api


@pytest.fixture(autouse=True)
def two(api: Api, job: Job) -> None:
    def put(name: str, asked: dict[str, Any], hidden: list[str], **more: Any) -> None:
        api.on("GET", f"/api/v1/jobs/{name}", {**job, "job_id": name, **more})
        answer = {"job_id": name, "submission": asked, "hidden": hidden, "array": None}
        api.on("GET", f"/api/v1/jobs/{name}/submission", answer)

    put("a", {"command": ["t"], "environment": {"SEED": "1"}, "gpu_count": 2}, ["TOKEN"])
    ended = {"status": "FAILED", "exit_code": 3, "ended_at": "2026-11-16T08:00:10.000Z"}
    put("b", {"command": ["t"], "environment": {"SEED": "2"}, "gpu_count": 2}, ["TOKEN"], **ended)


def test_only_what_differs(zen: Zen) -> None:
    """What was asked for and what became of it, side by side; hidden values are equal."""
    ended = zen("diff", "a", "b")
    assert ended.code == 0
    rows = {line.split("  ")[0]: line.split()[-2:] for line in ended.out.splitlines()}
    assert rows["environment.SEED"] == ["1", "2"]
    assert rows["status"] == ["RUNNING", "FAILED"]
    assert rows["exit code"] == ["-", "3"]
    assert not {"command", "gpu_count", "environment.TOKEN", "region"} & rows.keys()


def test_all_and_json(zen: Zen) -> None:
    told = zen("diff", "a", "b", "--all", "--json").json
    found = {one["what"]: one["values"] for one in told["differences"]}
    assert told["jobs"] == ["a", "b"]
    assert found["gpu_count"] == [2, 2]
    assert found["environment.TOKEN"] == ["(hidden)", "(hidden)"]


def test_the_same(zen: Zen) -> None:
    assert zen("diff", "a", "a").out == "a and a do not differ\n"
