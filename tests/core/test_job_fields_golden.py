"""The forms of a job that others hold: content hashes, stored documents, start messages, REST JSON.

`golden/jobs.json` was written by the version that is in the field. A new field may appear beside
what is there, never change it: a repeated submission must keep its hash, a worker of an older
version must read a start, an older database its documents.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from core.cost import CostKind
from core.job import E, Job, Membership, Rules
from core.job_fields import JobSpec, worker_spec
from core.job_steps import EventFacts, advance, new_job
from core.members import member_spec, members_of
from core.messages import InMessage, OutMessage, Peer, Size, StartJob
from core.names import Names
from core.reads import JobRow, Worked
from core.submission import content_hash, json_schema, parse_submission
from core.timers import Timers
from db.rows import JOB_WIDTH, job_of, to_json
from messaging.codec import decode_control, encode_control, encode_start_v1
from scheduler.api.http.openapi import document
from scheduler.api.routes.jobs import JobRoutes
from scheduler.api.services import Services
from scheduler.api.shapes import JobOut, job_out
from tests.builders import NOW, at, cluster, lease_on

GOLDEN = Path(__file__).parent / "golden" / "jobs.json"
UID = "018f0000-0000-7000-8000-000000000001"
SUBMISSIONS: dict[str, dict[str, object]] = {
    "smallest": {"command": ["true"]},
    "process": {
        "command": ["python3", "train.py"],
        "args": ["--lr", "0.1", "né"],
        "job_id": "train-7",
        "user_id": "ada",
        "tenant_id": "lab",
        "name": "first try",
        "priority": 900,
        "gpu_count": 2,
        "gpu_type": "A100-40GB",
        "gpu_memory_mb": 40960,
        "cpu_cores": 7.5,
        "memory_mb": 65536,
        "regions": ["us-central1", "us-east1"],
        "regions_denied": ["us-west1"],
        "max_usd_per_hour": 9.5,
        "spot": True,
        "allow_larger": False,
        "deadline": "2026-09-01T18:00:00+02:00",
        "environment": {"SEED": "7", "EMPTY": ""},
        "labels": {"team": "vision", "a/b": "c"},
        "max_runtime_minutes": 90,
        "queue_timeout_s": 3600,
        "stop_grace_s": 5,
        "retries": 3,
        "group": "sweep",
        "after": ["prepare", "clean:any"],
        "reschedulable": False,
        "working_dir": "/data",
    },
    "shell": {"command": ["echo $HOME"], "shell": True, "cluster": "0xcpu", "spot": False},
    "script": {
        "script": "set -e\necho 1\n",
        "gpu_types": ["H100-80gb", "l4"],
        "allow_larger": True,
    },
    "image": {
        "image": "registry.example:5000/team/train:v3",
        "args": ["--epochs", "3"],
        "cpu_cores": 4,
        "memory_mb": 16384,
        "working_dir": "/app",
        "gang_scheduling": True,
    },
    "image with a command": {"image": "python:3.12", "command": ["python3", "-V"], "gpu_count": 0},
    "v1 workflow": {
        "workflow": "torchtunewrapper",
        "workflow_args": {"lr": 0.1, "override_env": "dev", "deep": {"a": [1, None]}},
        "gpu_type": "l4",
        "keep_alive": True,
        "user_id": "42",
        "job_id": "v1-job",
    },
    "v1 workflow of any GPU": {"workflow": "echo", "command": ["x"], "job_id": "v1-any"},
    "array": {"command": ["true"], "array": "1-3, 9", "job_id": "sweep", "environment": {"A": "1"}},
    "gang": {"command": ["true"], "replicas": 3, "same_zone": True, "replace_members": True},
    "elastic": {
        "command": ["true"],
        "replicas": {"min": 2, "max": 8},
        "resize_signal": "USR2",
        "job_id": "bend",
    },
}


def spec_of(name: str) -> JobSpec:
    spec = parse_submission(SUBMISSIONS[name], Timers(), "fresh")
    return member_spec(spec, next(members_of(spec)))


def start_of(spec: JobSpec) -> StartJob:
    size = Size(7, spec.least, spec.replicas, (Peer(0, "10.0.0.1"), Peer(2, "10.0.0.3")))
    return StartJob(
        vm_name="pipeline-zen-jobs-1xl4-us-central1-vm-bcdf",
        boot_nonce="0123456789abcdef",
        spec=worker_spec(spec),
        cluster="1xl4",
        region="us-central1",
        attempt=3,
        lease_id="feedbeef",
        slots=(0, 1),
        rank=1 if spec.replicas > 1 else 0,
        world_size=spec.replicas,
        leader_address="10.0.0.1" if spec.replicas > 1 else "",
        resume=True,
        barrier=spec.replicas > 1,
        size=size if spec.elastic else None,
    )


def row_of(spec: JobSpec) -> JobRow:
    gang = Membership(UID, 0, spec.replicas) if spec.replicas > 1 else None
    job = replace(new_job(UID, spec, "1xl4", NOW, gang=gang), reason="cheapest")
    job = advance(job, E.ADMITTED, at(5), Rules())
    job = advance(job, E.PLACED, at(6), Rules(), facts=EventFacts(lease=lease_on("vm-1")))
    job = advance(job, E.STARTED, at(9), Rules())
    costs = {CostKind.USEFUL: 1.25, CostKind.BOOT: 0.125}
    last = Worked("vm-1", "us-central1", "us-central1-a", (0,))
    return JobRow(job, "", None, None, 12.0, costs, 1 if gang else None, last)


def told(message: OutMessage) -> dict[str, object]:
    return {
        "topic": message.topic,
        "body": message.body.decode(),
        "attributes": dict(message.attributes),
        "ordering_key": message.ordering_key,
    }


def stored_row(job: Job) -> tuple[object, ...]:
    """A row of `jobs` with this document, as JOB_SELECT lists it."""
    nothing: list[object] = [None] * JOB_WIDTH
    nothing[:10] = [UID, to_json(job.spec), "1xl4", "QUEUED", 1, NOW, NOW, NOW, None, 0]
    nothing[18:21], nothing[22], nothing[24] = [0, 0, 0], "", 0.0
    nothing[30:32], nothing[34:36] = ["", 0], [0.0, 0.0]
    return tuple(nothing)


def forms_of(name: str) -> dict[str, object]:
    spec = spec_of(name)
    start = start_of(spec)
    return {
        "content_hash": content_hash(parse_submission(SUBMISSIONS[name], Timers(), "fresh")),
        "stored": json.loads(to_json(spec)),
        "start": told(encode_control(start, Names())),
        "start_v1": told(encode_start_v1(start, Names())),
        "rest": json.loads(msgspec.json.encode(job_out(row_of(spec), None, cluster()))),
    }


def schemas() -> dict[str, Any]:
    described = cast("Any", document(JobRoutes(cast("Services", None)).endpoints(), "1"))
    listed = described["paths"]["/api/v1/jobs"]["get"]["parameters"]
    submission = cast("Any", json_schema()["properties"])
    # Their words may be improved: what a program relies on is pinned.
    return {
        "submission": {
            name: {key: value for key, value in words.items() if key != "description"}
            for name, words in submission.items()
        },
        "job": described["components"]["schemas"]["JobOut"]["properties"],
        "list": {word["name"]: word["schema"] for word in listed},
    }


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(GOLDEN.read_text()))


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_a_repeat_keeps_its_hash(golden: dict[str, Any], name: str) -> None:
    """A submission that is repeated after an upgrade is still the same one."""
    assert forms_of(name)["content_hash"] == golden[name]["content_hash"]


@pytest.mark.parametrize("kind", ["start", "start_v1"])
@pytest.mark.parametrize("name", SUBMISSIONS)
def test_start_messages_are_the_same_to_the_byte(
    golden: dict[str, Any], name: str, kind: str
) -> None:
    """Workers of an older version read them."""
    assert forms_of(name)[kind] == golden[name][kind]


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_a_worker_reads_what_the_scheduler_wrote(golden: dict[str, Any], name: str) -> None:
    """What is decoded and encoded again is the same message."""
    words = golden[name]["start"]
    came = InMessage("ack", "1", NOW, words["body"].encode(), words["attributes"])
    again = told(encode_control(decode_control(came), Names()))
    assert json.loads(str(again["body"])) == json.loads(words["body"])


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_documents_of_an_older_version_are_read(golden: dict[str, Any], name: str) -> None:
    """The document of today's version is the same; a newer field stands at its default."""
    stored = cast("dict[str, Any]", forms_of(name)["stored"])
    old = golden[name]["stored"]
    assert {key: stored[key] for key in old} == old
    spec = spec_of(name)
    row = list(stored_row(row_of(spec).job))
    row[1] = json.dumps(old)
    assert job_of(tuple(row), {}).spec == spec


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_callers_read_the_same_job(golden: dict[str, Any], name: str) -> None:
    """A newer field may stand beside; the members of a JSON object have no order."""
    rest = cast("dict[str, Any]", forms_of(name)["rest"])
    old = golden[name]["rest"]
    assert {key: value for key, value in rest.items() if key in old} == old


@pytest.mark.parametrize("part", ["submission", "job", "list"])
def test_schemas_keep_what_they_guarantee(golden: dict[str, Any], part: str) -> None:
    """OpenAPI of a submission, of a job, and of the filters of the list."""
    now, old = schemas()[part], golden["schemas"][part]
    assert {key: now[key] for key in old} == old


def test_every_field_of_a_submission_has_a_golden_value(golden: dict[str, Any]) -> None:
    """Else its forms are not pinned."""
    used = {key for data in SUBMISSIONS.values() for key in data}
    assert used >= set(golden["schemas"]["submission"])


def test_job_out_has_the_fields_of_its_schema() -> None:
    assert set(schemas()["job"]) == {field.encode_name for field in msgspec.structs.fields(JobOut)}
