"""Jobs without GPUs, and VMs without GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agent.attempt import slots_refusal
from core.cluster import ClusterSpec
from core.errors import BadInput
from core.job import E, S
from core.job_fields import JobSpec
from core.job_steps import advance
from core.region_blocks import BlockKind, RegionBlock, block_on
from core.tenants import Quota, ResourceTotals, Tenant, machines_of, shortage
from scheduler.queue.price_caps import size_words
from scheduler.submission.cluster_selection import choose_cluster
from tests.agent.orders import start
from tests.builders import NOW, RULES, at, cluster, job, snapshot, vm
from tests.scheduler.api.fakes import CLUSTERS
from tests.scheduler.placement.test_slots import planned

CPU = cluster("0xcpu", vm_max=2, cpus=4, memory_gb=15, machine_type="n1-standard-4")
GPU_CLUSTERS = [c for c in CLUSTERS if c.gpus]


def spec(**fields: object) -> JobSpec:
    """As a submission makes it: without a word about larger VMs, none is taken."""
    return JobSpec("j", allow_larger=False, **fields)  # type: ignore[arg-type]


def refused(asked: JobSpec, clusters: Sequence[ClusterSpec] = CLUSTERS) -> str:
    with pytest.raises(BadInput) as caught:
        choose_cluster(asked, clusters)
    return "; ".join(f"{fault.field}: {fault.expected}" for fault in caught.value.faults)


def test_job_without_gpus_runs_on_a_cpu_cluster() -> None:
    """It takes no VM with GPUs, and a job with GPUs takes no CPU VM."""
    choice = choose_cluster(spec(gpu_count=0), CLUSTERS)
    assert choice.cluster == "0xcpu"
    assert "no GPUs" in choice.reason
    assert choose_cluster(spec(), CLUSTERS).cluster == "1xl4"


def test_without_a_cpu_cluster_it_is_refused() -> None:
    """The refusal offers the nearest fit, which the job must agree to."""
    words = refused(spec(gpu_count=0), GPU_CLUSTERS)
    assert words.startswith("allow_larger: true: no cluster without GPUs fits")
    assert "1xl4" in words


def test_gpus_on_a_named_cpu_cluster_are_refused() -> None:
    """A cluster's name does not bring GPUs."""
    assert refused(spec(cluster="0xcpu")).startswith("gpu_count: at most 0 GPUs")


def test_more_cores_than_a_cpu_vm_has_are_not_taken_in_silence() -> None:
    """A VM with GPUs that has the cores is offered, not taken."""
    words = refused(spec(gpu_count=0, cpu_cores=64))
    assert words.startswith("allow_larger: true: no cluster without GPUs fits")


def test_cpu_is_no_gpu_type() -> None:
    """A job that wants GPUs of an unknown type is told of GPU types alone."""
    assert "cpu" not in refused(spec(gpu_type="cpu"))


def test_cpu_vm_runs_one_job_at_a_time() -> None:
    """Two jobs, one VM: the second waits; the next VM is the second's."""
    jobs = tuple(job(n, cluster="0xcpu", gpu_count=0) for n in (1, 2, 3))
    plan, starts = planned(snapshot(jobs, (vm("vm-1", cluster="0xcpu"),)), CPU)
    assert [(s.spec.job_id, s.slots, s.gpus) for s in starts] == [("job-1", (0,), ())]
    assert plan.jobs["job-uid-0002"].status is S.PROVISIONING
    assert plan.jobs["job-uid-0003"].status is S.QUEUED, "vm_max is 2"
    later, starts = planned(snapshot(tuple(plan.jobs.values()), tuple(plan.vms.values())), CPU)
    assert not starts
    assert len(later.vms["uid-vm-1"].leases) == 1


def test_what_it_had_counts_as_one_slot() -> None:
    """A job without GPUs attains service by its time, so that it ages as others do."""
    ran = job(1, E.ADMITTED, E.PLACED, E.STARTED, cluster="0xcpu", gpu_count=0)
    ended = advance(ran, E.EXITED_OK, at(101), RULES)
    assert ended.attained_gpu_s == pytest.approx(100)


def test_quota_of_gpus_does_not_bind_a_job_without_gpus() -> None:
    """It asks for the CPUs and memory of its VM instead."""
    asked = ResourceTotals.of(JobSpec("j", gpu_count=0)).amounts(machines_of([CPU])["0xcpu"])
    assert (asked["gpus"], asked["cpus"], asked["memory_gb"]) == (0, 4, 15)
    tenant = Tenant("a", quota=Quota(gpus=0, cpus=4))
    assert shortage(tenant, asked, {"gpus": 0}) is None
    assert shortage(tenant, asked, {"cpus": 1}) is not None


def test_agent_of_a_cpu_vm_takes_one_job_without_gpus() -> None:
    """Its one slot is no GPU; GPUs are refused."""
    order = start()
    bare = replace(order, spec=replace(order.spec, gpu_count=0))
    assert slots_refusal(bare, [], 0) == ""
    assert slots_refusal(bare, [bare], 0).startswith("busy")
    assert slots_refusal(order, [], 0) == "slots: got GPUs (0,), but this VM has none"


def test_stockout_of_the_machine_with_gpus_does_not_block_it() -> None:
    """n1-standard-4 with a T4 and without are two offerings of the cloud."""
    t4 = cluster("1xt4", machine_type="n1-standard-4")
    kind = BlockKind.STOCKOUT
    blocks = [RegionBlock("us-central1", "", t4.offering, False, kind, NOW, NOW, at(60), 1, "none")]
    assert block_on(blocks, t4, "us-central1", NOW) is not None
    assert block_on(blocks, CPU, "us-central1", NOW) is None


def test_job_larger_than_every_vm_waits_and_buys_nothing() -> None:
    """It is not admitted, so no VM is asked for it; those behind it are served, and it says why."""
    large = job(1, cluster="0xcpu", gpu_count=0, cpu_cores=5)
    small = job(2, cluster="0xcpu", gpu_count=0, cpu_cores=4)
    plan, starts = planned(snapshot((large, small), (vm("vm-1", cluster="0xcpu"),)), CPU)
    assert [start.spec.job_id for start in starts] == ["job-2"]
    assert plan.jobs[large.uid].status is S.QUEUED
    assert size_words(large.spec, CPU).startswith("no VM of 0xcpu is large enough: it asks for 5")
    assert size_words(small.spec, CPU) == ""
