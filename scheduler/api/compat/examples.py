"""Examples of other systems' requests and answers, for the documentation."""

from __future__ import annotations

from collections.abc import Mapping

_VM = "pipeline-zen-jobs-4xa100-40gb-us-central1-vm-x7k2"
V1_SUBMISSIONS: Mapping[str, object] = {
    "v1": {
        "job_id": "ftj-7",
        "user_id": "ada",
        "workflow": "torchtunewrapper",
        "args": {"dataset_id": "gs://data/ada/set.jsonl", "num_epochs": 3},
        "gpu_type": "a100-40gb",
        "num_gpus": 4,
        "keep_alive": False,
    }
}
LUM_SUBMISSIONS: Mapping[str, object] = {
    "lum": {
        "job_id": "ftj-8",
        "user_id": "ada",
        "workflow": "torchtunewrapper",
        "args": {"dataset_id": "gs://data/ada/set.jsonl", "num_gpus": 1},
    }
}
NEW_JOB = {"job_id": "ftj-7", "status": "new"}
STOPPING = {"status": "stopping"}
V1_QUESTIONS: Mapping[str, object] = {"two jobs": {"user_id": "ada", "job_ids": ["ftj-7", "ftj-8"]}}
V1_JOB: Mapping[str, object] = {
    "job_id": "ftj-7",
    "user_id": "ada",
    "created_at": "2026-01-31T12:00:00Z",
    "updated_at": "2026-01-31T12:03:10Z",
    "workflow": "torchtunewrapper",
    "args": {"dataset_id": "gs://data/ada/set.jsonl", "num_epochs": 3},
    "status": "RUNNING",
    "provider": "GCP",
    "lum": None,
    "gcp": {
        "keep_alive": False,
        "cluster": "4xa100-40gb",
        "status": "RUNNING",
        "vm_name": _VM,
        "region": "us-central1",
    },
    "timestamps": {
        "new": "2026-01-31T12:00:00Z",
        "wait_for_vm": "2026-01-31T12:00:01Z",
        "found_vm": "2026-01-31T12:02:40Z",
        "detached_vm": "2026-01-31T12:02:41Z",
        "running": "2026-01-31T12:03:10Z",
        "stopping": None,
        "stopped": None,
        "completed": None,
        "failed": None,
    },
    "artifacts": {},
}
V1_STATUS: Mapping[str, object] = {
    "overall_summary": {
        "total_jobs": 12,
        "running_jobs": 1,
        "pending_jobs": 2,
        "completed_jobs": 8,
        "failed_jobs": 1,
        "total_clusters": 1,
        "total_running_vms": 1,
        "total_target_vms": 3,
    },
    "clusters": [
        {
            "name": "4xa100-40gb",
            "cluster_summary": {
                "total_regions": 1,
                "active_regions": 1,
                "total_running_vms": 1,
                "total_target_vms": 3,
                "jobs": {"running": 1, "pending": 2},
            },
            "regions": [
                {
                    "region": "us-central1",
                    "mig_name": "pipeline-zen-jobs-4xa100-40gb-us-central1-mig",
                    "target_size": 3,
                    "current_size": 1,
                    "jobs": {"running": 1},
                }
            ],
        }
    ],
    "timestamp": "2026-01-31T12:03:20Z",
    "recent_activities": [
        {
            "timestamp": "2026-01-31T12:03:18Z",
            "activity": "4xa100-40gb in us-central1: 2 VMs asked for, 2 jobs wait",
        }
    ],
    "cluster_status": {"4xa100-40gb": {"us-central1": [3, 1]}},
    "running_jobs": 1,
    "pending_jobs": 2,
    "scheduler_id": "replica-1",
    "current_leader": "replica-1",
    "is_leader": True,
    "redis_connected": True,
    "uptime_seconds": 3600.0,
    "queue_size": 2,
    "claimed_jobs": 1,
    "job_stats": {
        "pending": 2,
        "assigned": 0,
        "running": 1,
        "succeeded": 8,
        "failed": 1,
        "aborted": 0,
    },
}
_RESOURCES = {"cpu_cores": 8, "memory_mb": 32768, "gpu_type": "l4", "gpu_count": 1}
DEFINITIONS: Mapping[str, object] = {
    "definition": {
        "definition": {
            "name": "train",
            "image": "python:3.12",
            "command": ["python3", "train.py"],
            "resources": _RESOURCES,
            "environment": {"SEED": "7"},
        }
    }
}
DEFINED_JOB: Mapping[str, object] = {
    "id": "019c12c7-8c3e-7d3a-9f64-5b0f1c2d3e4f",
    "job_id": "019c12c7-8c3e-7d3a-9f64-5b0f1c2d3e4f",
    "definition": {
        "name": "train",
        "image": "python:3.12",
        "command": ["python3", "train.py"],
        "resources": _RESOURCES,
        "environment": {"SEED": "7"},
    },
    "status": "pending",
    "executor_id": None,
    "assigned_executor_id": None,
    "ip_address": None,
    "created_at": "2026-01-31T12:00:00.000Z",
    "updated_at": "2026-01-31T12:00:00.000Z",
    "assigned_at": None,
    "started_at": None,
    "finished_at": None,
    "aborted_at": None,
    "container_status": None,
    "exit_code": None,
    "error": None,
    "error_message": None,
}
_CPU_VM = {"cpu_cores": 4, "memory_mb": 15360, "gpu_type": None, "gpu_count": 0}
HEALTHY_EXECUTORS: Mapping[str, object] = {
    "executors": [
        {
            "executor_info": {"id": _VM, "ip_address": "10.128.0.7", "resources": _CPU_VM},
            "available_resources": {"id": _VM, "resources": _CPU_VM},
            "assigned_jobs_count": 0,
        }
    ]
}
EXECUTOR: Mapping[str, object] = {
    "id": _VM,
    "status": "online",
    "region": "us-central1",
    "resources": {
        "cpu_cores": 48,
        "memory_mb": 348160,
        "gpu_type": "a100-40gb",
        "gpu_count": 4,
    },
    "running_jobs": 1,
    "last_heartbeat": "2026-01-31T12:03:10.000Z",
}
STATS: Mapping[str, object] = {
    "jobs": {
        "total": 12,
        "pending": 2,
        "assigned": 0,
        "running": 1,
        "succeeded": 8,
        "failed": 1,
        "aborted": 0,
    },
    "executors": {"total": 3, "online": 1, "busy": 1},
    "timestamp": "2026-01-31T12:03:20.000Z",
}
