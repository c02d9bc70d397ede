"""Clients that submit a `definition`: every route, every state, every refusal."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from core.changes import NewVm
from core.client_statuses import WORDS, statuses_called
from core.job import JobEvent, JobStatus
from core.reads import ServiceSummary, VmCount
from core.vm import Vm, VmState
from scheduler.api.compat.definition import STATES
from tests.scheduler.api.fakes import LEASE, NOW, TO_RUNNING, House, assert_error

E = JobEvent
DEFINITION = {
    "name": "train",
    "command": ["python3", "train.py"],
    "resources": {"cpu_cores": 4, "memory_mb": 8192, "gpu_type": "l4", "gpu_count": 1},
    "environment": {"SEED": "7"},
}
AT = "2026-01-31T12:00:00.000Z"


async def test_submission_is_answered_201_with_the_job() -> None:
    """The answer is the job itself, pending; unknown fields are ignored."""
    house = House()
    async with house.client() as client:
        body = {"definition": {**DEFINITION, "colour": "blue"}, "x": 1}
        answer = await client.post("/jobs?y=2", json=body)
        job_id = answer.json()["id"]
        found = await client.get(f"/jobs/{job_id}")
    assert answer.status_code == 201
    assert found.status_code == 200
    assert answer.json() == found.json()
    assert answer.json() == {
        "id": job_id,
        "job_id": job_id,
        "definition": {**DEFINITION, "image": None},
        "status": "pending",
        "executor_id": None,
        "assigned_executor_id": None,
        "ip_address": None,
        "created_at": AT,
        "updated_at": AT,
        "assigned_at": None,
        "started_at": None,
        "finished_at": None,
        "aborted_at": None,
        "container_status": None,
        "exit_code": None,
        "error": None,
        "error_message": None,
    }
    assert str(UUID(job_id)) == job_id
    (job,) = house.jobs.values()
    assert job.key == ("default", "0", job_id)
    assert job.spec.queue_timeout_s == 15


async def test_image_is_run() -> None:
    """An image is shown as it was submitted; without a command the image's own is run."""
    house = House()
    async with house.client() as client:
        for command in (["python3", "train.py"], None):
            definition = {"name": "n", "image": "host.example:5000/team/train:v3"}
            if command is not None:
                definition |= {"command": command}  # type: ignore[dict-item]  # a list of words
            answer = await client.post("/jobs", json={"definition": definition})
            assert answer.status_code == 201
            assert answer.json()["definition"]["image"] == "host.example:5000/team/train:v3"
            assert answer.json()["definition"]["command"] == (command or [])
    assert {job.spec.keep_entrypoint for job in house.jobs.values()} == {True, False}


@pytest.mark.parametrize("resources", [None, {}, {"gpu_count": 0}, {"gpu_type": None}])
async def test_a_job_without_gpus_has_none(resources: object) -> None:
    """No GPUs unless some are asked for: it runs on a CPU cluster."""
    house = House()
    async with house.client() as client:
        body = {"definition": {"name": "n", "command": ["true"], "resources": resources}}
        answer = await client.post("/jobs", json=body)
    assert answer.status_code == 201
    assert answer.json()["definition"]["resources"]["gpu_count"] == 0
    assert [job.cluster for job in house.jobs.values()] == ["0xcpu"]


async def test_same_key_is_the_same_job() -> None:
    """A repeat with an Idempotency-Key gets the same job; other content under it is a conflict."""
    house = House()
    key = {"Idempotency-Key": "k1"}
    async with house.client() as client:
        first = await client.post("/jobs", json={"definition": DEFINITION}, headers=key)
        again = await client.post("/jobs", json={"definition": DEFINITION}, headers=key)
        assert first.json() == again.json()
        other = {"definition": {**DEFINITION, "name": "else"}}
        assert_error(await client.post("/jobs", json=other, headers=key), 409, "conflict")
    assert len(house.jobs) == 1


