"""Every message between us and a v1 worker, literally, and which words go to whom."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from core.job_fields import WorkerSpec
from core.messages import (
    Control,
    DrainVm,
    Heartbeat,
    HeartbeatStatus,
    InMessage,
    OutMessage,
    StartJob,
    StopJob,
)
from core.names import Names
from messaging.codec import BadMessage, decode_heartbeat, decode_v1_order, encode_for

NAMES = Names()
V1 = frozenset({"1xl4"})
VM = "pipeline-zen-jobs-1xl4-us-central1-vm-x7k2"
SPOT = "pipeline-zen-jobs-1xl4-spot-us-central1-vm-x7k2"


def arrived(body: bytes) -> InMessage:
    return InMessage("ack", "m-1", datetime(2026, 1, 1, tzinfo=UTC), body)


def start(cluster: str = "1xl4") -> StartJob:
    spec = WorkerSpec("j-1", "ada", workflow="train", workflow_args={"lr": 0.1}, gpu_type="l4")
    return StartJob(VM, "", spec, cluster, "us-central1", 1, "feedbeef", (0,))


def stop(vm_name: str = VM) -> StopJob:
    return StopJob(vm_name, "v1", "j-1", "ada", 1, "feedbeef", 60.0, "stopped by its owner")


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (word, HeartbeatStatus(word))
        for word in ("FOUND_VM", "RUNNING", "STOPPED", "COMPLETED", "FAILED")
    ]
    + [(f"wf-train-load-{end}", f"wf-train-load-{end}") for end in ("start", "error", "total")],
)
def test_every_word_of_a_v1_worker(status: str, meaning: HeartbeatStatus | str) -> None:
    """Four fields, whatever it says; none of them proves a lease."""
    body = {"job_id": "j-1", "user_id": "ada", "status": status, "vm_name": VM}
    heartbeat = decode_heartbeat(arrived(json.dumps(body).encode()))
    assert heartbeat == Heartbeat(meaning, VM, job_id="j-1", user_id="ada", version=1)


def test_start_and_stop_go_out_in_v1s_words() -> None:
    """To their topics, with the attribute that subscriptions filter by."""
    assert encode_for(start(), NAMES, V1) == OutMessage(
        "pipeline-zen-jobs-start",
        b'{"job_id":"j-1","user_id":"ada","workflow":"train",'
        b'"args":{"lr":0.1,"job_id":"j-1","user_id":"ada"},"gpu_type":"l4","num_gpus":1,'
        b'"keep_alive":false,"gcp":{"keep_alive":false,"cluster":"1xl4"},"attempt":1,"lease_id":"feedbeef","spec_version":1}',
        {"cluster": "1xl4"},
    )
    assert encode_for(stop(), NAMES, V1) == OutMessage(
        "pipeline-zen-jobs-stop",
        b'{"action":"stop","job_id":"j-1"}',
        {"job_id": "j-1", "vm_name": VM},
    )


@pytest.mark.parametrize(
    "message", [start("2xl4"), stop(SPOT), stop("node-1"), DrainVm(VM, "n", "why")]
)
def test_all_else_goes_by_control(message: Control) -> None:
    """Also to a cluster whose name begins with that of a v1 cluster, and to machines of a pool."""
    assert encode_for(message, NAMES, V1).topic == NAMES.control_topic


def test_what_is_out_is_known_again() -> None:
    """A start by the lease that rides along, a stop by its job."""
    out = decode_v1_order(arrived(encode_for(start(), NAMES, V1).body))
    assert (out.action, out.job_id, out.lease_id) == ("start", "j-1", "feedbeef")
    end = decode_v1_order(arrived(encode_for(stop(), NAMES, V1).body))
    assert (end.action, end.job_id, end.lease_id) == ("stop", "j-1", "")
    with pytest.raises(BadMessage, match="job_id"):
        decode_v1_order(arrived(b"{}"))
