"""The API over the real database: the road of a submission, races, pages, outages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial

import httpx
import pytest

from core.changes import JobMove
from core.clock import SystemClock
from core.ids import RandomIds
from core.job import E, Lease
from core.job_steps import EventFacts, advance, entry_for
from db.reads import PostgresReads
from db.store import PostgresStore
from scheduler.api.caller import TenantReads
from scheduler.api.http.app import create_app
from scheduler.api.services import Services
from scheduler.operations.metrics import Metrics
from scheduler.secrets.tenant_secrets import TenantSecrets
from scheduler.submission.group_commit import GroupCommit
from scheduler.submission.submit import SubmissionPorts, Submissions
from sim.memory.secrets import MemorySecrets
from tests.access import OWNER, bearer, owner_only
from tests.builders import live as live_settings
from tests.scheduler.api.fakes import CLUSTERS, RULES, assert_error

pytestmark = pytest.mark.slow

JOBS = "/api/v1/jobs"


@dataclass
class Live:
    """The API, its store and a client."""

    store: PostgresStore
    client: httpx.AsyncClient


@pytest.fixture
async def live(database_url: str) -> AsyncIterator[Live]:
    """The API on a fresh database."""
    store = PostgresStore(database_url)
    await store.open()
    group, clock, ids = GroupCommit(store), SystemClock(), RandomIds()
    settings = live_settings(*CLUSTERS)

    async def readiness() -> Mapping[str, str]:
        return {"database": "ok"}

    services = Services(
        store=store,
        reads=PostgresReads(store),
        bound_reads=partial(TenantReads, PostgresReads(store)),
        access=owner_only(clock),
        secrets=TenantSecrets(MemorySecrets(), None, ids),
        submissions=Submissions(SubmissionPorts(group.submit, store, clock, ids), settings),
        settings=settings,
        clock=clock,
        ids=ids,
        metrics=Metrics(),
        readiness=readiness,
    )
    transport = httpx.ASGITransport(create_app(services))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://zen", headers=bearer(OWNER)
    ) as client:
        yield Live(store, client)
    await group.close()
    await store.close()


async def counted(live: Live) -> int:
    """Jobs in the database, for any caller."""
    async with live.store.connection() as connection:
        row = await (await connection.execute("SELECT count(*) FROM jobs")).fetchone()
    assert row is not None
    return int(row[0])


async def test_submit_get_list_stop(live: Live) -> None:
    """A submission is found again with all it said, and stopping it ends it with its history."""
    request = {
        "command": ["echo", "ä — 語"],
        "job_id": "mine",
        "user_id": "ada",
        "gpu_type": "a100-40gb",
        "gpu_count": 2,
        "labels": {"team": "vision"},
        "environment": {"A": "b"},
        "workflow_args": {"nested": [1, 2.5, None, {"x": True}]},
    }
    accepted = await live.client.post(JOBS, json=request)
    assert (accepted.status_code, accepted.json()["cluster"]) == (201, "2xa100-40gb")
    job = (await live.client.get(f"{JOBS}/mine")).json()
    assert (job["status"], job["state"], job["command"]) == (
        "QUEUED",
        "pending",
        request["command"],
    )
    found = (await live.client.get(f"{JOBS}?label=team=vision&state=pending&user_id=ada")).json()
    assert [found["total"], found["jobs"]] == [1, [job]]
    stopped = await live.client.request("DELETE", f"{JOBS}/mine", json={"reason": "enough"})
    assert (stopped.status_code, stopped.json()["status"]) == (200, "cancelled")
    assert (await live.client.delete(f"{JOBS}/mine")).status_code == 200
    events = (await live.client.get(f"{JOBS}/mine/events")).json()["events"]
    assert [(e["event"], e["to"]) for e in events] == [
        ("submitted", "QUEUED"),
        ("stop_asked", "CANCELLED"),
    ]
    assert "enough" in events[1]["reason"]
    status = (await live.client.get("/api/v1/status")).json()
    assert status["jobs"]["CANCELLED"] == 1


async def test_stopping_a_leased_job_writes_its_message(live: Live) -> None:
    """The stop of a running job and the word to its VM are committed together."""
    await live.client.post(JOBS, json={"command": ["a"], "job_id": "mine"})
    job = await live.store.find_job("mine", None)
    lease = Lease("lease1", "vm-1", RandomIds().uid(job.submitted_at), "us-central1", "z", (0,))
    for event in (E.ADMITTED, E.PLACED, E.CLAIMED, E.STARTED):
        after = advance(
            job,
            event,
            job.submitted_at,
            RULES,
            facts=EventFacts(lease=lease if event is E.PLACED else None),
        )
        batch = (JobMove(job, after, (entry_for(job, after, event),)),)
        assert (await live.store.commit([batch], None)).all_applied
        job = after
    answers = await asyncio.gather(*(live.client.post(f"{JOBS}/mine/stop") for _ in range(5)))
    assert {(a.status_code, a.json()["status"]) for a in answers} == {(202, "stopping")}
    (row,) = await live.store.outbox(10)
    assert row.message.attributes["kind"] == "stop"
    attempts = (await live.client.get(f"{JOBS}/mine/attempts")).json()["attempts"]
    assert [(a["attempt"], a["vm_name"], a["slots"]) for a in attempts] == [(1, "vm-1", [0])]


async def test_fifty_equal_submissions_are_one_job(live: Live) -> None:
    """Equal submissions that race leave exactly one row and get equal answers."""
    request = {"command": ["a"], "job_id": "mine"}
    answers = await asyncio.gather(*(live.client.post(JOBS, json=request) for _ in range(50)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1
    keyed = await asyncio.gather(
        *(
            live.client.post(JOBS, json={"command": ["b"]}, headers={"Idempotency-Key": "k"})
            for _ in range(50)
        )
    )
    assert len({answer.text for answer in keyed}) == 1
    assert await counted(live) == 2


async def test_different_submissions_under_one_id_have_one_winner(live: Live) -> None:
    """Of racing submissions with other content one is stored, and the others are told so."""
    answers = await asyncio.gather(
        *(live.client.post(JOBS, json={"command": [str(n)], "job_id": "mine"}) for n in range(10))
    )
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 9
    for answer in answers:
        if answer.status_code == 409:
            assert "mine" in str(assert_error(answer, 409, "conflict")["error"])
    assert await counted(live) == 1


async def test_pages_have_no_gap_and_no_repeat(live: Live) -> None:
    """Pages of any size lead once through every job; a token serves only its own question."""
    await asyncio.gather(*(live.client.post(JOBS, json={"command": [str(n)]}) for n in range(23)))
    found: list[str] = []
    token = ""
    while True:
        page = (await live.client.get(f"{JOBS}?page_size=5&page_token={token}")).json()
        found += [job["job_id"] for job in page["jobs"]]
        assert page["total"] == 23
        if page["next_page_token"] is None:
            break
        token = page["next_page_token"]
    assert len(found) == len(set(found)) == 23
    for bad in (token[:-2], token + "AA", "nonsense", "AAAA", "%F0%9F%98%80"):
        answer = await live.client.get(f"{JOBS}?page_size=5&page_token={bad}")
        assert "page_token" in str(assert_error(answer, 422, "bad_input")["error"])
    other = await live.client.get(f"{JOBS}?user_id=ada&page_token={token}")
    assert_error(other, 422, "bad_input")
    vms = await live.client.get("/api/v1/vms?page_token=nonsense")
    assert_error(vms, 422, "bad_input")


async def test_refused_submissions_leave_nothing(live: Live) -> None:
    """A refusal writes no job, no event, no message."""
    requests: tuple[dict[str, object], ...] = (
        {"command": []},
        {"command": ["a"], "gpu_type": "a100"},
        {"command": ["a"], "workflow_args": {"x": "\0"}},
        {"command": ["a"], "gpu_count": 64},
    )
    for request in requests:
        assert_error(await live.client.post(JOBS, json=request), 422, "bad_input")
    assert await counted(live) == 0
    async with live.store.connection() as connection:
        row = await (await connection.execute("SELECT count(*) FROM timelines")).fetchone()
    assert row == (0,)


async def test_every_read_works_on_an_empty_database(live: Live) -> None:
    """A service that has just begun answers every question."""
    for path in ("jobs", "clusters", "vms", "vms?gone=true", "status", "cluster/status", "alerts"):
        answer = await live.client.get(f"/api/v1/{path}")
        assert answer.status_code == 200, answer.text
    assert (await live.client.get("/metrics")).status_code == 200
    assert_error(await live.client.get(f"{JOBS}/nobody"), 404, "not_found")


async def test_closed_database_is_503(live: Live) -> None:
    """A database that is away is told as such, with a time to come again."""
    await live.store.close()
    for answer in (
        await live.client.post(JOBS, json={"command": ["a"]}),
        await live.client.get(JOBS),
    ):
        assert_error(answer, 503, "database_unavailable")
        assert answer.headers["Retry-After"] == "1"


async def test_other_systems_clients_on_the_real_database(live: Live) -> None:
    """One job, seen through every vocabulary: submitted by v1, read by v1 and natively, stopped by
    v1; a definition is listed, read and aborted; a tenant keeps its name and limits."""
    body = {"job_id": "f", "user_id": "ada", "workflow": "echo", "args": {"k": [1]}}
    new = await live.client.post("/jobs/gcp", json={**body, "gpu_type": "l4"})
    assert (new.status_code, new.json()) == (200, {"job_id": "f", "status": "new"})
    again = await live.client.post("/jobs/gcp", json={**body, "gpu_type": "l4"})
    assert_error(again, 422, "bad_input")
    question = {"user_id": "ada", "job_ids": ["f", "g"]}
    (job,) = (await live.client.post("/jobs/get_by_user_and_ids", json=question)).json()
    assert (job["status"], job["args"], job["gcp"]["cluster"]) == ("NEW", {"k": [1]}, "1xl4")
    assert job["timestamps"]["new"] == job["created_at"]
    assert (await live.client.get(f"{JOBS}/f")).json()["state"] == "pending"
    assert (await live.client.post("/jobs/gcp/stop/f/ada")).json() == {"status": "stopping"}
    (job,) = (await live.client.post("/jobs/get_by_user_and_ids", json=question)).json()
    assert (job["status"], job["timestamps"]["stopped"]) == ("STOPPED", job["updated_at"])
    assert_error(await live.client.post("/jobs/f/stop"), 404, "not_found")
    definition = {"definition": {"name": "n", "command": ["true"]}}
    defined = (await live.client.post("/jobs", json=definition)).json()
    assert (await live.client.get("/jobs?status_filter=pending")).json() == {"jobs": [defined]}
    aborted = await live.client.post(f"/jobs/{defined['id']}/abort")
    assert (aborted.status_code, aborted.json()["status"]) == (202, "aborted")
    status = (await live.client.get("/status")).json()
    assert status["overall_summary"]["total_jobs"] == 2
    assert (await live.client.get("/stats")).json()["jobs"]["aborted"] == 2
    tenant = {"id": "t", "name": "Team T", "max_gpus": 4, "max_memory_mb": 1536}
    assert (await live.client.post("/api/v1/tenants", json=tenant)).status_code == 201
    found = (await live.client.get("/api/v1/tenants/t")).json()
    assert {name: found[name] for name in tenant} == tenant