@pytest.mark.parametrize(
    ("definition", "fields"),
    [
        (None, ["definition"]),
        ([], ["definition"]),
        ({"name": "n", "command": ["x"], "resources": 3}, ["definition.resources"]),
        ({}, ["definition.name", "definition.command"]),
        ({"name": "n", "command": "x y"}, ["definition.command"]),
        ({"name": "n", "command": ["a\0b"]}, ["definition.command"]),
        ({**DEFINITION, "image": "no such:image:name"}, ["definition.image"]),
        ({**DEFINITION, "environment": {"A-B": "1"}}, ["definition.environment"]),
        (
            {**DEFINITION, "resources": {"gpu_count": -1, "cpu_cores": "4", "memory_mb": 1.5}},
            [f"definition.resources.{name}" for name in ("cpu_cores", "gpu_count", "memory_mb")],
        ),
        (
            {**DEFINITION, "resources": {"gpu_type": "abacus", "gpu_count": 1}},
            ["definition.resources.gpu_type"],
        ),
    ],
)
async def test_faults_name_their_place_in_the_definition(
    definition: object, fields: list[str]
) -> None:
    """Every fault at once, with its path; nothing is written."""
    house = House()
    async with house.client() as client:
        answer = await client.post("/jobs", json={"definition": definition})
    faults = assert_error(answer, 422, "bad_input")["faults"]
    assert isinstance(faults, list)
    assert sorted(fault["field"] for fault in faults) == sorted(fields)
    assert not house.jobs


async def test_list_and_filter() -> None:
    """Newest first, by state and in pages; a word that is no state is refused."""
    house = House()
    async with house.client() as client:
        ids = []
        for _ in range(3):
            answer = await client.post("/jobs", json={"definition": DEFINITION})
            ids.append(answer.json()["id"])
        house.move(ids[0], *TO_RUNNING)
        everything = await client.get("/jobs")
        assert [job["id"] for job in everything.json()["jobs"]] == ids[::-1]
        assert everything.headers["X-Total-Count"] == "3"
        running = await client.get("/jobs", params={"status_filter": "RUNNING"})
        assert [(job["id"], job["status"]) for job in running.json()["jobs"]] == [
            (ids[0], "running")
        ]
        assert running.json()["jobs"][0]["executor_id"] == "vm-1"
        first = await client.get("/jobs?limit=2")
        token = first.headers["X-Next-Page-Token"]
        second = await client.get("/jobs", params={"limit": 2, "page_token": token})
        assert [job["id"] for job in second.json()["jobs"]] == [ids[0]]
        body = assert_error(await client.get("/jobs?status_filter=lost"), 422, "bad_input")
        assert "status_filter" in str(body["error"])


async def test_abort() -> None:
    """202 with the job as it is then; a job that has ended stays as it was."""
    house = House()
    async with house.client() as client:
        waiting = (await client.post("/jobs", json={"definition": DEFINITION})).json()["id"]
        answer = await client.post(f"/jobs/{waiting}/abort")
        assert (answer.status_code, answer.json()["status"]) == (202, "aborted")
        assert answer.json()["error"] == "aborted by owner"
        again = await client.post(f"/jobs/{waiting}/abort")
        assert (again.status_code, again.json()) == (202, answer.json())
        busy = (await client.post("/jobs", json={"definition": DEFINITION})).json()["id"]
        house.move(busy, *TO_RUNNING)
        answer = await client.post(f"/jobs/{busy}/abort")
        assert (answer.status_code, answer.json()["status"]) == (202, "running")
        assert house.jobs["0", busy].status is JobStatus.STOPPING
        assert_error(await client.post("/jobs/nothing/abort"), 500, "not_found")
        assert_error(await client.post("/jobs/..%2fx/abort"), 404, "not_found")
        assert_error(await client.get("/jobs/a%20b"), 422, "bad_input")


async def test_others_jobs_are_not_there() -> None:
    """Jobs of other tenants or users can be neither listed, read nor aborted by these clients."""
    house = House()
    async with house.client() as client:
        for job_id, owner in (("a", {"tenant_id": "t"}), ("b", {"user_id": "ada"})):
            request = {"job_id": job_id, "command": ["true"], **owner}
            assert (await client.post("/api/v1/jobs", json=request)).status_code == 201
            assert_error(await client.get(f"/jobs/{job_id}"), 404, "not_found")
            assert_error(await client.post(f"/jobs/{job_id}/abort"), 500, "not_found")
        assert (await client.get("/jobs")).json() == {"jobs": []}
    assert {job.status for job in house.jobs.values()} == {JobStatus.QUEUED}


