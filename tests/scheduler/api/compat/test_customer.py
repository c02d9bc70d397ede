"""REST version 1, as the customer API calls it: every route, every word, every refusal."""

from __future__ import annotations

from datetime import timedelta

import pytest

from core.changes import PutRegionStatus, RaiseAlert, RegionStatus
from core.client_statuses import WORDS
from core.job import JobEvent, JobStatus
from core.job_fields import JobSpec
from core.job_steps import EventFacts, advance, new_job
from core.reads import Milestones, ServiceSummary, VmCount
from core.vm import VmState
from scheduler.api.compat.customer import STATUSES, TimestampsOut, v1_job
from scheduler.submission.other_systems import is_v1
from tests.scheduler.api.fakes import AS_JSON, LEASE, NOW, RULES, TO_RUNNING, House, assert_error

E = JobEvent
SUBMISSION = {
    "job_id": "5f0c9a7e-1111-4222-8333-444455556666",
    "workflow": "torchtunewrapper",
    "args": {
        "job_config_name": "llm_llama3_1_8b",
        "dataset_id": "gs://datasets/9/set.jsonl",
        "batch_size": 2,
        "shuffle": True,
        "num_gpus": 4,
        "override_env": "dev",
    },
    "gpu_type": "a100-40gb",
    "num_gpus": 4,
    "user_id": "98765432-9876-5432-9876-987654321098",
    "keep_alive": False,
}
JOB_ID, USER = str(SUBMISSION["job_id"]), str(SUBMISSION["user_id"])
SHORT = {"job_id": "a", "workflow": "echo", "args": {}, "gpu_type": "l4"}
BY_IDS = "/jobs/get_by_user_and_ids"
NULLS = dict.fromkeys(TimestampsOut.__struct_fields__)
CAME_BY = ("new", "wait_for_vm", "found_vm", "detached_vm", "running")


@pytest.mark.parametrize("path", ["/jobs/gcp", "/jobs"])
async def test_submission_is_answered_200_new(path: str) -> None:
    """200 and not 201: that client reads 201 as failure. It becomes one job of ours."""
    house = House()
    async with house.client() as client:
        answer = await client.post(path, json=SUBMISSION)
    assert (answer.status_code, answer.json()) == (200, {"job_id": JOB_ID, "status": "new"})
    (job,) = house.jobs.values()
    assert (job.spec.user_id, job.cluster, job.spec.gpu_count) == (USER, "4xa100-40gb", 4)
    assert (job.spec.workflow, job.spec.workflow_args) == ("torchtunewrapper", SUBMISSION["args"])
    assert (job.spec.tenant_id, job.spec.keep_alive) == ("default", False)


async def test_workflow_is_a_program_for_our_own_workers() -> None:
    """A cluster with our workers runs the program of the workflow's name, arguments as options;
    what is no text is JSON, what is null is left out."""
    house = House()
    args = {"name": "a b; c", "epochs": 3, "lora": True, "none": None, "list": [1, "x"]}
    async with house.client() as client:
        assert (await client.post("/jobs", json={**SHORT, "args": args})).status_code == 200
    (job,) = house.jobs.values()
    assert job.spec.command == (
        *("echo", "--name", "a b; c", "--epochs", "3", "--lora", "true", "--list", '[1, "x"]'),
        *("--job_id", "a", "--user_id", "0"),
    )
    assert not job.spec.shell


async def test_defaults() -> None:
    """Without them: user 0, one GPU, the VM is not kept; fields nobody knows are ignored."""
    house = House()
    async with house.client() as client:
        answer = await client.post("/jobs/gcp?trace=1", json={**SHORT, "colour": "blue"})
    assert (answer.status_code, answer.json()) == (200, {"job_id": "a", "status": "new"})
    (job,) = house.jobs.values()
    assert (job.v1_key, job.cluster, job.spec.keep_alive) == (("0", "a"), "1xl4", False)


