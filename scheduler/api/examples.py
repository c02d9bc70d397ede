"""Examples for the documentation; a test holds each against the type it is an example of."""

from __future__ import annotations

import msgspec

from core.job_fields import SPEC_FIELDS

_VM = "pipeline-zen-jobs-2xa100-40gb-us-central1-vm-k7qx"

SUBMISSIONS: dict[str, object] = {
    "the least": {"command": ["python3", "-c", "print('hello')"]},
    "two GPUs of one type": {
        "command": ["python3", "-c", "print(42)"],
        "gpu_type": "a100-40gb",
        "gpu_count": 2,
        "name": "resnet",
        "labels": {"team": "vision"},
        "environment": {"WANDB_MODE": "offline"},
        "max_runtime_minutes": 240,
        "retries": 1,
    },
    "with an id of your own": {
        "job_id": "nightly-2026-01-31",
        "user_id": "u42",
        "tenant_id": "research",
        "command": ["make train && make report"],
        "shell": True,
        "cluster": "8xl4",
        "regions": ["us-central1"],
    },
    "elastic": {
        "command": ["sh", "-c", "echo $ZEN_RANK of $ZEN_WORLD_SIZE"],
        "gpu_type": "h100-80gb",
        "gpu_count": 8,
        "replicas": {"min": 2, "max": 8},
    },
    "a UnifiedJob manifest": {
        "apiVersion": "ai.centauruscloud.io/v1alpha1",
        "kind": "UnifiedJob",
        "metadata": {"name": "mnist"},
        "jobType": "EPJob",
        "spec": {
            "jobSpec": {"unifiedArgs": ["train.py", "--epochs", "10"]},
            "replicaSpec": {"minReplicas": 1, "maxReplicas": 4},
            "reschedulable": True,
        },
    },
}

ACCEPTED = {
    "job_id": "j-7k2m9qw0xc",
    "user_id": "0",
    "status": "submitted",
    "message": "queued for cluster 2xa100-40gb (a2-highgpu-2g, standard VMs): exact match: "
    "2 × A100-40GB per VM, $7.35/h",
    "cluster": "2xa100-40gb",
    "jobs": 1,
    "starvation_bound_s": 1281600.0,
    "machine_type": "a2-highgpu-2g",
    "gpus_per_vm": 2,
    "spot": False,
    "usd_per_hour": 7.35,
    "usd_per_hour_max": 7.35,
    "vms": 1,
    "total_usd_per_hour": 7.35,
}

DRY_RUN = {
    "cluster": "1xl4",
    "message": "cluster 1xl4 (g2-standard-4, standard VMs): exact match: 1 × L4 per VM, $0.71/h",
    "confirm": None,
    "candidates": [
        {
            "cluster": "1xl4",
            "machine_type": "g2-standard-4",
            "gpus_per_vm": 1,
            "spot": False,
            "usd_per_hour": 0.7104,
            "usd_per_hour_max": 0.7104,
            "vms": 1,
            "total_usd_per_hour": 0.7104,
            "regions": 6,
            "regions_open": 5,
            "success_probability": 0.91,
            "eta_s": 96.0,
            "eta_based_on": "a new VM",
            "chosen": True,
            "needs": [],
            "drained": False,
        }
    ],
}

GROUP = {
    "group": "sweep",
    "user_id": "0",
    "total": 1000,
    "done": False,
    "succeeded": False,
    "counts": {"QUEUED": 960, "RUNNING": 8, "SUCCEEDED": 31, "FAILED": 1},
    "message": "1000 jobs: 960 QUEUED, 8 RUNNING, 31 SUCCEEDED, 1 FAILED",
}

GROUP_STOPPED = {
    "group": "sweep",
    "user_id": "0",
    "cancelled": 960,
    "stopping": 8,
    "message": "960 cancelled, 8 stopping",
}

GROUP_ENDED = {
    **GROUP_STOPPED,
    "cancelled": 0,
    "stopping": 0,
    "message": "nothing to stop: its jobs have ended, or are being stopped already",
}

