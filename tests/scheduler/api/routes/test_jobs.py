"""Jobs over HTTP: submit, list, get, history, stop."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from core.changes import AtomicBatch, PendingReason, PutSupplyHistory
from core.job import JobEvent, JobStatus
from core.job_steps import advance
from core.reasons import CommitRefusal, RefusalKind
from core.supply import SupplyHistory, SupplyOutcome
from core.waits import WaitKind, WaitNote
from scheduler.api.shapes import STATES, JobState, statuses_of
from tests.scheduler.api.fakes import CLUSTERS, NOW, RULES, TO_RUNNING, House, assert_error

JOBS = "/api/v1/jobs"
HELLO = {"command": ["echo", "hello"]}


async def test_submission_is_stored_and_told() -> None:
    """A submission is answered 201 with its id, its cluster, why that one and what it costs."""
    house = House()
    async with house.client() as client:
        answer = await client.post(JOBS, json=HELLO)
    body = answer.json()
    assert answer.status_code == 201
    assert re.fullmatch(r"j-[0-9a-z]{10}", body["job_id"])
    assert body == {
        "job_id": body["job_id"],
        "user_id": "0",
        "status": "submitted",
        "message": body["message"],
        "cluster": "1xl4",
        "tenant_id": "default",
        "jobs": 1,
        "starvation_bound_s": None,
        "machine_type": "machine-1xl4",
        "gpus_per_vm": 1,
        "spot": False,
        "usd_per_hour": 0.7,
        "usd_per_hour_max": 1.7,
        "vms": 1,
        "total_usd_per_hour": 1.7,
    }
    assert body["message"] == (
        "queued for cluster 1xl4 (machine-1xl4, standard VMs): cheapest match: 1 × L4 per VM, "
        "$0.70 to $1.70/h by region"
    )
    (job,) = house.jobs.values()
    assert job.status is JobStatus.QUEUED
    (entry,) = house.timeline(job)
    assert (entry.event, entry.from_status, entry.to_status) == ("submitted", None, "QUEUED")
    assert "cheapest" in entry.reason


async def test_every_answer_has_a_request_id() -> None:
    """The caller's own request id is kept; one that could forge a log line is not."""
    async with House().client() as client:
        assert (await client.get("/api/v1/health")).headers["X-Request-Id"]
        kept = await client.get("/api/v1/health", headers={"X-Request-Id": "trace-1"})
        assert kept.headers.get_list("X-Request-Id") == ["trace-1"]
        forged = await client.get("/api/v1/health", headers={"X-Request-Id": "a b{}"})
        assert forged.headers["X-Request-Id"] != "a b{}"


async def test_same_submission_again_gets_the_same_answer() -> None:
    """The same content under the same id is one job and one answer, also after it moved on."""
    house = House()
    request = {**HELLO, "job_id": "mine", "user_id": "ada", "gpu_count": 2}
    async with house.client() as client:
        first = await client.post(JOBS, json=request)
        house.move("mine", *TO_RUNNING)
        again = await client.post(JOBS, json=dict(reversed(request.items())))
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert len(house.jobs) == 1


async def test_repeat_outlives_its_cluster() -> None:
    """A repeat is answered with the first cluster, also when operators have removed it since."""
    house = House()
    request = {**HELLO, "job_id": "mine", "cluster": "2xa100-40gb"}
    async with house.client() as client:
        await client.post(JOBS, json=request)
        house.clusters = house.clusters[:1]
        again = await client.post(JOBS, json=request)
    assert again.status_code == 201
    assert again.json()["cluster"] == "2xa100-40gb"


async def test_a_past_deadline_is_refused_but_not_of_a_repeat() -> None:
    """A new job whose deadline is over is refused with the time it is; a repeat of a job that was
    in time gets its first answer, under its own id, under a key, and as an array."""
    house = House()
    soon = (NOW + timedelta(seconds=60)).isoformat()
    mine, sweep = {**HELLO, "job_id": "mine"}, {**HELLO, "job_id": "sweep", "array": "1-3"}
    key = {"Idempotency-Key": "k"}
    async with house.client() as client:
        for request in (mine, sweep):
            assert (await client.post(JOBS, json={**request, "deadline": soon})).status_code == 201
        await client.post(JOBS, json={**HELLO, "deadline": soon}, headers=key)
        house.clock.at += timedelta(seconds=120)
        for request in (mine, sweep):
            assert (await client.post(JOBS, json={**request, "deadline": soon})).status_code == 201
        again = await client.post(JOBS, json={**HELLO, "deadline": soon}, headers=key)
        assert again.status_code == 201
        late = await client.post(JOBS, json={**HELLO, "deadline": soon})
    body = assert_error(late, 422, "bad_input")
    assert late.json()["faults"][0]["field"] == "deadline"
    assert "still to come" in str(body["message"])


