"""Elastic jobs, YAML bodies and UnifiedJob manifests over REST."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from core.job import Job
from tests.scheduler.api.fakes import House

EXAMPLES = Path(__file__).parents[4] / "examples"
ELASTIC: dict[str, Any] = {
    "command": ["true"],
    "job_id": "e",
    "cluster": "2xa100-40gb",
    "gpu_count": 2,
    "replicas": {"min": 2, "max": 6},
}


async def post(house: House, body: str | bytes, kind: str) -> tuple[int, Any]:
    async with house.client() as client:
        headers = {"content-type": kind}
        answer = await client.post("/api/v1/jobs", content=body, headers=headers)
        return answer.status_code, answer.json()


async def submit(house: House, body: dict[str, Any]) -> tuple[int, Any]:
    async with house.client() as client:
        answer = await client.post("/api/v1/jobs", json=body)
        return answer.status_code, answer.json()


def stored(house: House, name: str) -> Job:
    return house.jobs["0", name]


async def test_an_elastic_job_is_stored_with_all_its_members() -> None:
    """Members that it does not need are parked; the limit of the cluster binds what it needs."""
    house = House()
    status, answer = await submit(house, ELASTIC)
    assert status == 201
    assert answer["message"].startswith("queued to run on 2 to 6 VMs for cluster 2xa100-40gb")
    assert await submit(house, ELASTIC) == (status, answer)
    members = [stored(house, f"e.{rank}" if rank else "e") for rank in range(6)]
    assert [m.parked for m in members] == [False, False, True, True, True, True]
    async with house.client() as client:
        first = (await client.get("/api/v1/jobs/e")).json()
        spare = (await client.get("/api/v1/jobs/e.5")).json()
    assert (first["replicas_min"], first["replicas"]) == (2, 6)
    assert spare["why"].startswith("optional replica: ")
    too_many = {**ELASTIC, "job_id": "f", "replicas": {"min": 5, "max": 6}}
    status, answer = await submit(house, too_many)
    assert (status, "replicas: got 5" in answer["detail"]) == (422, True)


async def test_a_group_is_stopped_with_all_members() -> None:
    """Also members that no queue knows."""
    house = House()
    await submit(house, {**ELASTIC, "group": "x", "replicas": {"min": 1, "max": 3}})
    async with house.client() as client:
        answer = await client.post("/api/v1/groups/x/stop", json={})
    assert answer.status_code == 202
    ends = [stored(house, name).status for name in ("e", "e.1", "e.2")]
    assert ends == ["CANCELLED"] * 3


@pytest.mark.parametrize(
    "replicas",
    [0, {"min": 3, "max": 2}, {"min": 1}, {"max": 2000}, {"min": 1, "max": 2, "x": 1}, "2-8", True],
)
async def test_sizes_that_are_none(replicas: object) -> None:
    status, answer = await submit(House(), {**ELASTIC, "replicas": replicas})
    assert (status, answer["faults"][0]["field"]) == (422, "replicas")


async def test_a_submission_in_yaml() -> None:
    """The same fields, the same answer; a moment is as good as its text."""
    house = House()
    body = f"{yaml.safe_dump(ELASTIC)}deadline: 2026-09-01T18:00:00Z\n"
    status, _ = await post(house, body, "application/yaml; charset=utf-8")
    assert status == 201
    assert stored(house, "e").spec.deadline is not None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"command: [true", "at line"),
        (b"\xff", "not UTF-8"),
        (b"a: &x [1, 2]\nb: *x", "aliases are not read at line 2, column 4"),
        (b"[" * 5000, "nested too deeply"),
        (b"command: !!python/object:os.system ls", "could not determine a constructor"),
    ],
)
async def test_bad_yaml_says_where(body: bytes, words: str) -> None:
    status, answer = await post(House(), body, "text/yaml")
    assert (status, answer["code"]) == (400, "bad_yaml")
    assert words in answer["detail"]


@pytest.mark.parametrize("kind", ["application/yaml", "application/json"])
async def test_a_manifest_is_a_submission(kind: str) -> None:
    """As JSON or as YAML; again: the same answer; its faults have the manifest's names."""
    house = House()
    text = (EXAMPLES / "unifiedjob.yaml").read_text(encoding="utf-8")
    manifest = yaml.safe_load(text)
    if kind == "application/yaml":
        status, answer = await post(house, text, kind)
    else:
        status, answer = await submit(house, manifest)
    assert (status, answer["job_id"]) == (201, "unified-hello")
    assert (await submit(house, manifest))[0] == 201
    spec = stored(house, "unified-hello").spec
    assert (spec.shell, spec.gpu_count, spec.replicas) == (True, 1, 1)
    manifest["metadata"]["labels"] = {"team": 7}
    manifest["metadata"]["name"] = "other"
    status, answer = await submit(house, manifest)
    assert (status, answer["faults"][0]["field"]) == (422, "metadata.labels")


async def test_the_example_of_an_elastic_job_is_accepted() -> None:
    text = (EXAMPLES / "elastic.yaml").read_text(encoding="utf-8")
    body = yaml.safe_load(text) | {"gpu_type": "a100-40gb", "gpu_count": 2}
    status, answer = await submit(House(), body)
    assert (status, "to run on 1 to 3 VMs" in answer["message"]) == (201, True)
