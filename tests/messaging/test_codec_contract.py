"""Every name and message that other parties rely on, literally."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from core.messages import (
    ContinueJob,
    Control,
    DrainVm,
    GpuReading,
    Heartbeat,
    HeartbeatStatus,
    InMessage,
    Peer,
    Progress,
    ResizeJob,
    Size,
    StopJob,
    VmReadings,
)
from core.names import BadName, Names
from messaging.codec import decode_control, decode_heartbeat, encode_control, encode_heartbeat
from messaging.topics import wanted_subscriptions, wanted_topics
from tests.scheduler.api.fakes import cluster

NAMES = Names()
NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
VM = "pipeline-zen-jobs-4xa100-40gb-us-central1-vm-x7k2"


def test_names() -> None:
    """Group, VM, template; a VM's name gives its cluster and region back, others are refused."""
    assert (
        NAMES.mig("4xa100-40gb", "us-central1") == "pipeline-zen-jobs-4xa100-40gb-us-central1-mig"
    )
    assert NAMES.vm("4xa100-40gb", "us-central1", "x7k2") == VM
    assert NAMES.template("4xa100-40gb", "v3") == "pipeline-zen-jobs-4xa100-40gb-v3-tpl"
    assert NAMES.parse_vm(VM) == ("4xa100-40gb", "us-central1")
    with pytest.raises(BadName, match="some-other-vm"):
        NAMES.parse_vm("some-other-vm")
    assert NAMES.control_subscription(VM, "n1") == f"pipeline-zen-jobs-control-{VM}-n1"


def test_topics_and_subscriptions() -> None:
    """Every topic, every lasting subscription with its topic, filter and retention."""
    prefix = "pipeline-zen-jobs"
    words = ("start", "stop", "heartbeats", "control", "submit", "submit-dead")
    assert set(wanted_topics(NAMES)) == {f"{prefix}-{word}" for word in words}
    v1 = replace(cluster("4xa100-40gb", 4, "a100-40gb", 14.7), worker="v1")
    found = {
        plan.name.removeprefix(f"{prefix}-"): (
            plan.topic.removeprefix(f"{prefix}-"),
            plan.filter,
            plan.dead_letter_topic.removeprefix(f"{prefix}-"),
        )
        for plan in wanted_subscriptions(NAMES, [v1])
    }
    only = 'attributes.cluster = "4xa100-40gb"'
    assert found == {
        "start-runner-4xa100-40gb": ("start", only, ""),
        "stop-runner": ("stop", "", ""),
        "heartbeats-scheduler": ("heartbeats", "", ""),
        "submit-scheduler": ("submit", "", "submit-dead"),
        "submit-dead-scheduler": ("submit-dead", "", ""),
    }


ORDER = {"job_id": "j", "user_id": "ada", "attempt": 2, "lease_id": "l"}


@pytest.mark.parametrize(
    ("control", "kind", "body"),
    [
        (
            StopJob(VM, "n1", "j", "ada", 2, "l", 30.0, "stopped by its owner"),
            "stop",
            {**ORDER, "grace_s": 30.0, "reason": "stopped by its owner"},
        ),
        (ContinueJob(VM, "n1", "j", "ada", 2, "l", 7), "continue", {**ORDER, "answers": 7}),
        (
            ResizeJob(
                *(VM, "n1", "j", "ada", 2, "l"),
                Size(9, 2, 8, (Peer(0, "10.0.0.1"), Peer(3, "10.0.0.4"))),
            ),
            "resize",
            {
                **ORDER,
                "size": {
                    "generation": 9,
                    "min": 2,
                    "max": 8,
                    "members": [
                        {"rank": 0, "address": "10.0.0.1"},
                        {"rank": 3, "address": "10.0.0.4"},
                    ],
                },
            },
        ),
        (DrainVm(VM, "n1", "idle"), "drain", {"reason": "idle"}),
    ],
)
def test_control(control: Control, kind: str, body: object) -> None:
    """Attributes, ordering key and body of stop, continue, resize, drain, there and back."""
    message = encode_control(control, NAMES)
    assert message.topic == "pipeline-zen-jobs-control"
    assert message.ordering_key == VM
    assert message.attributes == {"vm_name": VM, "kind": kind, "boot_nonce": "n1"}
    assert json.loads(message.body) == body
    came = InMessage("", "m", NOW, message.body, message.attributes)
    assert decode_control(came) == control


def test_heartbeat_v2() -> None:
    """All that the second version adds, there and back."""
    heartbeat = Heartbeat(
        status=HeartbeatStatus.RUNNING,
        vm_name=VM,
        job_id="j",
        user_id="ada",
        attempt=2,
        lease_id="l",
        seq=41,
        instance_id="123",
        boot_nonce="n1",
        zone="us-central1-a",
        exit_code=0,
        reason="r",
        progress=Progress(3.0, 10.0),
        checkpoint_step=2.0,
        readings=VmReadings((GpuReading(0, 0.9, 70.0, 1000.0, 1),)),
    )
    message = encode_heartbeat(heartbeat, NAMES)
    assert message.topic == "pipeline-zen-jobs-heartbeats"
    assert json.loads(message.body) == {
        "status": "RUNNING",
        "vm_name": VM,
        "job_id": "j",
        "user_id": "ada",
        "attempt": 2,
        "lease_id": "l",
        "seq": 41,
        "instance_id": "123",
        "boot_nonce": "n1",
        "zone": "us-central1-a",
        "exit_code": 0,
        "reason": "r",
        "progress": {"step": 3.0, "total": 10.0},
        "checkpoint": {"step": 2.0},
        "gpus": [{"index": 0, "util": 0.9, "temp_c": 70.0, "mem_used_mb": 1000.0, "ecc_errors": 1}],
    }
    came = InMessage("", "m", NOW, message.body, message.attributes)
    assert decode_heartbeat(came) == heartbeat


def test_fields_that_nobody_knows_are_ignored() -> None:
    """Older and newer parties live side by side."""
    body = {"job_id": "j", "status": "RUNNING", "vm_name": VM, "mood": "fine"}
    told = decode_heartbeat(InMessage("", "m", NOW, json.dumps(body).encode()))
    assert isinstance(told, Heartbeat)
    assert (told.version, told.user_id, told.status) == (1, "0", HeartbeatStatus.RUNNING)