def test_states_are_six_and_complete() -> None:
    """Each of our statuses is one of their six states, and each state can be asked for."""
    assert set(STATES) == {"pending", "assigned", "running", "succeeded", "failed", "aborted"}
    assert sorted(s for state in STATES for s in statuses_called(state)) == sorted(JobStatus)


async def test_executors() -> None:
    """VMs are executors: how many jobs they run is told, not whose."""
    house = House()
    vm = Vm(
        uid=LEASE.vm_uid,
        name="vm-1",
        cluster="1xl4",
        region="us-central1",
        state=VmState.READY,
        version=1,
        request_id="r",
        gpus=1,
        spot=False,
        usd_per_hour=0.7,
        requested_at=NOW,
        state_since=NOW,
        last_beat_at=NOW,
    )
    booting = replace(
        vm, uid="a", name="vm-2", state=VmState.BOOTING, last_beat_at=None, cluster="gone"
    )
    house.write(NewVm(vm, 9), NewVm(booting, 9))
    async with house.client() as client:
        secret = {"job_id": "secret", "command": ["true"], "cluster": "1xl4"}
        assert (await client.post("/api/v1/jobs", json=secret)).status_code == 201
        house.move("secret", *TO_RUNNING)
        answer = await client.get("/executors")
    assert answer.status_code == 200
    first, second = answer.json()
    assert first == {
        "id": "vm-1",
        "status": "online",
        "region": "us-central1",
        "resources": {"cpu_cores": 12, "memory_mb": 87040, "gpu_type": "l4", "gpu_count": 1},
        "running_jobs": 1,
        "last_heartbeat": AT,
    }
    assert (second["status"], second["resources"]["gpu_type"]) == ("offline", None)
    assert "secret" not in answer.text


async def test_each_state_is_shown_for_a_while() -> None:
    """A client that asks twice a second sees a job pending, then assigned, however fast it was."""
    house = House()
    async with house.client() as client:
        job_id = (await client.post("/jobs", json={"definition": DEFINITION})).json()["id"]
        house.move(job_id, *TO_RUNNING, E.EXITED_OK)
        seen = []
        for passed_s in (0.0, 0.4, 0.6, 2.4, 2.6):
            house.clock.at = NOW + timedelta(seconds=passed_s)
            seen.append((await client.get(f"/jobs/{job_id}")).json())
    assert [one["status"] for one in seen] == [
        *("pending", "pending", "assigned", "assigned", "succeeded")
    ]
    assert [one["assigned_at"] for one in seen] == [None, None, AT, AT, AT]
    assert [one["started_at"] for one in seen] == [None, None, None, None, AT]
    assert [one["finished_at"] for one in seen] == [None, None, None, None, AT]


async def test_what_fits_nowhere_waits() -> None:
    """A job that is larger than every VM is accepted, and nothing is bought for it; a GPU type that
    does not exist is refused."""
    house = House()
    large = {"name": "n", "command": ["true"], "resources": {"cpu_cores": 100, "memory_mb": 128}}
    unknown = {**DEFINITION, "resources": {"gpu_type": "nvidia-k80", "gpu_count": 1}}
    async with house.client() as client:
        answer = await client.post("/jobs", json={"definition": large})
        assert (answer.status_code, answer.json()["status"]) == (201, "pending")
        answer = await client.post("/jobs", json={"definition": unknown})
        assert_error(answer, 422, "bad_input")
    (job,) = house.jobs.values()
    assert job.cluster == "0xcpu"
    assert "no VM of 0xcpu is large enough: it asks for 100 cores, a VM has 4" in job.reason


@pytest.mark.parametrize(
    ("theirs", "ours"), [("nvidia-a100", "a100-40gb"), ("l4", "l4"), ("nvidia-l4", "l4")]
)
async def test_gpu_types_have_their_names(theirs: str, ours: str) -> None:
    """nvidia-a100 is our a100-40gb, and is called nvidia-a100 again in the answer; a type that they
    have no name for keeps ours."""
    house = House()
    resources = {"gpu_type": theirs, "gpu_count": 2 if "a100" in ours else 1}
    async with house.client() as client:
        answer = await client.post(
            "/jobs", json={"definition": {**DEFINITION, "resources": resources}}
        )
    assert answer.status_code == 201, answer.text
    (job,) = house.jobs.values()
    assert job.spec.gpu_type == ours
    told = answer.json()["definition"]["resources"]["gpu_type"]
    assert told == (theirs if ours == "a100-40gb" else ours)


