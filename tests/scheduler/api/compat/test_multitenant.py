"""Clients of multi-tenant schedulers: their routes are our native ones, with their words."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial

import httpx
import pytest

from core.changes import AtomicBatch
from core.ids import RandomIds
from core.job import E, JobStatus
from core.reasons import CommitRefusal
from scheduler.api.caller import TenantReads
from scheduler.api.compat.multitenant import job_words
from scheduler.api.http.app import create_app
from scheduler.api.services import Services
from scheduler.operations.metrics import Metrics
from scheduler.secrets.tenant_secrets import TenantSecrets
from scheduler.submission.submit import SubmissionPorts, Submissions
from scheduler.submission.tenant_access import TenantAccess
from sim.memory.reads import MemoryReads
from sim.memory.secrets import MemorySecrets
from sim.memory.store import MemoryStore
from tests.access import OWNER, bearer, owner_only
from tests.builders import job, live
from tests.scheduler.api.fakes import CLUSTERS, StillClock, assert_error

TENANT = {
    "id": "vision",
    "name": "Vision team",
    "max_gpus": 4,
    "max_gpu_memory_mb": 327680,
    "max_cpu_cores": 96,
    "max_memory_mb": 696320,
    "max_concurrent_jobs": 10,
    "priority_tier": "high",
    "fair_share_weight": 2.5,
    "allow_preemption": False,
}
JOB = {
    "tenant_id": "vision",
    "name": "train",
    "priority": 700,
    "gpu_count": 2,
    "gpu_memory_mb": 20000,
    "cpu_cores": 4,
    "memory_mb": 8192,
    "command": ["python3"],
    "args": ["train.py", "--lr=0.1"],
    "environment": {"A": "1"},
    "gang_scheduling": False,
    "max_runtime_minutes": 90,
}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(StillClock())


@pytest.fixture
def client(store: MemoryStore) -> httpx.AsyncClient:
    clock, ids = StillClock(), RandomIds(random.Random(7))

    async def readiness() -> Mapping[str, str]:
        return {}

    async def write(batch: AtomicBatch) -> CommitRefusal | None:
        return (await store.commit([batch], None)).refusals.get(0)

    settings = live(*CLUSTERS)
    submissions = Submissions(
        SubmissionPorts(write, store, clock, ids),
        settings,
        door=TenantAccess(store, settings, clock),
    )
    services = Services(
        store=store,
        reads=MemoryReads(store),
        bound_reads=partial(TenantReads, MemoryReads(store)),
        access=owner_only(clock),
        secrets=TenantSecrets(MemorySecrets(), None, ids),
        submissions=submissions,
        settings=settings,
        clock=clock,
        ids=ids,
        metrics=Metrics(),
        readiness=readiness,
    )
    transport = httpx.ASGITransport(create_app(services))
    return httpx.AsyncClient(
        transport=transport, base_url="http://zen/api/v1", headers=bearer(OWNER)
    )


async def test_health(client: httpx.AsyncClient) -> None:
    """GET /api/v1/health says ok; GET /health says healthy, as those clients and others ask."""
    answer = await client.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    other = await client.get("http://zen/health")
    assert (other.status_code, other.json()["status"]) == (200, "healthy")


async def test_cluster_status(client: httpx.AsyncClient) -> None:
    """GET /cluster/status has the seven counts."""
    await client.post("/jobs", json=JOB)
    answer = await client.get("/cluster/status")
    assert (answer.status_code, answer.json()) == (
        200,
        {
            "total_nodes": 0,
            "online_nodes": 0,
            "total_gpus": 0,
            "available_gpus": 0,
            "total_jobs": 1,
            "running_jobs": 0,
            "pending_jobs": 1,
        },
    )


async def test_tenant_is_set_up_and_read(client: httpx.AsyncClient) -> None:
    """POST answers 201 with every field of that family; GET by id and the list say the same."""
    answer = await client.post("/tenants", json=TENANT)
    assert answer.status_code == 201
    assert {name: answer.json()[name] for name in TENANT} == TENANT
    found = await client.get("/tenants/vision")
    assert (found.status_code, found.json()) == (200, answer.json())
    listed = (await client.get("/tenants")).json()
    assert [tenant["id"] for tenant in listed["tenants"]] == ["default", "vision"]
    assert_error(await client.get("/tenants/nobody"), 404, "not_found")


async def test_tenant_again(client: httpx.AsyncClient) -> None:
    """The same tenant again is the same answer; other settings are a conflict and change nothing;
    a tenant that has only submitted so far can still be set up."""
    await client.post("/jobs", json={**JOB, "tenant_id": "early"})
    assert (await client.post("/tenants", json={**TENANT, "id": "early"})).status_code == 201
    first = await client.post("/tenants", json=TENANT)
    again = await client.post("/tenants", json=TENANT)
    assert (again.status_code, again.json()) == (201, first.json())
    other = await client.post("/tenants", json={**TENANT, "max_gpus": 400})
    assert_error(other, 409, "conflict")
    assert (await client.get("/tenants/vision")).json()["max_gpus"] == 4


async def test_tenant_without_limits(client: httpx.AsyncClient) -> None:
    """What is left out is not limited, and is null."""
    answer = await client.post("/tenants", json={"id": "open"})
    assert answer.status_code == 201
    told = {name: answer.json()[name] for name in TENANT}
    limits = dict.fromkeys(name for name in TENANT if name.startswith("max_"))
    assert told == {
        "id": "open",
        "name": "open",
        **limits,
        "priority_tier": "critical",
        "fair_share_weight": 1.0,
        "allow_preemption": True,
    }


async def test_tenant_by_name_gets_an_id(client: httpx.AsyncClient) -> None:
    """A name is free text: without an id each call makes another tenant with an id of its own,
    unless it carries the same Idempotency-Key."""
    body = {"name": "AI Research Team 🔥", "max_gpus": 8}
    first, second = [(await client.post("/tenants", json=body)).json() for _ in range(2)]
    assert first["id"].startswith("tenant-")
    assert first["id"] != second["id"]
    assert (first["name"], first["max_gpus"]) == ("AI Research Team 🔥", 8)
    assert (first["current_gpus"], first["current_jobs"], first["active"]) == (0, 0, True)
    job = await client.post("/jobs", json={**JOB, "tenant_id": first["id"]})
    assert job.status_code == 201
    key = {"Idempotency-Key": "k1"}
    twice = [(await client.post("/tenants", json=body, headers=key)).json() for _ in range(2)]
    assert twice[0] == twice[1]
    body = assert_error(await client.post("/tenants", json={"max_gpus": 8}), 422, "bad_input")
    assert [fault["field"] for fault in body["faults"]] == ["id"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("tier", "priority_max", "told"),
    [
        ("low", 499, "low"),
        ("medium", 999, "medium"),
        ("normal", 999, "medium"),
        ("high", 1999, "high"),
        ("critical", 9999, "critical"),
        ("urgent", 9999, "critical"),
    ],
)
async def test_tiers(client: httpx.AsyncClient, tier: str, priority_max: int, told: str) -> None:
    """Tiers are read in those clients' words and in ours, and told in theirs."""
    answer = (await client.post("/tenants", json={"id": "t", "priority_tier": tier})).json()
    assert (answer["priority_max"], answer["priority_tier"]) == (priority_max, told)