async def test_repeat_is_refused_unless_it_has_a_key() -> None:
    """An id that exists is 422 on these routes; with an Idempotency-Key the same content is
    answered again and other content is not. Another user's id is another job."""
    house = House()
    key = {"Idempotency-Key": "once"}
    async with house.client() as client:
        assert (await client.post("/jobs", json=SHORT)).status_code == 200
        body = assert_error(await client.post("/jobs", json=SHORT), 422, "bad_input")
        assert "job a already exists" in str(body["message"])
        again = await client.post("/jobs", json=SHORT, headers=key)
        assert (again.status_code, again.json()) == (200, {"job_id": "a", "status": "new"})
        other = await client.post("/jobs", json={**SHORT, "workflow": "b"}, headers=key)
        assert assert_error(other, 422, "bad_input")["faults"] == [
            {
                "field": "job_id",
                "got": '"a"',
                "expected": "an id that user 0 has not used: job a already exists",
            }
        ]
        assert (await client.post("/jobs", json={**SHORT, "user_id": "b"})).status_code == 200
    assert sorted(house.jobs) == [("0", "a"), ("b", "a")]


async def test_unknown_cluster_is_422() -> None:
    """num_gpus × gpu_type must be a cluster; both fields are named, nothing is written."""
    house = House()
    async with house.client() as client:
        answer = await client.post("/jobs/gcp", json={**SHORT, "num_gpus": 3})
    body = assert_error(answer, 422, "bad_input")
    assert body["faults"] == [
        {
            "field": "gpu_type, num_gpus",
            "got": '"3xl4"',
            "expected": "nearest: 1xl4",
            "message": "unknown cluster 3xl4; did you mean 1xl4?",
        }
    ]
    assert not house.jobs


async def test_every_fault_is_named_in_v1_fields() -> None:
    """All faults at once, under the names that the client knows."""
    wrong = {"user_id": "a b", "args": [], "gpu_type": 4, "num_gpus": "4", "keep_alive": "no"}
    house = House()
    async with house.client() as client:
        body = assert_error(await client.post("/jobs", json=wrong), 422, "bad_input")
        not_json = await client.post("/jobs", content=b"{", headers={"content-type": "text/json"})
        assert_error(not_json, 415, "unsupported_media_type")
        assert_error(await client.post("/jobs/gcp", content=b"{", headers=AS_JSON), 400, "bad_json")
        assert_error(await client.post("/jobs/gcp", json=[1]), 422, "bad_input")
    faults = body["faults"]
    assert isinstance(faults, list)
    fields = {"job_id", "workflow", "user_id", "args", "gpu_type", "num_gpus", "keep_alive"}
    assert {fault["field"] for fault in faults} == fields
    assert not house.jobs


async def test_job_object() -> None:
    """The object has every key of the contract, times in whole seconds or null."""
    house = House()
    async with house.client() as client:
        await client.post("/jobs/gcp", json=SUBMISSION)
        house.move(JOB_ID, *TO_RUNNING)
        question = {"user_id": USER, "job_ids": [JOB_ID, "other", "../etc", JOB_ID]}
        answer = await client.post(BY_IDS, json=question)
    at = "2026-01-31T12:00:00Z"
    assert (answer.status_code, answer.json()) == (
        200,
        [
            {
                "job_id": JOB_ID,
                "user_id": USER,
                "created_at": at,
                "updated_at": at,
                "workflow": "torchtunewrapper",
                "args": SUBMISSION["args"],
                "status": "RUNNING",
                "provider": "GCP",
                "lum": None,
                "gcp": {
                    "keep_alive": False,
                    "cluster": "4xa100-40gb",
                    "status": "RUNNING",
                    "vm_name": "vm-1",
                    "region": "us-central1",
                },
                "timestamps": {**NULLS, **dict.fromkeys(CAME_BY, at)},
                "artifacts": {},
            }
        ],
    )


