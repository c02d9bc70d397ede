"""What tenants may have: sums, words, budgets, and the cost of hot paths."""

from __future__ import annotations

from dataclasses import replace

from core.cost import TenantBudget
from core.job import E
from core.job_fields import JobSpec
from core.tenants import (
    MachineShape,
    Quota,
    ResourceTotals,
    Tenant,
    budgets_of,
    held_by,
    holdings,
    shortage,
)
from core.vm import heard
from tests.builders import at, job, vm

L4 = MachineShape("l4", 24.0, 12.0, 48.0)


def test_only_jobs_with_a_place_hold_anything() -> None:
    """Queued and ended ones hold nothing."""
    jobs = [
        job(1, tenant_id="a"),
        job(2, E.ADMITTED, tenant_id="a", gpu_count=2),
        job(3, E.ADMITTED, E.PLACED, tenant_id="a", cpu_cores=3.0),
        job(4, E.STOP_ASKED, tenant_id="a"),
    ]
    held = held_by(holdings(jobs)["a"], {"1xl4": L4})
    assert held == {
        "jobs": 2,
        "gpus": 3,
        "gpus:l4": 3,
        "gpu_memory_gb": 72.0,
        "cpus": 27.0,
        "memory_gb": 144.0,
    }


def test_a_cluster_that_is_gone_still_counts_its_gpus() -> None:
    """Its type is not known any more, but what runs there runs."""
    held = held_by({"1xold": ResourceTotals.of(JobSpec("j", gpu_count=4, memory_mb=2048))}, {})
    assert held == {"jobs": 1, "gpus": 4, "gpu_memory_gb": 0.0, "cpus": 0.0, "memory_gb": 2.0}


def test_stated_gpu_memory_counts_once() -> None:
    """However many GPUs the job has; one that states none counts for all of its GPUs."""
    stated = ResourceTotals.of(JobSpec("j", gpu_count=8, gpu_memory_mb=20480))
    silent = ResourceTotals.of(JobSpec("k", gpu_count=2))
    assert stated.amounts(L4)["gpu_memory_gb"] == 20.0
    assert silent.amounts(L4)["gpu_memory_gb"] == 48.0
    assert stated.plus(silent).amounts(L4)["gpu_memory_gb"] == 68.0
    assert stated.plus(silent).plus(stated, -1) == silent


def test_shortage_names_asked_quota_and_use() -> None:
    """And whether it could ever fit."""
    tenant = Tenant("a", quota=Quota(gpus=4, gpus_by_type={"l4": 2}))
    assert shortage(tenant, {"gpus": 2, "gpus:l4": 2}, {"gpus": 2}) is None
    short = shortage(tenant, {"gpus": 3, "gpus:l4": 3}, {"gpus": 0})
    assert short is not None
    assert short.for_ever
    assert short.words() == "quota of tenant a: asks for 3 l4 GPUs, the quota is 2, 0 in use"


def test_own_budgets_win_field_by_field() -> None:
    """What the row does not say, the configuration says."""
    configured = {"a": TenantBudget(5.0, 50.0, 0.5), "b": TenantBudget(1.0)}
    rows = [
        Tenant("a", quota=Quota(usd_per_day=7.0)),
        Tenant("c", quota=Quota(usd_per_month=9.0)),
        Tenant("d"),
    ]
    assert budgets_of(configured, rows) == {
        "a": TenantBudget(7.0, 50.0, 0.5),
        "b": TenantBudget(1.0),
        "c": TenantBudget(None, 9.0),
    }


def test_a_heartbeat_changes_nothing_else() -> None:
    """The quick copy is what `replace` makes."""
    one = vm("vm-1", leases=("lease",))
    assert heard(one, at(5)) == replace(one, last_beat_at=at(5))
    assert one.last_beat_at is None