async def test_healthy_executors() -> None:
    """VMs that are READY, with what is left of each: nothing of one that a job has to itself."""
    house = House()
    busy = ready_vm("vm-1", "1xl4", uid=LEASE.vm_uid, gpus=1, leases=(LEASE.lease_id,))
    ends = {"job_id": "a", "command": ["true"], "cluster": "1xl4"}
    idle = ready_vm("vm-2", "0xcpu", uid="b", gpus=0, address="10.0.0.2")
    booting = replace(idle, uid="a", name="vm-3", state=VmState.BOOTING)
    house.write(*(NewVm(vm, 9) for vm in (busy, idle, booting)))
    async with house.client() as client:
        assert (await client.post("/api/v1/jobs", json=ends)).status_code == 201
        house.move("a", *TO_RUNNING)
        first, second = (await client.get("/executors/healthy")).json()["executors"]
        house.move("a", E.STOP_ASKED)
        ending, _ = (await client.get("/executors/healthy")).json()["executors"]
    assert ending["available_resources"]["resources"]["gpu_count"] == 1, "it is told to end"
    assert first["executor_info"]["resources"]["gpu_count"] == 1
    assert first["available_resources"]["resources"]["gpu_count"] == 0
    assert first["assigned_jobs_count"] == 1
    has = {"cpu_cores": 4, "memory_mb": 15360, "gpu_type": None, "gpu_count": 0}
    assert second == {
        "executor_info": {"id": "vm-2", "ip_address": "10.0.0.2", "resources": has},
        "available_resources": {"id": "vm-2", "resources": has},
        "assigned_jobs_count": 0,
    }


def ready_vm(name: str, cluster: str, **facts: object) -> Vm:
    vm = Vm(name, name, cluster, "us-central1", VmState.READY, 1, "r", 0, False, 0.7, NOW, NOW)
    return replace(vm, **facts)  # type: ignore[arg-type]


async def test_stats() -> None:
    """Jobs by state, and executors."""
    house = House()
    jobs = {("1xl4", status): number for number, status in enumerate(JobStatus, 1)}
    vms = (
        VmCount("1xl4", "us-central1", VmState.READY, True, 2),
        VmCount("1xl4", "us-central1", VmState.READY, False, 1),
        VmCount("1xl4", "us-central1", VmState.BOOTING, False, 4),
    )
    house.answer("summary", ServiceSummary(NOW, "me", 1, NOW, jobs, vms, None, 0, {}))
    async with house.client() as client:
        answer = await client.get("/stats")
    assert answer.json() == {
        "jobs": {
            "total": 55,
            "pending": 3,
            "assigned": 7,
            "running": 18,
            "succeeded": 8,
            "failed": 9,
            "aborted": 10,
        },
        "executors": {"total": 7, "online": 3, "busy": 2},
        "timestamp": AT,
    }


CONTRACT = """
QUEUED       NEW         pending   pending   Waiting   queued
PROVISIONING WAIT_FOR_VM pending   pending   Pending   queued
ASSIGNED     FOUND_VM    assigned  scheduled Pending   queued
STARTING     DETACHED_VM assigned  scheduled Pending   queued
RUNNING      RUNNING     running   running   Running   running
PREEMPTING   RUNNING     running   preempted Migrating running
STOPPING     STOPPING    running   running   Running   running
SUCCEEDED    COMPLETED   succeeded completed Complete  finished
FAILED       FAILED      failed    failed    Failed    failed
CANCELLED    STOPPED     aborted   cancelled Failed    failed
"""


def test_vocabularies_are_those_of_the_contract() -> None:
    """Five vocabularies over one state machine, word by word."""
    rows = [line.split() for line in CONTRACT.strip().splitlines()]
    assert {row[0]: row[1:] for row in rows} == {
        str(status): [w.v1, w.definition, w.multi_tenant, w.unified, w.tgpu]
        for status, w in WORDS.items()
    }