async def test_users_see_their_own_jobs_only() -> None:
    """The same id of another user is not told, and order is that of the question."""
    house = House()
    async with house.client() as client:
        for user, job in (("ada", "x"), ("bob", "x"), ("bob", "y"), ("ada", "z")):
            await client.post("/jobs", json={**SHORT, "job_id": job, "user_id": user})
        answer = await client.post(BY_IDS, json={"user_id": "ada", "job_ids": ["z", "y", "x"]})
        nobody = await client.post(BY_IDS, json={"user_id": "eve", "job_ids": ["x"]})
        nothing = await client.post(BY_IDS, json={"user_id": "ada", "job_ids": []})
    assert [(job["user_id"], job["job_id"]) for job in answer.json()] == [
        ("ada", "z"),
        ("ada", "x"),
    ]
    assert (nobody.json(), nothing.json()) == ([], [])


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ({"user_id": "ada"}, "job_ids"),
        ({"user_id": "ada", "job_ids": "a"}, "job_ids"),
        ({"user_id": "ada", "job_ids": [1]}, "job_ids"),
        ({"user_id": "ada", "job_ids": ["a"] * 1001}, "job_ids"),
        ({"user_id": 7, "job_ids": []}, "user_id"),
        ({"user_id": "a\0", "job_ids": []}, "user_id"),
        ([], "body"),
    ],
)
async def test_wrong_question_names_the_field(question: object, field: str) -> None:
    """A question that cannot be asked is refused with the field."""
    async with House().client() as client:
        body = assert_error(await client.post(BY_IDS, json=question), 422, "bad_input")
    assert [fault["field"] for fault in body["faults"]] == [field]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "path", ["/jobs/gcp/stop/a/ada", "/jobs/a/stop", "/jobs/a/stop?user_id=ada"]
)
async def test_stop(path: str) -> None:
    """200 stopping for a live job, again while it stops, 404 when it has ended or never was."""
    house = House()
    async with house.client() as client:
        body = assert_error(await client.post(path), 404, "not_found")
        assert body["detail"] == "job a not found or not running"
        await client.post("/jobs", json={**SHORT, "user_id": "ada"})
        job = house.move("a", *TO_RUNNING)
        for _ in range(2):
            answer = await client.post(path)
            assert (answer.status_code, answer.json()) == (200, {"status": "stopping"})
        assert house.jobs[job.v1_key].status is JobStatus.STOPPING
        house.move("a", E.STOPPED)
        assert_error(await client.post(path), 404, "not_found")


async def test_a_stop_names_the_user_of_the_route() -> None:
    """v1 routes know a user: a key that may speak for users stops on their behalf."""
    house = House()
    async with house.client() as client:
        await client.post("/jobs", json={**SHORT, "user_id": "ada"})
        await client.post("/jobs/gcp/stop/a/ada")
    job = house.jobs["ada", "a"]
    assert job.reason == "stopped by owner on behalf of ada"
    told = house.timeline(job)[-1].data["stopped_by"]
    assert isinstance(told, dict)
    assert (told["principal"], told["on_behalf_of"]) == ("key:owner0000000", "ada")


async def test_stop_reaches_the_right_user() -> None:
    """Another user's job of that id goes on; without a user the only live one is meant."""
    house = House()
    async with house.client() as client:
        for user in ("ada", "bob"):
            await client.post("/jobs", json={**SHORT, "user_id": user})
        assert_error(await client.post("/jobs/gcp/stop/a/eve"), 404, "not_found")
        assert_error(await client.post("/jobs/a/stop"), 409, "ambiguous")
        assert (await client.post("/jobs/gcp/stop/a/ada")).status_code == 200
        assert house.jobs["bob", "a"].status is JobStatus.QUEUED
        assert (await client.post("/jobs/a/stop")).status_code == 200
        assert_error(await client.post("/jobs/gcp/stop/a/a%20b"), 422, "bad_input")
        assert_error(await client.post("/jobs/gcp/stop/a%3Bb/ada"), 422, "bad_input")
    assert {job.status for job in house.jobs.values()} == {JobStatus.CANCELLED}