async def test_other_content_under_the_same_id_conflicts() -> None:
    """Another command under an id that exists is refused, names the id, and changes nothing."""
    house = House()
    async with house.client() as client:
        await client.post(JOBS, json={**HELLO, "job_id": "mine"})
        body = assert_error(
            await client.post(JOBS, json={"command": ["other"], "job_id": "mine"}), 409, "conflict"
        )
        other_user = await client.post(JOBS, json={**HELLO, "job_id": "mine", "user_id": "bob"})
    assert "mine" in str(body["error"])
    assert other_user.status_code == 201
    assert house.jobs["0", "mine"].spec.command == ("echo", "hello")


async def test_fifty_equal_submissions_at_once_are_one_job() -> None:
    """Equal submissions that race leave exactly one job and get equal answers."""
    house = House()
    async with house.client() as client:
        answers = await asyncio.gather(
            *(client.post(JOBS, json={**HELLO, "job_id": "mine"}) for _ in range(50))
        )
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1
    assert len(house.jobs) == 1


async def test_idempotency_key_is_the_job() -> None:
    """Without a job id, the same key is the same job; the id is made from the key."""
    house = House()
    headers = {"Idempotency-Key": "order 66"}
    async with house.client() as client:
        first = await client.post(JOBS, json=HELLO, headers=headers)
        again = await client.post(JOBS, json=HELLO, headers=headers)
        other = await client.post(JOBS, json={"command": ["x"]}, headers=headers)
        named = await client.post(JOBS, json={**HELLO, "job_id": "mine"}, headers=headers)
        empty = await client.post(JOBS, json=HELLO, headers={"Idempotency-Key": ""})
    assert first.json() == again.json()
    assert [answer.headers.get("Zen-Repeat") for answer in (first, again)] == [None, "true"]
    assert first.json()["job_id"] == "k-" + hashlib.sha256(b"order 66").hexdigest()[:24]
    assert 'Idempotency-Key "order 66" was used before with other content' in str(
        assert_error(other, 409, "conflict")["error"]
    )
    assert named.json()["job_id"] == "mine"
    assert "Idempotency-Key" in str(assert_error(empty, 422, "bad_input")["error"])


async def test_taken_fresh_id_is_thrown_again() -> None:
    """If the dice give an id that exists, the submission gets another one, not a conflict."""
    house = House()
    services = house.services()
    first = await services.submissions.submit(HELLO, idempotency_key=None)
    house.ids.throw_again()
    second = await services.submissions.submit({"command": ["b"]}, idempotency_key=None)
    assert first.job_id != second.job_id
    assert len(house.jobs) == 2


