"""Small makers of values for tests: everything has a default, each test says what matters to it."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from config.live import LiveSettings
from config.settings import ApiSettings, Settings
from core.changes import Snapshot
from core.cluster import ClusterSpec, RegionSpec
from core.ids import RandomIds
from core.job import Budgets, E, Job, JobEvent, Lease, Rules
from core.job_fields import JobSpec
from core.job_steps import EventFacts, advance, new_job
from core.mig import ManagedInstance, MigSnapshot
from core.names import Names
from core.region_blocks import RegionBlock
from core.retention import RetentionRules
from core.timers import Timers
from core.vm import Vm, VmState

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
RULES = Rules()
NAMES = Names()
REGIONS = ("us-central1", "us-east1", "europe-west4")


def at(seconds: float) -> datetime:
    """A moment after NOW (before, if negative)."""
    return NOW + timedelta(seconds=seconds)


class HandClock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def now(self) -> datetime:
        return at(self.passed_s)

    def monotonic(self) -> float:
        return self.passed_s


def dice(seed: int = 1) -> RandomIds:
    return RandomIds(random.Random(seed))


def cluster(name: str = "1xl4", vm_max: int = 4, **changes: object) -> ClusterSpec:
    gpus, gpu_type = name.split("x", 1)
    spec = ClusterSpec(
        name=name,
        gpu_type=gpu_type,
        gpus=int(gpus),
        machine_type="g2-standard-4",
        vm_max=vm_max,
        regions=tuple(
            RegionSpec(region, (f"{region}-a", f"{region}-b"), 1.0 + index, 0.5 + index)
            for index, region in enumerate(REGIONS)
        ),
    )
    return replace(spec, **changes)  # type: ignore[arg-type]


def job(number: int = 1, *events: JobEvent, cluster: str = "1xl4", **spec: object) -> Job:
    """A job that has gone through `events`; PLACED gives it a lease on vm-<number>."""
    words = {"job_id": f"job-{number}", "command": ("true",), **spec}
    made = new_job(f"job-uid-{number:04d}", JobSpec(**words), cluster, at(number))  # type: ignore[arg-type]
    for event in events:
        lease = lease_on(f"vm-{number}", number) if event is E.PLACED else None
        made = advance(made, event, at(number), RULES, facts=EventFacts(lease=lease))
    return made


def lease_on(vm_name: str, number: int = 1) -> Lease:
    return Lease(f"lease-{number}", vm_name, f"uid-{vm_name}", "us-central1", "us-central1-a", (0,))


def vm(
    name: str = "vm-1",
    state: VmState = VmState.READY,
    *,
    cluster: str = "1xl4",
    region: str = "us-central1",
    **facts: object,
) -> Vm:
    made = Vm(
        uid=f"uid-{name}",
        name=name,
        cluster=cluster,
        region=region,
        state=state,
        version=1,
        request_id="request",
        gpus=int(cluster.split("x", maxsplit=1)[0]),
        spot=False,
        usd_per_hour=1.0,
        requested_at=NOW,
        state_since=NOW,
        boot_nonce="nonce" if state in (VmState.READY, VmState.DRAINING) else "",
        idle_since=NOW if state is VmState.READY else None,
    )
    return replace(made, **facts)  # type: ignore[arg-type]


def snapshot(
    jobs: tuple[Job, ...] = (),
    vms: tuple[Vm, ...] = (),
    blocks: tuple[RegionBlock, ...] = (),
    now: datetime = NOW,
) -> Snapshot:
    return Snapshot(now, jobs, vms, blocks, (), {}, {})


def observed(
    *members: ManagedInstance, region: str = "us-central1", target: int | None = None
) -> MigSnapshot:
    size = len(members) if target is None else target
    return MigSnapshot("mig", "1xl4", region, size, True, members, NOW)


def settings(*clusters: ClusterSpec, **changes: object) -> Settings:
    whole = Settings(
        project="tests",
        names=NAMES,
        clusters=clusters,
        timers=Timers(),
        budgets=Budgets(),
        retention=RetentionRules(),
        database_url="",
        pubsub_host=None,
        cloud={"compute_url": None, "identity_certs_url": None, "calls_per_minute": 1000},
        store_url="",
        v1_results_url=None,
        api=ApiSettings(),
        queue_limit=1000,
        log_level="INFO",
        prices_as_of="2026-01-01",
        create_tenants=True,
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def live(*clusters: ClusterSpec, **changes: object) -> LiveSettings:
    return LiveSettings(settings(*clusters, **changes))