async def test_preemption_flags(client: httpx.AsyncClient) -> None:
    """allow_preemption is whether the tenant's jobs may be preempted, can_preempt_others whether
    they may preempt; contact fields are taken and passed over."""
    flags = {"allow_preemption": False, "can_preempt_others": True}
    extra = {"email": "a@example.org", "organization": "Example"}
    answer = await client.post("/tenants", json={"id": "t", **flags, **extra})
    told = answer.json()
    assert answer.status_code == 201
    assert (told["preemptible"], told["may_preempt"]) == (False, True)
    assert {name: told[name] for name in flags} == flags


async def test_script(client: httpx.AsyncClient) -> None:
    """A script runs with /bin/sh -c, with or without an image; beside a command it is refused."""
    body = {"image": "nvidia/cuda:12.0-base", "script": "nvidia-smi | head"}
    job_id = (await client.post("/jobs", json=body)).json()["job_id"]
    found = (await client.get(f"/jobs/{job_id}")).json()
    assert (found["id"], found["script"]) == (job_id, "nvidia-smi | head")
    assert (found["node_name"], found["allocated_gpus"]) == (None, [])
    assert found["queue_position"] == found["position"]
    assert (await client.post("/jobs", json={"script": "true"})).status_code == 201
    assert (await client.post("/jobs", json={"script": "", "command": ["x"]})).status_code == 201
    answer = await client.post("/jobs", json={"script": "true", "command": ["x"], "args": ["y"]})
    faults = assert_error(answer, 422, "bad_input")["faults"]
    assert [fault["field"] for fault in faults] == ["command", "args"]  # type: ignore[attr-defined]
    assert_error(await client.post("/jobs", json={"script": ""}), 422, "bad_input")
    assert_error(await client.post("/jobs", json={"script": ["true"]}), 422, "bad_input")


