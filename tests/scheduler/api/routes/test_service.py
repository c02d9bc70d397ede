"""Status, clusters, VMs, alerts, readiness, metrics."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from core.changes import (
    ClearAlert,
    NewVm,
    PutRegionBlock,
    PutRegionStatus,
    RaiseAlert,
    RegionStatus,
    VmHeartbeat,
)
from core.job import JobStatus
from core.job_fields import JobSpec
from core.messages import GpuReading, VmReadings
from core.reads import ServiceSummary, VmCount
from core.region_blocks import BlockKind, RegionBlock
from core.vm import Vm, VmState
from scheduler.api.http.app import create_metrics_app
from tests.access import OWNER, bearer, known
from tests.scheduler.api.fakes import CLUSTERS, LEASE, NOW, TO_RUNNING, House, assert_error

A100 = "2xa100-40gb"


def full_summary() -> ServiceSummary:
    return ServiceSummary(
        now=NOW,
        leader="replica-1",
        term=4,
        leader_until=NOW + timedelta(seconds=7),
        jobs={
            (A100, JobStatus.QUEUED): 3,
            (A100, JobStatus.PROVISIONING): 2,
            (A100, JobStatus.RUNNING): 1,
            ("1xl4", JobStatus.STOPPING): 1,
            ("1xl4", JobStatus.SUCCEEDED): 9,
        },
        vms=(
            VmCount(A100, "us-central1", VmState.READY, True, 1),
            VmCount(A100, "us-central1", VmState.READY, False, 2),
            VmCount(A100, "us-west1", VmState.BOOTING, False, 1),
            VmCount("1xl4", "us-central1", VmState.DRAINING, True, 1),
        ),
        oldest_waiting_since=NOW - timedelta(minutes=1),
        outbox=5,
        open_alerts={"sick_vm": 2},
    )


async def test_status_counts_everything() -> None:
    """Status has all ten statuses and all six words for VMs, also those at zero."""
    house = House()
    house.answer("summary", full_summary())
    async with house.client() as client:
        body = (await client.get("/api/v1/status")).json()
    assert set(body["jobs"]) == set(JobStatus)
    assert (body["jobs"]["QUEUED"], body["jobs"]["FAILED"]) == (3, 0)
    assert body["vms"] == {
        "requested": 0,
        "booting": 1,
        "idle": 2,
        "busy": 1,
        "draining": 1,
        "deleting": 0,
    }
    assert (body["leader"], body["term"], body["outbox"]) == ("replica-1", 4, 5)
    assert (body["clusters"], body["embedded"], body["version"]) == (5, None, "9.9")
    assert body["oldest_waiting_since"] == "2026-01-31T11:59:00.000Z"


async def test_numbers_are_of_jobs_that_the_caller_may_see() -> None:
    """A viewer of one tenant is told how many jobs that tenant has; who sees all tenants is told of
    all. VMs are counted for everybody."""
    key, viewer = known("viewerofred0", ("red", "viewer"))
    house = House(keys=(viewer,))
    for tenant_id, count in (("red", 1), ("blue", 3)):
        house.queue_before(count, JobSpec(tenant_id, command=("true",), tenant_id=tenant_id))
    paths = ("/api/v1/status", "/api/v1/clusters", "/api/v1/cluster/status", "/status", "/stats")

    async def told(key: str) -> list[int]:
        async with house.client(key) as client:
            new, clusters, words, v1, stats = [(await client.get(path)).json() for path in paths]
        l4 = next(one for one in clusters["clusters"] if one["name"] == "1xl4")
        return [
            *(new["jobs"]["QUEUED"], l4["jobs"]["queued"], words["pending_jobs"]),
            *(v1["pending_jobs"], v1["overall_summary"]["total_jobs"], v1["job_stats"]["pending"]),
            *(v1["clusters"][0]["cluster_summary"]["jobs"]["pending"], stats["jobs"]["total"]),
        ]

    assert set(await told(key)) == {1}
    assert set(await told(OWNER)) == {4}


async def test_cluster_status_speaks_of_nodes() -> None:
    """The multi-tenant summary counts nodes, GPUs and jobs in its own words."""
    house = House()
    house.answer("summary", full_summary())
    async with house.client() as client:
        body = (await client.get("/api/v1/cluster/status")).json()
    assert body == {
        "total_nodes": 5,
        "online_nodes": 3,
        "total_gpus": 9,
        "available_gpus": 4,
        "total_jobs": 16,
        "running_jobs": 2,
        "pending_jobs": 5,
    }


async def test_clusters_bring_counts_blocks_and_reasons_together() -> None:
    """Each region of each cluster shows its VMs, its block if one holds now, and its why."""
    house = House()
    house.answer("summary", full_summary())
    stockout = RegionBlock(
        region="us-west1",
        zone="us-west1-a",
        machine_type=f"machine-{A100}",
        spot=False,
        kind=BlockKind.STOCKOUT,
        since=NOW,
        last_seen=NOW,
        until=NOW + timedelta(seconds=45),
        count=1,
        message="no more of them",
    )
    over = replace(stockout, region="us-central1", until=NOW)
    other = replace(stockout, machine_type="another", until=NOW + timedelta(hours=1))
    house.write(*map(PutRegionBlock, (stockout, over, other)))
    house.write(PutRegionStatus(RegionStatus(A100, "us-west1", 1, "waits for a stockout", NOW)))
    async with house.client() as client:
        clusters = (await client.get("/api/v1/clusters")).json()["clusters"]
    assert [c["name"] for c in clusters] == [c.name for c in CLUSTERS]
    a100 = next(c for c in clusters if c["name"] == A100)
    assert a100["vms"] == 4
    assert (a100["jobs"]["queued"], a100["jobs"]["running"]) == (3, 1)
    central, west = a100["regions"]
    assert (central["idle"], central["busy"], central["blocked"]) == (2, 1, None)
    assert (west["target"], west["booting"], west["why"]) == (1, 1, "waits for a stockout")
    assert west["blocked"] == {
        "kind": "stockout",
        "until": "2026-01-31T12:00:45.000Z",
        "message": "no more of them",
    }


async def test_vms_of_a_withdrawn_region_are_shown() -> None:
    """What counts against the limit is shown somewhere, also where nothing is configured now."""
    house = House()
    full = full_summary()
    more = (*full.vms, VmCount(A100, "asia-east1", VmState.READY, True, 1))
    house.answer("summary", replace(full, vms=more))
    house.write(PutRegionStatus(RegionStatus(A100, "asia-east1", 1, "withdrawn", NOW)))
    async with house.client() as client:
        clusters = (await client.get("/api/v1/clusters")).json()["clusters"]
    a100 = next(c for c in clusters if c["name"] == A100)
    *_, withdrawn = a100["regions"]
    assert (withdrawn["region"], withdrawn["busy"], withdrawn["why"]) == (
        "asia-east1",
        1,
        "withdrawn",
    )
    assert (withdrawn["usd_per_hour"], withdrawn["zones"]) == (None, [])
    assert a100["vms"] == sum(r["busy"] + r["idle"] + r["booting"] for r in a100["regions"])


async def test_vms_cost_from_their_first_running_second() -> None:
    """A VM's cost runs from when it was first seen running until it was gone."""
    house = House()
    vm = Vm(
        uid=LEASE.vm_uid,
        name="vm-1",
        cluster=A100,
        region="us-central1",
        state=VmState.READY,
        version=3,
        request_id="r",
        gpus=2,
        spot=True,
        usd_per_hour=6.0,
        requested_at=NOW - timedelta(hours=2),
        state_since=NOW,
        leases=("l",),
        running_since=NOW - timedelta(minutes=30),
    )
    gone = replace(vm, uid="a", state=VmState.GONE, gone_at=NOW - timedelta(minutes=20), leases=())
    house.write(NewVm(vm, 9), VmHeartbeat(vm.uid, NOW, VmReadings((GpuReading(0, 97.0, 61.0),))))
    house.tables.set_vm(gone)
    async with house.client() as client:
        request = {"command": ["a"], "job_id": "mine", "cluster": A100, "gpu_count": 2}
        assert (await client.post("/api/v1/jobs", json=request)).status_code == 201
        house.move("mine", *TO_RUNNING)
        body = (await client.get("/api/v1/vms?gone=true")).json()
    first, second = body["vms"]
    assert (first["state"], first["busy"], first["jobs"]) == ("READY", True, ["mine"])
    assert first["cost_usd"] == pytest.approx(3.0)
    assert first["gpus"][0]["util"] == 97.0
    assert (second["state"], second["cost_usd"]) == ("GONE", pytest.approx(1.0))
    assert (body["total"], body["next_page_token"]) == (2, None)