async def test_only_nine_statuses_ever_appear() -> None:
    """Whatever the state, the status is one of nine, and its time is told."""
    assert {words.v1 for words in WORDS.values()} == set(STATUSES)
    assert len(STATUSES) == 9
    house = House()
    async with house.client() as client:
        await client.post("/jobs", json=SHORT)
    (job,) = house.jobs.values()
    roads = [(), *(TO_RUNNING[:n] for n in range(1, 5)), (*TO_RUNNING, E.PREEMPTION_ASKED)]
    roads += [(*TO_RUNNING, E.STOP_ASKED), (*TO_RUNNING, E.STOP_ASKED, E.STOPPED)]
    roads += [(*TO_RUNNING, E.EXITED_OK), (*TO_RUNNING, E.EXITED_ERROR)]
    seen = set()
    for road in roads:
        at = job
        for event in road:
            at = advance(
                at, event, NOW, RULES, facts=EventFacts(lease=LEASE if event is E.PLACED else None)
            )
        told = v1_job(at, Milestones({}, "vm-old", "us-west1"), {})
        assert told.gcp is not None
        assert told.status == told.gcp.status
        assert getattr(told.timestamps, told.status.lower()) == "2026-01-31T12:00:00Z"
        assert told.gcp.vm_name == ("vm-1" if at.lease else "vm-old")
        seen.add(at.status)
    assert seen == set(JobStatus)


async def test_older_clients_name_the_cluster() -> None:
    """`cluster` stands for gpu_type and num_gpus where there is no gpu_type; faults name it."""
    house = House()
    body = {"job_id": "old", "workflow": "torchtunewrapper", "args": {"num_gpus": 4}}
    async with house.client() as client:
        answer = await client.post("/jobs", json={**body, "cluster": "4xA100-40gb"})
        assert answer.json() == {"job_id": "old", "status": "new"}
        wrong = await client.post("/jobs", json={**body, "job_id": "b", "cluster": "9xabacus"})
        text = str(assert_error(wrong, 422, "bad_input")["error"])
        assert_error(await client.post("/jobs", json={**body, "job_id": "c"}), 422, "bad_input")
    (job,) = house.jobs.values()
    assert (job.cluster, job.spec.gpu_type, job.spec.gpu_count) == ("4xa100-40gb", "a100-40gb", 4)
    assert text.startswith("cluster: ")
    assert "gpu_type" not in text


async def test_jobs_of_the_protocol() -> None:
    """POST /jobs/lum answers as /jobs/gcp does, with or without a GPU type; the job is told with
    `lum` and without `gcp`."""
    house = House()
    bare = {
        "job_id": "p",
        "user_id": "ada",
        "workflow": "torchtunewrapper",
        "args": {"num_gpus": "4"},
    }
    async with house.client() as client:
        for body in (bare, {**bare, "job_id": "q", "gpu_type": "l4", "num_gpus": 1}):
            answer = await client.post("/jobs/lum", json=body)
            assert (answer.status_code, answer.json()["status"]) == (200, "new")
        again = await client.post("/jobs/lum", json=bare)
        told = await client.post(BY_IDS, json={"user_id": "ada", "job_ids": ["p", "q"]})
    assert_error(again, 422, "bad_input")
    assert [job["provider"] for job in told.json()] == ["LUM", "LUM"]
    assert told.json()[0]["lum"] == {"tx_hash": None, "lum_id": None}
    assert told.json()[0]["gcp"] is None
    found = {job.spec.job_id: (job.cluster, job.spec.gpu_count) for job in house.jobs.values()}
    assert found == {"p": ("4xa100-40gb", 4), "q": ("1xl4", 1)}


def test_requeued_job_keeps_its_first_moment() -> None:
    """`new` is the submission, also for a job that came back to the queue."""
    later = NOW + timedelta(hours=1)
    job = advance(new_job("u", JobSpec("a"), "1xl4", NOW), E.ADMITTED, NOW, RULES)
    back = advance(job, E.WITHDRAWN, later, RULES)
    told = v1_job(back, Milestones({JobStatus.QUEUED: later, JobStatus.PROVISIONING: NOW}), {})
    assert (told.status, told.updated_at) == ("NEW", "2026-01-31T13:00:00Z")
    assert told.timestamps.new == told.timestamps.wait_for_vm == "2026-01-31T12:00:00Z"