STOPPED = {
    "job_id": "j-7k2m9qw0xc",
    "status": "stopping",
    "message": f"stopping on {_VM}: it has 60 s after SIGTERM, then it is killed",
}

ALREADY_ENDED = {
    "job_id": "j-7k2m9qw0xc",
    "status": "succeeded",
    "message": "already succeeded: exit code 0",
}

_UNSAID = {field.name: msgspec.to_builtins(field.default) for field in SPEC_FIELDS if field.shown}
JOB: dict[str, object] = {
    **_UNSAID,
    "job_id": "j-7k2m9qw0xc",
    "id": "j-7k2m9qw0xc",
    "user_id": "0",
    "tenant_id": "default",
    "name": "resnet",
    "state": "running",
    "status": "RUNNING",
    "cluster": "2xa100-40gb",
    "gpu_type": "a100-40gb",
    "gpu_types": ["a100-40gb"],
    "gpu_count": 2,
    "gpu_memory_mb": 0,
    "cpu_cores": 8.0,
    "memory_mb": 0,
    "priority": 500,
    "command": ["python3", "-c", "print(42)"],
    "script": "",
    "image": None,
    "environment": {"SEED": "7"},
    "gang_scheduling": False,
    "max_runtime_minutes": 240.0,
    "labels": {"team": "vision"},
    "group": None,
    "after": [],
    "replicas": 1,
    "replicas_min": 1,
    "reschedulable": True,
    "regions": ["us-central1", "us-west1"],
    "regions_denied": [],
    "max_usd_per_hour": 8.0,
    "spot": False,
    "allow_larger": False,
    "on_spot": False,
    "usd_per_hour": 7.35,
    "usd_per_hour_max": 7.35,
    "deadline": "2026-02-01T08:00:00.000Z",
    "rank": 0,
    "members_running": None,
    "attempt": 1,
    "vm": {"name": _VM, "region": "us-central1", "zone": "us-central1-a", "slots": [0, 1]},
    "last_vm": {"name": _VM, "region": "us-central1", "zone": "us-central1-a", "slots": [0, 1]},
    "node_name": _VM,
    "allocated_gpus": [f"{_VM}/0", f"{_VM}/1"],
    "message": "started",
    "submitted_at": "2026-01-31T12:00:00.000Z",
    "queued_since": "2026-01-31T12:00:00.000Z",
    "started_at": "2026-01-31T12:01:30.250Z",
    "ended_at": None,
    "deadline_at": "2026-01-31T16:01:30.250Z",
    "due_at": None,
    "starts_by": None,
    "retry_at": None,
    "exit_code": None,
    "reason": "started",
    "why": "",
    "position": None,
    "queue_position": 0,
    "eta": None,
    "progress": {"step": 120.0, "total": 1000.0},
    "checkpoint_step": 100.0,
    "cost_usd": 1.25,
    "useful_usd": 1.0,
    "wasted_usd": 0.25,
    "cost_kinds": {
        "useful": 1.0,
        "boot": 0.1,
        "idle": 0.15,
        "hedge": 0.0,
        "preempted": 0.0,
        "lost": 0.0,
    },
    "retries": {"failures": 0, "retries": 1, "losses": 0, "preemptions": 0},
}

JOBS = {"jobs": [JOB], "total": 1, "next_page_token": None}

EVENTS = {
    "events": [
        {
            "seq": 1,
            "at": "2026-01-31T12:00:00.000Z",
            "event": "submitted",
            "from": None,
            "to": "QUEUED",
            "attempt": 0,
            "reason": "exact match: 2 × A100-40GB per VM, $7.35/h",
            "vm_name": None,
            "region": None,
            "data": {"cluster": "2xa100-40gb"},
        }
    ],
    "next_after": None,
}

WAITS = {
    "waits": [
        {
            "kind": "refusal",
            "region": "us-central1",
            "reason": "stockout: the zone does not have enough resources",
            "first_at": "2026-01-31T12:00:20.000Z",
            "last_at": "2026-01-31T12:00:50.000Z",
            "count": 2,
        }
    ]
}

