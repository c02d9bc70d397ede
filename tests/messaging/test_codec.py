"""The wire: exact v1 bytes, v2 shapes, and refusals that name the field."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from core.job_fields import WorkerSpec
from core.messages import (
    Canary,
    GpuReading,
    Heartbeat,
    HeartbeatStatus,
    OutMessage,
    Progress,
    StartJob,
    VmReadings,
)
from core.names import Names
from messaging import wire
from messaging.codec import (
    BadMessage,
    decode_control,
    decode_heartbeat,
    decode_submission,
    encode_canary,
    encode_control,
    encode_heartbeat,
    encode_start_v1,
    encode_stop_v1,
)
from tests.messaging.mail import arrived, raw

NAMES = Names()
VM = "pipeline-zen-jobs-2xa100-40gb-us-central1-vm-bcdf"
NONCE = "0123456789abcdef"


def start(spec: WorkerSpec, **changes: object) -> StartJob:
    """A start of the spec on two GPUs."""
    fields: dict[str, object] = {
        "vm_name": VM,
        "boot_nonce": NONCE,
        "spec": spec,
        "cluster": "2xa100-40gb",
        "region": "us-central1",
        "attempt": 3,
        "lease_id": "feedbeef",
        "slots": (0, 1),
    }
    return StartJob(**(fields | changes))  # type: ignore[arg-type]  # a table of test values


# --- v1, to the byte --------------------------------------------------------------------


def test_v1_start_to_the_byte() -> None:
    """A v1 start has the body that workers in the field read, with ours riding along."""
    spec = WorkerSpec(
        job_id="j-1",
        user_id="u-7",
        gpu_type="a100-40gb",
        gpu_count=2,
        workflow="torchtunewrapper",
        workflow_args={"model": "llama", "override_env": {"A": "b"}, "num_gpus": 9},
    )
    message = encode_start_v1(start(spec), NAMES)
    assert message == OutMessage(
        topic="pipeline-zen-jobs-start",
        body=(
            b'{"job_id":"j-1","user_id":"u-7","workflow":"torchtunewrapper",'
            b'"args":{"model":"llama","num_gpus":"2","job_id":"j-1","user_id":"u-7"},'
            b'"gpu_type":"a100-40gb","num_gpus":2,"keep_alive":false,"override_env":{"A":"b"},'
            b'"gcp":{"keep_alive":false,"cluster":"2xa100-40gb"},'
            b'"attempt":3,"lease_id":"feedbeef","spec_version":1}'
        ),
        attributes={"cluster": "2xa100-40gb"},
    )


def test_v1_start_of_another_workflow_has_no_num_gpus_in_args() -> None:
    """Only torchtunewrapper gets num_gpus among its arguments; the type comes from the cluster."""
    body = json.loads(
        encode_start_v1(start(WorkerSpec(job_id="j", workflow="echo", keep_alive=True)), NAMES).body
    )
    assert body == {
        "job_id": "j",
        "user_id": "0",
        "workflow": "echo",
        "args": {"job_id": "j", "user_id": "0"},
        "gpu_type": "a100-40gb",
        "num_gpus": 1,
        "keep_alive": True,
        "gcp": {"keep_alive": True, "cluster": "2xa100-40gb"},
        "attempt": 3,
        "lease_id": "feedbeef",
        "spec_version": 1,
    }


def test_v1_stop_to_the_byte() -> None:
    """A v1 stop says action and job_id; the attributes ride along."""
    assert encode_stop_v1("j-1", VM, NAMES) == OutMessage(
        topic="pipeline-zen-jobs-stop",
        body=b'{"action":"stop","job_id":"j-1"}',
        attributes={"job_id": "j-1", "vm_name": VM},
    )


def test_v1_heartbeat_without_user() -> None:
    """A missing user_id means "0"; fields nobody knows are ignored."""
    heartbeat = decode_heartbeat(
        raw({"job_id": "j", "status": "FOUND_VM", "vm_name": VM, "new": [1]})
    )
    assert heartbeat == Heartbeat(HeartbeatStatus.FOUND_VM, VM, job_id="j", user_id="0", version=1)


def test_v1_heartbeat_to_the_byte() -> None:
    """A v1 heartbeat that we write has exactly the four v1 fields."""
    heartbeat = Heartbeat(
        HeartbeatStatus.RUNNING, "vm-1", job_id="j", user_id="u", version=1, seq=4
    )
    assert encode_heartbeat(heartbeat, NAMES).body == (
        b'{"status":"RUNNING","vm_name":"vm-1","job_id":"j","user_id":"u"}'
    )


def test_v1_progress_note() -> None:
    """A wf- status stays text and keeps its times as a note."""
    heartbeat = decode_heartbeat(
        raw(
            {
                "job_id": "j",
                "user_id": "u",
                "status": "wf-torchtunewrapper-dataset-finish",
                "vm_name": VM,
                "timestamp": "2026-01-01T00:00:00Z",
                "elapsed_time_s": 12.5,
            }
        )
    )
    assert heartbeat == Heartbeat(
        "wf-torchtunewrapper-dataset-finish",
        VM,
        job_id="j",
        user_id="u",
        version=1,
        note={"timestamp": "2026-01-01T00:00:00Z", "elapsed_time_s": 12.5},
    )


# --- v2 ---------------------------------------------------------------------------------


def test_control_start_carries_the_v1_object_and_v2() -> None:
    """A v2 start is the job object, then lease, slots, environment and command."""
    spec = WorkerSpec(job_id="j", command=("echo", "hi"), environment={"A": "b"}, gpu_count=2)
    message = encode_control(start(spec, resume=True), NAMES)
    assert (message.topic, message.ordering_key) == (NAMES.control_topic, VM)
    assert message.attributes == {"vm_name": VM, "kind": "start", "boot_nonce": NONCE}
    assert json.loads(message.body) == {
        "job_id": "j",
        "user_id": "0",
        "workflow": "",
        "args": {},
        "gpu_type": None,
        "num_gpus": 2,
        "keep_alive": False,
        "attempt": 3,
        "lease_id": "feedbeef",
        "slots": [0, 1],
        "rank": 0,
        "world_size": 1,
        "leader_address": "",
        "env": {"A": "b"},
        "command": ["echo", "hi"],
        "shell": False,
        "tenant_id": "default",
        "cluster": "2xa100-40gb",
        "region": "us-central1",
        "stop_grace_s": 60.0,
        "max_runtime_s": 604800.0,
        "name": "",
        "resume": True,
        "barrier": False,
        "spec_version": 2,
    }


def test_image_reaches_the_worker() -> None:
    """What a container needs travels with its start; a process's start does not mention it."""
    spec = WorkerSpec("j", command=("a",), image="h.example/x:1", working_dir="/app", cpu_cores=1.5)
    order = start(replace(spec, memory_mb=512, keep_entrypoint=True))
    told = decode_control(arrived(encode_control(order, NAMES)))
    assert isinstance(told, StartJob)
    for name in ("image", "working_dir", "keep_entrypoint", "cpu_cores", "memory_mb"):
        assert getattr(told.spec, name) == getattr(order.spec, name)
    plain = json.loads(encode_control(start(WorkerSpec("j", command=("a",))), NAMES).body)
    assert not {"image", "working_dir", "memory_mb"} & set(plain)
    there = start(WorkerSpec("j", command=("a",), working_dir="/home/ada"))
    told = decode_control(arrived(encode_control(there, NAMES)))
    assert isinstance(told, StartJob)
    assert (told.spec.working_dir, told.spec.image) == ("/home/ada", None)