async def test_alerts_are_open_ones_unless_asked() -> None:
    """Cleared alerts are shown only with all=true."""
    house = House()
    alert = RaiseAlert("quota", "us", "error", "full", NOW)
    house.write(alert, ClearAlert("quota", "us", NOW), alert)
    async with house.client() as client:
        some = (await client.get("/api/v1/alerts")).json()["alerts"]
        every = (await client.get("/api/v1/alerts?all=true")).json()["alerts"]
    assert [a["id"] for a in some] == [2]
    assert [a["id"] for a in every] == [2, 1]


async def test_readiness_names_what_fails() -> None:
    """Ready is 200 with its checks; a failing check makes it 503 with that check's words."""
    house = House()
    async with house.client() as client:
        good = await client.get("/api/v1/ready")
        assert (good.status_code, good.json()["checks"]["bus"]) == (200, "ok")
        house.checks = {"database": "ok", "bus": "no canary for 40 s"}
        answer = await client.get("/api/v1/ready")
    body = assert_error(answer, 503, "not_ready")
    assert "no canary for 40 s" in str(body["error"])
    assert body["checks"] == house.checks
    assert answer.headers["Retry-After"] == "1"


async def test_metrics_show_counters_and_gauges() -> None:
    """A scrape has what this replica counted and what the store holds now."""
    house = House()
    async with house.client() as client:
        await client.post("/api/v1/jobs", json={"command": ["a"], "job_id": "mine"})
        before = house.jobs["0", "mine"]
        house.clock.at = NOW
        after = house.move("mine", *TO_RUNNING)
        house.metrics.job_moved(before, after)
        house.metrics.cycle(0.004)
        house.metrics.cloud_call("create", "ok")
        house.metrics.leading(True)
        house.answer("summary", full_summary())
        answer = await client.get("/metrics")
    lines = set(answer.text.splitlines())
    assert answer.headers["content-type"].startswith("text/plain")
    assert {
        'gpu_scheduler_jobs_total{cluster="1xl4",status="QUEUED"} 1.0',
        'gpu_scheduler_jobs_total{cluster="1xl4",status="RUNNING"} 1.0',
        'gpu_scheduler_queue_size{cluster="2xa100-40gb"} 5.0',
        'gpu_scheduler_queue_size{cluster="1xl4"} 0.0',
        f'gpu_scheduler_gpu_utilization{{cluster="2xa100-40gb"}} {1 / 3}',
        'gpu_scheduler_scheduling_latency_bucket{le="0.005"} 1.0',
        'gpu_scheduler_scheduling_latency_bucket{le="0.0025"} 0.0',
        'gpu_scheduler_wait_seconds_count{cluster="1xl4"} 1.0',
        'gpu_scheduler_vms{cluster="2xa100-40gb",region="us-central1",state="idle"} 2.0',
        'gpu_scheduler_cloud_calls_total{kind="create",outcome="ok"} 1.0',
        "gpu_scheduler_outbox 5.0",
        "gpu_scheduler_leader 1.0",
        "gpu_scheduler_alerts_open 2.0",
        'gpu_scheduler_alerts{kind="sick_vm",severity="warning"} 2.0',
        'gpu_scheduler_alerts{kind="bus_refused",severity="critical"} 0.0',
        "gpu_scheduler_database_up 1.0",
    } <= lines