ATTEMPTS = {
    "attempts": [
        {
            "attempt": 1,
            "lease_id": "6f1d0c3b5a7e9812",
            "vm_name": _VM,
            "region": "us-central1",
            "zone": "us-central1-a",
            "slots": [0, 1],
            "assigned_at": "2026-01-31T12:01:29.000Z",
            "started_at": "2026-01-31T12:01:30.250Z",
            "ended_at": None,
            "outcome": "",
            "exit_code": None,
            "usd_per_hour": 7.35,
            "checkpoint_at": None,
        }
    ]
}

CLUSTERS = {
    "clusters": [
        {
            "name": "2xa100-40gb",
            "gpu_type": "a100-40gb",
            "gpus": 2,
            "machine_type": "a2-highgpu-2g",
            "spot": False,
            "share": False,
            "drain": False,
            "vm_max": 8,
            "vm_min": 0,
            "worker": "v2",
            "jobs": {
                "queued": 0,
                "provisioning": 1,
                "assigned": 0,
                "starting": 0,
                "running": 1,
                "preempting": 0,
                "stopping": 0,
            },
            "vms": 1,
            "burn_usd_per_hour": 7.35,
            "regions": [
                {
                    "region": "us-central1",
                    "zones": ["us-central1-a", "us-central1-f"],
                    "usd_per_hour": 7.35,
                    "target": 1,
                    "requested": 0,
                    "booting": 0,
                    "idle": 0,
                    "busy": 1,
                    "draining": 0,
                    "deleting": 0,
                    "blocked": {
                        "kind": "stockout",
                        "until": "2026-01-31T12:05:00.000Z",
                        "message": "us-central1-a has no a2-highgpu-2g at the moment",
                    },
                    "why": "left alone until 12:05:00: stockout",
                    "observed_at": "2026-01-31T12:02:00.000Z",
                }
            ],
        }
    ]
}

CAPACITY = {
    "places": [
        {
            "cluster": "2xa100-40gb",
            "region": "us-central1",
            "zone": "",
            "spot": False,
            "usd_per_hour": 7.35,
            "belief": 0.31,
            "hits": 4.2,
            "misses": 1.9,
            "last_outcome": "miss",
            "last_at": "2026-01-31T12:04:15.000Z",
            "usual_delivery_s": 46.1,
            "usual_boot_s": 88.0,
            "preemptions_per_hour": None,
            "blocked": {
                "kind": "stockout",
                "until": "2026-01-31T12:05:00.000Z",
                "message": "us-central1-a has no a2-highgpu-2g at the moment",
            },
            "alerts": [
                {
                    "kind": "cloud_quota",
                    "since": "2026-01-31T11:59:10.000Z",
                    "message": "Quota 'NVIDIA_A100_GPUS' exceeded.  Limit: 0.0 in us-central1.",
                }
            ],
        }
    ]
}

VMS = {
    "vms": [
        {
            "name": _VM,
            "cluster": "2xa100-40gb",
            "region": "us-central1",
            "zone": "us-central1-a",
            "state": "READY",
            "busy": True,
            "jobs": ["j-7k2m9qw0xc"],
            "spot": False,
            "usd_per_hour": 7.35,
            "requested_at": "2026-01-31T12:00:01.000Z",
            "ready_at": "2026-01-31T12:01:28.000Z",
            "idle_since": None,
            "last_beat_at": "2026-01-31T12:02:08.000Z",
            "gone_at": None,
            "reason": "ready",
            "instance_id": "4512893471230987",
            "cost_usd": 0.2,
            "health": "",
            "gpus": [
                {
                    "index": 0,
                    "util": 97.0,
                    "temp_c": 61.0,
                    "mem_used_mb": 30120.0,
                    "ecc_errors": 0,
                    "bad": "",
                }
            ],
        }
    ],
    "total": 1,
    "next_page_token": None,
}