async def test_limit_and_offset(client: httpx.AsyncClient) -> None:
    """Lists are paged by limit and offset too; offset and a page token contradict each other."""
    for number in range(5):
        await client.post("/jobs", json={**JOB, "job_id": f"j{number}"})
    everything = [job["id"] for job in (await client.get("/jobs")).json()["jobs"]]
    page = (await client.get("/jobs", params={"limit": 2, "offset": 1})).json()
    assert ([job["id"] for job in page["jobs"]], page["total"]) == (everything[1:3], 5)
    rest = {"page_token": page["next_page_token"]}
    after = (await client.get("/jobs", params=rest)).json()
    assert [job["id"] for job in after["jobs"]] == everything[3:]
    assert (await client.get("/jobs", params={"offset": 9})).json()["jobs"] == []
    assert_error(await client.get("/jobs", params={**rest, "offset": 1}), 422, "bad_input")
    assert_error(await client.get("/jobs", params={"limit": 0}), 422, "bad_input")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"id": "a b"}, "id"),
        ({"id": "../x"}, "id"),
        ({"id": 7}, "id"),
        ({"max_gpus": -1}, "max_gpus"),
        ({"max_gpu_memory_mb": "many"}, "max_gpu_memory_mb"),
        ({"max_memory_mb": True}, "max_memory_mb"),
        ({"max_concurrent_jobs": 1.5}, "max_concurrent_jobs"),
        ({"priority_tier": "first class"}, "priority_tier"),
        ({"fair_share_weight": 0}, "fair_share_weight"),
        ({"allow_preemption": "yes"}, "allow_preemption"),
        ({"name": "a\nb"}, "name"),
        ({"colour": "blue"}, "colour"),
    ],
)
async def test_wrong_tenant_names_the_field(
    client: httpx.AsyncClient, change: Mapping[str, object], field: str
) -> None:
    """Each fault is told in that family's words; nothing is written."""
    body = assert_error(await client.post("/tenants", json={**TENANT, **change}), 422, "bad_input")
    assert [fault["field"] for fault in body["faults"]] == [field]  # type: ignore[attr-defined]
    assert (await client.get("/tenants")).json()["total"] == 1