async def test_metrics_survive_the_database() -> None:
    """Without the database the counters are still there, and no gauge shows an old number."""
    house = House()
    house.answer("summary", full_summary())
    async with house.client() as client:
        house.metrics.cloud_call("create", "unsure")
        await client.get("/metrics")
        house.store.down = True
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert "gpu_scheduler_database_up 0.0" in answer.text
    assert 'cloud_calls_total{kind="create",outcome="unsure"} 1.0' in answer.text
    assert "gpu_scheduler_queue_size{" not in answer.text
    assert "gpu_scheduler_outbox NaN" in answer.text


async def test_preemptions_are_counted_by_kind() -> None:
    """A VM that the cloud reclaimed and a preempted job are counted apart."""
    house = House()
    async with house.client() as client:
        await client.post("/api/v1/jobs", json={"command": ["a"], "job_id": "mine"})
    running = house.move("mine", *TO_RUNNING)
    requeued = replace(running, status=JobStatus.QUEUED, preemptions=1, lease=None)
    house.metrics.job_moved(running, requeued)
    preempted = replace(requeued, preemptions=0)
    house.metrics.job_moved(replace(running, status=JobStatus.PREEMPTING), preempted)
    text = house.metrics.text().decode()
    assert 'gpu_scheduler_preemptions_total{cluster="1xl4",kind="spot"} 1.0' in text
    assert 'gpu_scheduler_preemptions_total{cluster="1xl4",kind="yield"} 1.0' in text


async def test_pages_of_named_origins_may_call() -> None:
    """Off unless configured; a browser's question beforehand is answered for origins that were
    named, and so are errors."""
    asks = {"Origin": "https://dash.example", "Access-Control-Request-Method": "DELETE"}
    async with House().client() as client:
        assert (await client.options("/api/v1/jobs", headers=asks)).status_code == 405
        plain = await client.get("/api/v1/health", headers=asks)
    assert "access-control-allow-origin" not in plain.headers
    async with House(cors_origins=("https://dash.example",)).client() as client:
        before = await client.options("/api/v1/jobs", headers=asks)
        missing = await client.get("/api/v1/jobs/nobody", headers=asks)
        other = await client.get("/api/v1/health", headers={"Origin": "https://evil.example"})
    assert before.status_code == 200
    assert "DELETE" in before.headers["access-control-allow-methods"]
    assert missing.status_code == 404
    assert missing.headers["access-control-allow-origin"] == "https://dash.example"
    assert "access-control-allow-origin" not in other.headers
    async with House(cors_origins=("*",)).client() as client:
        anybody = await client.get("/api/v1/health", headers=asks)
    assert anybody.headers["access-control-allow-origin"] == "*"


async def test_metrics_on_a_port_of_their_own() -> None:
    """The same metrics, and nothing else of the API."""
    house = House()
    house.answer("summary", full_summary())
    transport = httpx.ASGITransport(create_metrics_app(house.services()))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://zen", headers=bearer(OWNER)
    ) as client:
        answer = await client.get("/metrics")
        nothing = await client.get("/api/v1/jobs")
    assert answer.status_code == 200
    assert "gpu_scheduler_queue_size" in answer.text
    assert_error(nothing, 404, "not_found")
