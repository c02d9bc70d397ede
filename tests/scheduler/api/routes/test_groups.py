"""Arrays, dependencies and groups over REST."""

from __future__ import annotations

from typing import Any

from core.job import JobEvent
from tests.scheduler.api.fakes import House

ARRAY = {"command": ["true"], "job_id": "sweep", "array": "1-5"}


async def post(house: House, body: dict[str, Any], path: str = "jobs") -> tuple[int, Any]:
    async with house.client() as client:
        answer = await client.post(f"/api/v1/{path}", json=body)
        return answer.status_code, answer.json()


async def get(house: House, path: str) -> tuple[int, Any]:
    async with house.client() as client:
        answer = await client.get(f"/api/v1/{path}")
        return answer.status_code, answer.json()


async def test_an_array_is_many_jobs_and_one_answer() -> None:
    """One request makes a job for each index, with the index in its environment."""
    house = House()
    status, answer = await post(house, ARRAY)
    assert (status, answer["job_id"], answer["jobs"]) == (201, "sweep", 5)
    assert answer["message"].startswith("5 jobs queued for cluster")
    job = house.jobs["0", "sweep-3"]
    assert job.spec.environment == {"ZEN_ARRAY_ID": "sweep", "ZEN_ARRAY_INDEX": "3"}
    assert job.spec.group == "sweep"
    _, page = await get(house, "jobs?group=sweep")
    assert page["total"] == 5


async def test_an_array_is_idempotent_by_its_id() -> None:
    """The same array again gets the same answer; another one under its id is a conflict."""
    house = House()
    first = await post(house, ARRAY)
    assert await post(house, ARRAY) == first
    assert len(house.jobs) == 5
    assert (await post(house, {**ARRAY, "array": "1-6"}))[0] == 409
    assert (await post(house, {**ARRAY, "array": "5-7"}))[0] == 409
    assert len(house.jobs) == 5


async def test_a_dependency_must_exist() -> None:
    """Only what the same user has submitted can be waited for; the others are named."""
    house = House()
    await post(house, ARRAY)
    status, answer = await post(house, {"command": ["true"], "after": ["none", "sweep-1"]})
    assert status == 422
    assert '"none"' in answer["detail"]
    assert "sweep-1" not in answer["detail"]
    other = {"command": ["true"], "user_id": "you", "after": ["sweep"]}
    assert (await post(house, other))[0] == 422


async def test_a_blocked_job_says_what_it_waits_for() -> None:
    """A job behind jobs and groups names them as its why."""
    house = House()
    await post(house, ARRAY)
    body = {"command": ["true"], "job_id": "last", "after": ["sweep", "sweep-1:any"]}
    status, answer = await post(house, body)
    assert status == 201
    assert answer["message"].endswith("waits for the end of sweep, sweep-1 (in any way)")
    _, job = await get(house, "jobs/last")
    assert job["why"] == "waits for the end of sweep, sweep-1 (in any way)"
    assert job["after"] == ["sweep:ok", "sweep-1:any"]


async def test_a_group_is_stopped_as_one() -> None:
    """Waiting jobs are cancelled, running jobs are told to stop; again: nothing is left."""
    house = House()
    await post(house, ARRAY)
    house.move("sweep-2", JobEvent.ADMITTED, JobEvent.PLACED, JobEvent.STARTED)
    status, answer = await post(house, {"reason": "enough"}, "groups/sweep/stop")
    assert (status, answer["cancelled"], answer["stopping"]) == (202, 4, 1)
    assert len(house.sent) == 1
    _, group = await get(house, "groups/sweep")
    assert group["counts"] == {"STOPPING": 1, "CANCELLED": 4}
    assert (group["total"], group["done"], group["succeeded"]) == (5, False, False)
    assert group["message"] == "5 jobs: 1 STOPPING, 4 CANCELLED"
    status, answer = await post(house, {}, "groups/sweep/stop")
    assert status == 200
    assert answer["message"].startswith("nothing to stop: its jobs have ended")
    assert (await get(house, "groups/none"))[0] == 404


# --- gangs ------------------------------------------------------------------------------

GANG = {"command": ["true"], "job_id": "g", "cluster": "2xa100-40gb", "gpu_count": 2, "replicas": 3}


async def test_a_gang_is_one_job_to_the_outside() -> None:
    """All members are stored together; the list has the first one, which knows the others."""
    house = House()
    status, answer = await post(house, GANG)
    assert status == 201
    assert answer["message"].startswith("queued as a gang of 3 VMs for cluster 2xa100-40gb")
    jobs = [house.jobs["0", name] for name in ("g", "g.1", "g.2")]
    assert [j.gang and (j.gang.uid, j.gang.rank, j.gang.size) for j in jobs] == [
        (jobs[0].uid, rank, 3) for rank in range(3)
    ]
    assert await post(house, GANG) == (status, answer)
    _, members = await get(house, "jobs/g/members")
    assert [(m["job_id"], m["rank"], m["replicas"]) for m in members["jobs"]] == [
        ("g", 0, 3),
        ("g.1", 1, 3),
        ("g.2", 2, 3),
    ]


async def test_a_gang_is_stopped_whole() -> None:
    """Whichever member is named, all of them go in one step."""
    house = House()
    await post(house, GANG)
    house.move("g", JobEvent.ADMITTED, JobEvent.PLACED, JobEvent.STARTED)
    status, answer = await post(house, {}, "jobs/g.2/stop")
    assert (status, answer["job_id"]) == (202, "g")
    statuses = [house.jobs["0", name].status for name in ("g", "g.1", "g.2")]
    assert statuses == ["STOPPING", "CANCELLED", "CANCELLED"]


async def test_a_gang_that_never_fits_is_refused() -> None:
    """More VMs than the cluster may have, in the words of the limit."""
    status, answer = await post(House(), {**GANG, "replicas": 5})
    assert status == 422
    assert "replicas: got 5, expected at most 4" in answer["detail"]


async def test_the_gangs_of_an_array_are_a_group_of_first_members() -> None:
    """Each index is a gang; the group counts gangs, not VMs."""
    house = House()
    await post(house, {**GANG, "array": "1-2"})
    assert sorted(name for _, name in house.jobs) == [
        *("g-1", "g-1.1", "g-1.2", "g-2", "g-2.1", "g-2.2"),
    ]
    _, group = await get(house, "groups/g")
    assert group["total"] == 2