async def test_job_is_submitted_listed_read_and_deleted(client: httpx.AsyncClient) -> None:
    """The life of a job over those four routes."""
    answer = await client.post("/jobs", json=JOB)
    job_id = answer.json()["job_id"]
    assert answer.status_code == 201
    assert answer.json()["status"] == "submitted"
    assert "2xa100-40gb" in answer.json()["message"]
    found = (await client.get(f"/jobs/{job_id}")).json()
    told = {name: found[name] for name in JOB if name not in ("command", "args")}
    assert told == {name: JOB[name] for name in told}
    assert (found["state"], found["status"]) == ("pending", "QUEUED")
    assert found["command"] == ["python3", "train.py", "--lr=0.1"]
    page = (await client.get("/jobs", params={"tenant_id": "vision", "state": "pending"})).json()
    assert (page["total"], page["next_page_token"]) == (1, None)
    assert page["jobs"] == [found]
    gone = await client.delete(f"/jobs/{job_id}")
    assert (gone.status_code, gone.json()["status"]) == (200, "cancelled")
    assert (await client.delete(f"/jobs/{job_id}")).status_code == 200
    assert (await client.get(f"/jobs/{job_id}")).json()["state"] == "cancelled"


async def test_quota_refusal(client: httpx.AsyncClient, store: MemoryStore) -> None:
    """A job that the quota can never hold is 403 in that family's words, and is not stored."""
    await client.post("/tenants", json={**TENANT, "id": "small", "max_gpus": 2})
    answer = await client.post("/jobs", json={**JOB, "tenant_id": "small", "gpu_count": 4})
    body = assert_error(answer, 403, "quota_exceeded")
    assert body["error"] == (
        "quota exceeded for tenant small: GPUs requested=4, quota=2, current=0"
    )
    assert [fault["field"] for fault in body["faults"]] == ["gpu_count"]  # type: ignore[attr-defined]
    assert (await client.get("/jobs")).json()["total"] == 0


async def test_no_tenant_reads_or_stops_anothers(client: httpx.AsyncClient) -> None:
    """With its tenant named, a request finds that tenant's jobs and no others: not in lists, not by
    id, not their history, not to stop them. That one exists is not told either."""
    await client.post("/jobs", json={**JOB, "job_id": "mine", "tenant_id": "a"})
    await client.post("/jobs", json={**JOB, "job_id": "theirs", "tenant_id": "b"})
    for user in ("x", "y"):
        await client.post("/jobs", json={**JOB, "job_id": "two", "tenant_id": "b", "user_id": user})
    mine = {"tenant_id": "a"}
    page = (await client.get("/jobs", params=mine)).json()
    assert [job["job_id"] for job in page["jobs"]] == ["mine"]
    for job_id in ("theirs", "two", "nothing"):
        for path in ("", "/events", "/attempts"):
            answer = await client.get(f"/jobs/{job_id}{path}", params=mine)
            body = assert_error(answer, 404, "not_found")
            assert body["error"] == f"tenant a has no job {job_id}"
        assert_error(await client.delete(f"/jobs/{job_id}", params=mine), 404, "not_found")
        assert_error(await client.post(f"/jobs/{job_id}/stop", params=mine), 404, "not_found")
    owner = {"tenant_id": "b"}
    assert (await client.get("/jobs/theirs", params=owner)).json()["status"] == JobStatus.QUEUED
    assert_error(await client.delete("/jobs/two", params=owner), 409, "ambiguous")
    assert (await client.delete("/jobs/mine", params=mine)).status_code == 200


async def test_v1_user_is_no_way_around(client: httpx.AsyncClient) -> None:
    """A v1 route reaches its user's jobs only, whatever the tenant."""
    await client.post("/jobs", json={**JOB, "job_id": "j", "tenant_id": "b", "user_id": "bob"})
    root = "http://zen"
    assert_error(await client.post(f"{root}/jobs/gcp/stop/j/eve"), 404, "not_found")
    question = {"user_id": "eve", "job_ids": ["j"]}
    assert (await client.post(f"{root}/jobs/get_by_user_and_ids", json=question)).json() == []
    assert_error(await client.get(f"{root}/jobs/j"), 404, "not_found")


def test_a_job_without_gpus_is_given_none() -> None:
    """Its VM has one slot, which is no GPU."""
    on_vm = (E.ADMITTED, E.PLACED)
    assert job_words(job(1, *on_vm, gpu_count=0), "", None)["allocated_gpus"] == ()
    assert len(job_words(job(1, *on_vm), "", None)["allocated_gpus"]) == 1