STATUS = {
    "now": "2026-01-31T12:02:10.000Z",
    "leader": "scheduler-1",
    "term": 3,
    "leader_until": "2026-01-31T12:02:18.000Z",
    "jobs": {
        "QUEUED": 0,
        "PROVISIONING": 1,
        "ASSIGNED": 0,
        "STARTING": 0,
        "RUNNING": 1,
        "PREEMPTING": 0,
        "STOPPING": 0,
        "SUCCEEDED": 12,
        "FAILED": 1,
        "CANCELLED": 0,
    },
    "vms": {"requested": 0, "booting": 1, "idle": 0, "busy": 1, "draining": 0, "deleting": 0},
    "clusters": 14,
    "oldest_waiting_since": "2026-01-31T12:01:55.000Z",
    "outbox": 0,
    "open_alerts": 0,
    "burn_usd_per_hour": 7.35,
    "etas": {"told": 41, "p50_held": 22, "p90_held": 38},
    "config": {
        "version": 7,
        "since": "2026-01-31T11:00:00.000Z",
        "file": "/etc/zen/zen.yaml",
        "state": "in force",
        "faults": 0,
    },
    "embedded": None,
    "version": "0.1.0",
}

CLUSTER_STATUS = {
    "total_nodes": 2,
    "online_nodes": 1,
    "total_gpus": 4,
    "available_gpus": 0,
    "total_jobs": 15,
    "running_jobs": 1,
    "pending_jobs": 1,
}

ALERTS = {
    "alerts": [
        {
            "id": 7,
            "kind": "cloud_permission",
            "subject": "zen-2xa100-40gb-us-west1",
            "severity": "error",
            "message": "not allowed to create instances in us-west1",
            "raised_at": "2026-01-31T11:00:00.000Z",
            "last_seen_at": "2026-01-31T12:00:00.000Z",
            "cleared_at": None,
            "count": 4,
            "action": "Give the service account its role.",
            "docs": "docs/reference/alerts.md#cloud_permission",
        }
    ]
}

_DEAD_LETTER = {
    "id": "4711",
    "source": "submit",
    "topic": "pipeline-zen-jobs-submit",
    "at": "2026-01-31T12:00:00.000Z",
    "reason": "gpu_count: got 0, expected a whole number from 1 to 64",
    "size": 37,
}

DEAD_LETTERS = {
    "dead_letters": [
        {**_DEAD_LETTER, "preview": '{"command": ["true"], "gpu_count": 0}', "replayed_at": None}
    ],
    "total": 1,
    "next_page_token": None,
}

DEAD_LETTER = {
    **_DEAD_LETTER,
    "encoding": "utf-8",
    "body": '{"command": ["true"], "gpu_count": 0}',
    "attributes": {"idempotency_key": "nightly-2026-01-31"},
    "replayed_at": None,
}

REPLAYED = {
    "id": "4711",
    "topic": "pipeline-zen-jobs-submit",
    "status": "replayed",
    "replayed_at": "2026-01-31T12:05:00.000Z",
    "message": "goes to pipeline-zen-jobs-submit again; "
    "if it fails again, it becomes a new dead letter",
}

REPLAYED_BEFORE = {
    **REPLAYED,
    "message": "was sent to pipeline-zen-jobs-submit again at 2026-01-31T12:05:00.000Z; "
    "nothing was sent now",
}

READY = {"status": "ready", "checks": {"database": "ok", "bus": "ok"}}

ERROR = {
    "error": 'gpu_type: got "a100", expected a GPU type that exists (nearest: a100-40gb)',
    "message": 'gpu_type: got "a100", expected a GPU type that exists (nearest: a100-40gb)',
    "detail": 'gpu_type: got "a100", expected a GPU type that exists (nearest: a100-40gb)',
    "code": "bad_input",
    "request_id": "6f1d0c3b5a7e9812",
    "faults": [
        {
            "field": "gpu_type",
            "got": '"a100"',
            "expected": "a GPU type that exists (nearest: a100-40gb)",
        }
    ],
}

ARTIFACTS = {
    "job_id": "train-7",
    "attempt": 1,
    "total": 2,
    "bytes": 73_400_420,
    "artifacts": [
        {
            "path": "checkpoints/model.safetensors",
            "size": 73_400_320,
            "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        },
        {
            "path": "metrics.json",
            "size": 100,
            "sha256": "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752",
        },
    ],
    "skipped": [{"path": "data", "why": "a link that leads out of the directory"}],
    "next_page_token": None,
}