async def test_refusal_without_a_rival_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the store refuses a job that nobody had submitted, the caller is not told to change it."""

    async def refuse(batch: AtomicBatch) -> CommitRefusal | None:
        return CommitRefusal(RefusalKind.UNSTORABLE, "unstorable")

    house = House()
    monkeypatch.setattr(house.store, "write", refuse)
    async with house.client() as client:
        answers = [
            await client.post(JOBS, json=HELLO),
            await client.post(JOBS, json={**HELLO, "job_id": "mine"}),
        ]
    for answer in answers:
        assert_error(answer, 500, "internal")


async def test_get_has_every_field_of_a_job() -> None:
    """A running job shows its VM, slots, times and both vocabularies."""
    house = House()
    request = {**HELLO, "job_id": "mine", "gpu_count": 2, "labels": {"team": "a"}}
    async with house.client() as client:
        await client.post(JOBS, json=request)
        house.write(PendingReason(house.jobs["0", "mine"].uid, "no idle VM"))
        waiting = (await client.get(f"{JOBS}/mine")).json()
        house.move("mine", *TO_RUNNING)
        running = (await client.get(f"{JOBS}/mine")).json()
    assert (waiting["state"], waiting["status"], waiting["vm"]) == ("pending", "QUEUED", None)
    assert waiting["submitted_at"] == "2026-01-31T12:00:00.000Z"
    assert waiting["why"] == "no idle VM"
    assert waiting["gpu_type"] == "a100-40gb"
    assert (running["state"], running["status"], running["attempt"]) == ("running", "RUNNING", 1)
    assert running["vm"] == {
        "name": "vm-1",
        "region": "us-central1",
        "zone": "us-central1-a",
        "slots": [0, 1],
    }
    assert running["retries"] == {"failures": 0, "retries": 0, "losses": 0, "preemptions": 0}


async def test_list_filters_and_pages() -> None:
    """Filters hold together, pages follow each other without gap or repeat."""
    house = House()
    async with house.client() as client:
        for number in range(5):
            request = {**HELLO, "job_id": f"j{number}", "labels": {"n": str(number), "all": "yes"}}
            await client.post(JOBS, json={**request, "user_id": "ada" if number else "bob"})
        house.move("j3", *TO_RUNNING)
        found = []
        token = None
        while True:
            query = f"page_size=2&label=all=yes&page_token={token or ''}"
            page = (await client.get(f"{JOBS}?{query}")).json()
            found += [job["job_id"] for job in page["jobs"]]
            assert page["total"] == 5
            token = page["next_page_token"]
            if token is None:
                break
        assert found == ["j4", "j3", "j2", "j1", "j0"]

        async def ids(query: str) -> list[str]:
            answer = await client.get(f"{JOBS}?{query}")
            assert answer.status_code == 200, answer.text
            return [job["job_id"] for job in answer.json()["jobs"]]

        assert await ids("user_id=bob") == ["j0"]
        assert await ids("state=running") == ["j3"]
        assert await ids("status=running&status=QUEUED&user_id=ada") == ["j4", "j3", "j2", "j1"]
        assert await ids("label=n=2&label=all=yes") == ["j2"]
        assert await ids("label=n=2&label=all=no") == []
        assert await ids("cluster=8xh100-80gb") == []
        assert await ids("page_token=") == ["j4", "j3", "j2", "j1", "j0"]


async def test_events_and_attempts_page() -> None:
    """History comes oldest first, and `next_after` leads through all of it."""
    house = House()
    async with house.client() as client:
        await client.post(JOBS, json={**HELLO, "job_id": "mine"})
        await client.post(f"{JOBS}/mine/stop")
        first = (await client.get(f"{JOBS}/mine/events?page_size=1")).json()
        rest = (await client.get(f"{JOBS}/mine/events?after={first['next_after']}")).json()
        attempts = (await client.get(f"{JOBS}/mine/attempts")).json()
    assert [(e["event"], e["from"], e["to"]) for e in first["events"]] == [
        ("submitted", None, "QUEUED")
    ]
    assert [(e["event"], e["from"], e["to"]) for e in rest["events"]] == [
        ("stop_asked", "QUEUED", "CANCELLED")
    ]
    assert rest["next_after"] is None
    assert attempts == {"attempts": []}


async def test_waits_are_told() -> None:
    """What the job met while it waited, also when it has ended."""
    house = House()
    async with house.client() as client:
        await client.post(JOBS, json={**HELLO, "job_id": "mine"})
        uid = house.jobs["0", "mine"].uid
        house.write(WaitNote(uid, WaitKind.REFUSAL, "us-east1", "stockout: none", NOW, 3))
        await client.post(f"{JOBS}/mine/stop")
        (met,) = (await client.get(f"{JOBS}/mine/waits")).json()["waits"]
        missing = await client.get(f"{JOBS}/nobody/waits")
    assert (met["kind"], met["region"], met["count"]) == ("refusal", "us-east1", 3)
    assert met["first_at"] == met["last_at"]
    assert missing.status_code == 404


async def test_stopping_a_waiting_job_cancels_it() -> None:
    """A job without a VM is CANCELLED at once, and nobody is sent a message."""
    house = House()
    async with house.client() as client:
        await client.post(JOBS, json={**HELLO, "job_id": "mine"})
        answer = await client.delete(f"{JOBS}/mine")
        again = await client.delete(f"{JOBS}/mine")
    assert (answer.status_code, again.status_code) == (200, 200)
    assert answer.json()["status"] == "cancelled"
    assert again.json()["status"] == "cancelled"
    assert again.json()["message"].startswith("already cancelled")
    assert house.sent == []


async def test_stopping_a_running_job_tells_its_vm() -> None:
    """A job with a lease is STOPPING, and its VM is told in the same atomic batch, once."""
    house = House()
    async with house.client() as client:
        await client.post(JOBS, json={**HELLO, "job_id": "mine", "stop_grace_s": 5})
        house.move("mine", *TO_RUNNING)
        answer = await client.post(f"{JOBS}/mine/stop", json={"reason": "wrong data"})
        again = await client.post(f"{JOBS}/mine/stop")
    assert (answer.status_code, answer.json()["status"]) == (202, "stopping")
    assert (again.status_code, again.json()["status"]) == (202, "stopping")
    (message,) = house.sent
    assert message.attributes["vm_name"] == message.ordering_key == "vm-1"
    assert message.attributes["kind"] == "stop"
    body = json.loads(message.body)
    assert (body["job_id"], body["lease_id"], body["attempt"]) == ("mine", "lease1", 1)
    assert body["grace_s"] == 5
    assert "wrong data" in body["reason"]


async def test_v1_vm_is_told_in_its_own_words() -> None:
    """On a v1 cluster the stop goes to the v1 topic."""
    house = House()
    house.clusters = tuple(replace(spec, worker="v1") for spec in house.clusters)
    async with house.client() as client:
        await client.post(JOBS, json={**HELLO, "job_id": "mine", "workflow": "train"})
        house.move("mine", *TO_RUNNING)
        await client.post(f"{JOBS}/mine/stop")
    (message,) = house.sent
    assert message.topic == "pipeline-zen-jobs-stop"
    assert json.loads(message.body) == {"action": "stop", "job_id": "mine"}


async def test_the_timeline_says_who_stopped_a_job() -> None:
    """Who it was comes from the key; a key that may speak for others says for whom. Both are fields
    of the event too, beside the program that asked."""
    house = House()
    cases: tuple[tuple[str, dict[str, str] | None, str], ...] = (
        ("", {"by": "ada@laptop", "reason": "wrong data"}, "owner on behalf of ada@laptop"),
        ("?user_id=ada&tenant_id=default", {}, "owner on behalf of ada"),
        ("?tenant_id=default", None, "owner"),
    )
    async with house.client() as client:
        for number, (query, body, who) in enumerate(cases):
            name = f"j{number}"
            await client.post(JOBS, json={**HELLO, "job_id": name, "user_id": "ada"})
            agent = {"User-Agent": "curl/8.5.0"}
            await client.post(f"{JOBS}/{name}/stop{query}", json=body, headers=agent)
            job = house.jobs["ada", name]
            assert job.reason.startswith(f"stopped by {who}")
            told = house.timeline(job)[-1].data["stopped_by"]
            assert isinstance(told, dict)
            assert told["client"] == "curl/8.5.0"
            assert told["principal"] == "key:owner0000000"
        assert house.jobs["ada", "j0"].reason.endswith(": wrong data")
        long = await client.post(f"{JOBS}/j0/stop", json={"by": "x" * 200})
    assert_error(long, 422, "bad_input")


async def test_stop_looks_again_when_the_job_moved() -> None:
    """A stop that loses a race is tried on the job as it is now."""
    house = House()
    async with house.client() as client:
        await client.post(JOBS, json={**HELLO, "job_id": "mine"})
        job = house.jobs["0", "mine"]
        house.races = [advance(job, JobEvent.ADMITTED, NOW, RULES)]
        answer = await client.delete(f"{JOBS}/mine")
    assert answer.json()["status"] == "cancelled"
    assert house.jobs["0", "mine"].version == 3


async def test_stop_gives_up_after_a_bounded_number_of_races() -> None:
    """A job that changes under every try is a conflict, not an endless loop."""
    house = House()
    async with house.client() as client:
        await client.post(JOBS, json={**HELLO, "job_id": "mine"})
        job = house.jobs["0", "mine"]
        for cycle in range(5):
            event = JobEvent.WITHDRAWN if cycle % 2 else JobEvent.ADMITTED
            job = advance(job, event, NOW, RULES)
            house.races.append(job)
        assert_error(await client.delete(f"{JOBS}/mine"), 409, "conflict")
    assert not house.races


async def test_unknown_and_ambiguous_jobs() -> None:
    """No such job is 404; an id of several users is 409 until the user is named."""
    house = House()
    async with house.client() as client:
        for user in ("ada", "bob"):
            await client.post(JOBS, json={**HELLO, "job_id": "mine", "user_id": user})
        assert_error(await client.get(f"{JOBS}/nobody"), 404, "not_found")
        for path in ("", "/events", "/attempts"):
            assert_error(await client.get(f"{JOBS}/mine{path}"), 409, "ambiguous")
            named = await client.get(f"{JOBS}/mine{path}?user_id=ada")
            assert named.status_code == 200
        assert_error(await client.delete(f"{JOBS}/mine"), 409, "ambiguous")
        assert (await client.delete(f"{JOBS}/mine?user_id=bob")).status_code == 200
    assert house.jobs["ada", "mine"].status is JobStatus.QUEUED


def test_every_status_has_one_state() -> None:
    """The vocabulary of multi-tenant clients covers all statuses, and each state means some."""
    assert set(STATES) == set(JobStatus)
    assert all(statuses_of(state) for state in JobState)
    assert statuses_of(JobState.PENDING) == {JobStatus.QUEUED, JobStatus.PROVISIONING}
    assert statuses_of(JobState.RUNNING) == {JobStatus.RUNNING, JobStatus.STOPPING}
    assert statuses_of(JobState.SCHEDULED) == {JobStatus.ASSIGNED, JobStatus.STARTING}


async def test_dry_run_stores_nothing_and_shows_all_candidates() -> None:
    """Prices, open regions, chance and time of each cluster that fits; what needs consent is there
    with what it needs, also when the job would be refused."""
    house = House()
    async with house.client() as client:
        fits = await client.post(f"{JOBS}?dry_run=true", json={**HELLO, "gpu_type": "l4"})
        larger = {**HELLO, "gpu_type": "a100-40gb", "gpu_count": 3}
        refused = await client.post(f"{JOBS}?dry_run=true", json=larger)
        wrong = await client.post(f"{JOBS}?dry_run=true", json={**HELLO, "gpu_type": "none"})
    assert (fits.status_code, refused.status_code, wrong.status_code) == (200, 200, 422)
    (row,) = fits.json()["candidates"]
    assert (row["cluster"], row["chosen"], row["needs"]) == ("1xl4", True, [])
    assert (row["usd_per_hour"], row["usd_per_hour_max"], row["spot"]) == (0.7, 1.7, False)
    assert (row["regions"], row["regions_open"]) == (2, 2)
    assert 0 < row["success_probability"] <= 1
    assert (row["eta_s"], row["eta_based_on"]) == (136.0, "a new VM")
    assert refused.json()["cluster"] is None
    assert "--allow-larger" in refused.json()["message"]
    assert [r["needs"] for r in refused.json()["candidates"]] == [["allow_larger"]]
    assert house.jobs == {}


async def test_dry_run_of_a_job_without_gpus_reads_its_own_record() -> None:
    """What the same machine type with GPUs delivered says nothing about it."""
    house = House()
    cpu = next(cluster for cluster in CLUSTERS if not cluster.gpus)
    places = [(r.region, "", cpu.offering, cpu.spot) for r in cpu.regions]
    body = {**HELLO, "gpu_count": 0}
    chances = []
    async with house.client() as client:
        for last in (SupplyOutcome.HIT, SupplyOutcome.MISS):
            seen = [
                SupplyHistory(*place, updated_at=NOW, last=last, last_at=NOW) for place in places
            ]
            house.write(*map(PutSupplyHistory, seen))
            answer = await client.post(f"{JOBS}?dry_run=true", json=body)
            chances.append(answer.json()["candidates"][0]["success_probability"])
    assert chances[0] > chances[1]


async def test_confirmed_price_is_a_number() -> None:
    """Anything else is refused by name."""
    async with House().client() as client:
        answer = await client.post(f"{JOBS}?confirmed_usd_per_hour=lots", json=HELLO)
    assert (answer.status_code, answer.json()["faults"][0]["field"]) == (
        422,
        "confirmed_usd_per_hour",
    )