async def test_status() -> None:
    """GET /status has every key of the contract, of both ages; VMs count once they are up."""
    house = House(clusters=(House().clusters[0],))
    jobs = {("1xl4", JobStatus.RUNNING): 2, ("1xl4", JobStatus.QUEUED): 3}
    jobs |= {("1xl4", JobStatus.SUCCEEDED): 4, ("1xl4", JobStatus.FAILED): 5}
    vms = (
        VmCount("1xl4", "us-central1", VmState.READY, True, 2),
        VmCount("1xl4", "us-central1", VmState.BOOTING, False, 1),
    )
    house.answer("summary", ServiceSummary(NOW, "me", 1, NOW, jobs, vms, None, 0, {}))
    house.write(PutRegionStatus(RegionStatus("1xl4", "us-central1", 3, "3 jobs wait", NOW)))
    house.write(RaiseAlert("stockout", "1xl4", "warning", "none to be had", NOW))
    async with house.client() as client:
        answer = await client.get("/status?verbose=1")
    at = "2026-01-31T12:00:00Z"
    assert (answer.status_code, answer.json()) == (
        200,
        {
            "overall_summary": {
                "total_jobs": 14,
                "running_jobs": 2,
                "pending_jobs": 3,
                "completed_jobs": 4,
                "failed_jobs": 5,
                "total_clusters": 1,
                "total_running_vms": 2,
                "total_target_vms": 3,
            },
            "clusters": [
                {
                    "name": "1xl4",
                    "cluster_summary": {
                        "total_regions": 2,
                        "active_regions": 1,
                        "total_running_vms": 2,
                        "total_target_vms": 3,
                        "jobs": {"running": 2, "pending": 3},
                    },
                    "regions": [
                        {
                            "region": "us-central1",
                            "mig_name": "pipeline-zen-jobs-1xl4-us-central1-mig",
                            "target_size": 3,
                            "current_size": 2,
                            "jobs": {"running": 0},
                        },
                        {
                            "region": "europe-west4",
                            "mig_name": "pipeline-zen-jobs-1xl4-europe-west4-mig",
                            "target_size": 0,
                            "current_size": 0,
                            "jobs": {"running": 0},
                        },
                    ],
                }
            ],
            "timestamp": at,
            "recent_activities": [
                {"timestamp": at, "activity": "stockout 1xl4: none to be had"},
                {"timestamp": at, "activity": "1xl4 in us-central1: 3 jobs wait"},
            ],
            "cluster_status": {"1xl4": {"us-central1": [3, 2], "europe-west4": [0, 0]}},
            "running_jobs": 2,
            "pending_jobs": 3,
            "scheduler_id": "me",
            "current_leader": "me",
            "is_leader": True,
            "redis_connected": True,
            "uptime_seconds": 0.0,
            "queue_size": 3,
            "claimed_jobs": 2,
            "job_stats": {
                "pending": 3,
                "assigned": 0,
                "running": 2,
                "succeeded": 4,
                "failed": 5,
                "aborted": 0,
            },
        },
    )


async def test_outage_is_503_in_the_same_shape() -> None:
    """A database that is away is said so, with the words that v1 clients read."""
    house = House()
    house.store.down = True
    async with house.client() as client:
        for path in ("/jobs", "/jobs/gcp"):
            assert_error(await client.post(path, json=SHORT), 503, "database_unavailable")
        assert_error(await client.get("/status"), 503, "database_unavailable")
        assert_error(await client.post("/jobs/a/stop"), 503, "database_unavailable")


def test_v1_bodies_are_told_from_ours() -> None:
    """An object of arguments or num_gpus is v1's; a list of arguments is ours."""
    assert is_v1(SHORT)
    assert is_v1({"num_gpus": 2})
    assert not is_v1({"command": ["a"], "args": ["b"]})
    assert not is_v1({"workflow": "x", "workflow_args": {}})
    assert not is_v1([])