def test_canary_comes_back_as_itself() -> None:
    """The canary travels on the heartbeat topic and is told apart by its attribute."""
    message = encode_canary(Canary(term=4, seq=17), NAMES)
    assert message.topic == NAMES.heartbeat_topic
    assert decode_heartbeat(arrived(message)) == Canary(term=4, seq=17)


@pytest.mark.parametrize("status", ["READY", "DRAINED", "PREEMPTED"])
def test_vm_level_status_is_v2_without_a_job(status: str) -> None:
    """What a VM says of itself needs no job and is v2 by its status alone."""
    heartbeat = decode_heartbeat(raw({"status": status, "vm_name": VM}))
    assert heartbeat == Heartbeat(HeartbeatStatus(status), VM)


def test_heartbeat_with_values_json_cannot_hold_is_still_sent() -> None:
    """NaN, infinity, NUL and broken text are cleaned: a healthy VM must not fall silent."""
    heartbeat = Heartbeat(
        HeartbeatStatus.RUNNING,
        VM,
        job_id="j",
        attempt=1,
        lease_id="l",
        reason="bad\0name \udcff",
        progress=Progress(math.nan),
        checkpoint_step=math.inf,
        readings=VmReadings((GpuReading(0, util=math.nan, temp_c=60.0),)),
    )
    got = decode_heartbeat(arrived(encode_heartbeat(heartbeat, NAMES)))
    assert isinstance(got, Heartbeat)
    assert (got.reason, got.progress, got.checkpoint_step) == ("badname ?", None, None)
    assert got.readings.gpus == (GpuReading(0, util=0.0, temp_c=60.0),)


