"""POST /api/v1/jobs:batch."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from core.access import ROLES
from core.errors import StoreDown
from scheduler.api.routes.batches import JOBS_MAX
from tests.access import known
from tests.scheduler.api.fakes import House, assert_error

PATH = "/api/v1/jobs:batch"
GOOD = {"command": ["true"], "gpu_type": "l4"}


async def post(house: House, *jobs: object, lines: bool = False, key: str = "") -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    async with house.client() as client:
        if not lines:
            return await client.post(PATH, json={"jobs": list(jobs)}, headers=headers)
        text = "\n".join(job if isinstance(job, str) else json.dumps(job) for job in jobs)
        kind = {"content-type": "application/x-ndjson", **headers}
        return await client.post(PATH, content=text.encode(), headers=kind)


@pytest.mark.parametrize("lines", [False, True])
async def test_each_job_has_its_own_result_in_order(lines: bool) -> None:
    """A refusal says what a POST of that job would say, and stops no other."""
    house = House()
    bad = {"command": ["true"], "gpu_type": "l44"}
    answer = await post(house, {**GOOD, "job_id": "a"}, bad, {**GOOD, "job_id": "b"}, lines=lines)
    body = answer.json()
    assert (answer.status_code, body["submitted"], body["refused"]) == (200, 2, 1)
    first, second, third = body["results"]
    assert (first["status"], first["job_id"], third["job_id"]) == ("submitted", "a", "b")
    assert (second["status"], second["code"]) == ("refused", "bad_input")
    assert second["faults"][0]["field"] == "gpu_type"
    assert {name for _, name in house.jobs} == {"a", "b"}
    assert len(house.tables.audit_log) == 2


async def test_a_line_that_is_no_json_is_refused_alone() -> None:
    """Blank lines are none."""
    body = (await post(House(), GOOD, "{", "", GOOD, lines=True)).json()
    assert [one["status"] for one in body["results"]] == ["submitted", "refused", "submitted"]
    assert body["results"][1]["code"] == "bad_json"


async def test_a_job_may_wait_for_one_before_it() -> None:
    """It is stored by then."""
    jobs = [{**GOOD, "job_id": "a"}, GOOD, {**GOOD, "job_id": "b", "after": ["a"]}]
    body = (await post(House(), *jobs)).json()
    assert body["submitted"] == 3, body


async def test_a_repeat_stores_nothing_new() -> None:
    """By the ids of the jobs, or by a key for all of them."""
    house = House()
    first = (await post(house, GOOD, {**GOOD, "job_id": "b"}, key="night-7")).json()
    again = (await post(house, GOOD, {**GOOD, "job_id": "b"}, key="night-7")).json()
    assert first == again
    assert len(house.jobs) == 2


@pytest.mark.parametrize("jobs", [[], [GOOD] * (JOBS_MAX + 1)], ids=["none", "too many"])
async def test_the_number_of_jobs_is_bounded(jobs: list[Any]) -> None:
    """Nothing is stored of a batch that is too large."""
    house = House(max_body_bytes=1024 * 1024)
    assert_error(await post(house, *jobs), 422, "bad_input")
    assert_error(await post(house, *jobs, lines=True), 422, "bad_input")
    assert house.jobs == {}


@pytest.mark.parametrize("body", [[], "x", {"job": []}, {"jobs": {}}, {"jobs": [GOOD], "x": 1}])
async def test_a_body_of_another_shape_is_refused(body: object) -> None:
    """With the shape that is expected."""
    async with House().client() as client:
        answer = await client.post(PATH, json=body)
    assert_error(answer, 422, "bad_input")


async def test_jobs_of_other_tenants_are_refused() -> None:
    """Each by itself: the rights are those of a POST of one job."""
    key, row = known("memberxxxxxx", ("own", "member"))
    assert "member" in ROLES
    house = House(keys=(row,))
    async with house.client(key) as client:
        named = ("own", "foreign", "default")
        jobs = [{**GOOD, "tenant_id": tenant_id} for tenant_id in named]
        body = (await client.post(PATH, json={"jobs": jobs})).json()
    assert [one.get("code") for one in body["results"]] == [None, "forbidden", "forbidden"]
    assert [job.spec.tenant_id for job in house.jobs.values()] == ["own"]


async def test_arrays_of_a_batch_wait_for_their_turn() -> None:
    """None is refused because others wait, however many come together."""
    house = House()
    body = (await post(house, *({**GOOD, "array": "1-101"} for _ in range(20)))).json()
    assert (body["submitted"], body["refused"]) == (20, 0)


async def test_a_database_that_is_away_is_told_once() -> None:
    """503 for all, so that the client comes again."""
    house = House()

    async def away(*_: object) -> None:
        raise StoreDown("away")

    house.store.write = away  # type: ignore[assignment,method-assign]
    answer = await post(house, GOOD, GOOD)
    assert answer.status_code == 503