# --- refusals ---------------------------------------------------------------------------

GOOD = {"job_id": "j", "status": "RUNNING", "vm_name": VM}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\xff\xfe", ["body", "JSON"]),
        (b"{", ["body", "JSON"]),
        (b"", ["body", "nothing"]),
        (b'{"status":"\xff"}', ["body", "UTF-8"]),
        (b"[" * 50_000, ["body"]),
        (b'{"a":' * 40_000, ["body", "nested too deep"]),
        ([], ["body", "object"]),
        ({**GOOD, "status": "WALKING"}, ["status", "WALKING", "RUNNING"]),
        ({"job_id": "j", "status": "RUNNING"}, ["vm_name", "nothing"]),
        ({**GOOD, "vm_name": ""}, ["vm_name"]),
        ({"status": "RUNNING", "vm_name": VM}, ["job_id", "RUNNING"]),
        ({"status": "wf-a-b-start", "vm_name": VM}, ["job_id"]),
        ({**GOOD, "boot_nonce": "n"}, ["attempt"]),
        ({**GOOD, "attempt": 1}, ["lease_id"]),
        ({**GOOD, "attempt": "1"}, ["attempt", "int", "str"]),
        ({**GOOD, "attempt": -1}, ["attempt"]),
        ({**GOOD, "seq": 2**63}, ["seq"]),
        ({**GOOD, "gpus": [{"index": 0}, {"util": 3}]}, ["gpus", "index"]),
        ({**GOOD, "progress": {"total": 3}}, ["progress.step"]),
        ({**GOOD, "user_id": "a\0b"}, ["NUL"]),
        ({**GOOD, "reason": "x" * wire.HEARTBEAT_BYTES_MAX}, ["bytes", "at most"]),
    ],
)
def test_bad_heartbeat_names_the_field(body: object, words: list[str]) -> None:
    """A heartbeat that cannot be used says which field, what came and what was expected."""
    with pytest.raises(BadMessage) as caught:
        decode_heartbeat(raw(body))
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("attributes", "body", "word"),
    [
        ({}, {}, "attributes.vm_name"),
        ({"vm_name": VM, "kind": "start"}, {}, "attributes.boot_nonce"),
        ({"vm_name": VM, "boot_nonce": "n"}, {}, "attributes.kind"),
        ({"vm_name": VM, "boot_nonce": "n", "kind": "dance"}, {}, "dance"),
        ({"vm_name": VM, "boot_nonce": "n", "kind": "start"}, {"job_id": "j"}, "attempt"),
        ({"vm_name": VM, "boot_nonce": "n", "kind": "stop"}, {"job_id": 3}, "job_id"),
        ({"vm_name": VM, "boot_nonce": "n", "kind": "drain"}, {"reason": 3}, "reason"),
    ],
)
def test_bad_control_names_the_field(
    attributes: dict[str, str], body: dict[str, object], word: str
) -> None:
    """A control message that cannot be used says which field or attribute is wrong."""
    with pytest.raises(BadMessage, match=word):
        decode_control(raw(body, **attributes))


def test_start_that_cannot_be_json_is_refused_when_written() -> None:
    """Arguments that JSON cannot hold fail where they are written, not at the worker."""
    with pytest.raises(BadMessage, match="control start"):
        encode_control(start(WorkerSpec(job_id="j", command=("\ud800",))), NAMES)


def test_oversize_start_is_refused_when_written() -> None:
    """A start larger than the bus takes is refused with both sizes."""
    spec = WorkerSpec(job_id="j", environment={"A": "x" * wire.MESSAGE_BYTES_MAX})
    with pytest.raises(BadMessage, match=f"at most {wire.MESSAGE_BYTES_MAX}"):
        encode_control(start(spec), NAMES)


def test_submission_is_plain_json() -> None:
    """A submission comes out as plain objects; an escaped backslash before u0000 is no NUL."""
    body = {"command": ["python3", "-c", 'print("\\u0000")'], "labels": {"a": "b"}}
    assert decode_submission(raw(body)) == body


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"nul", b'{"name":"a\\u0000"}', b"\x00"])
def test_submission_that_is_no_object_is_refused(body: bytes) -> None:
    """A submission is a JSON object without NUL, or a BadMessage."""
    with pytest.raises(BadMessage):
        decode_submission(raw(body))
