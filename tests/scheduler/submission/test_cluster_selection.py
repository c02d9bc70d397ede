"""Which cluster a job is for."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cluster import ClusterSpec, RegionSpec
from core.errors import BadInput
from core.job_fields import FIELDS, JobSpec
from scheduler.submission.cluster_selection import choose_cluster, misfits
from tests.scheduler.api.fakes import CLUSTERS, cluster

REGIONS = ("us-central1", "us-west1", "europe-west4", "asia-east1")


def spec(**fields: object) -> JobSpec:
    return JobSpec(job_id="j", **fields)  # type: ignore[arg-type]


def refused(**fields: object) -> list[str]:
    """ "field: expected" of each fault."""
    with pytest.raises(BadInput) as caught:
        choose_cluster(spec(**fields), CLUSTERS)
    return [f"{fault.field}: {fault.expected}" for fault in caught.value.faults]


def test_named_cluster_is_taken() -> None:
    """A job that names a cluster gets it, even if a cheaper one fits."""
    assert choose_cluster(spec(cluster="4xa100-40gb"), CLUSTERS).cluster == "4xa100-40gb"


def test_unknown_cluster_names_the_nearest() -> None:
    """An unknown cluster is refused with the ones that look like it."""
    (text,) = refused(cluster="2xa100")
    assert text.startswith("cluster:")
    assert "nearest: " in text
    assert "2xa100-40gb" in text


def test_named_cluster_must_fit() -> None:
    """Every field that the named cluster cannot serve is named at once."""
    found = refused(cluster="1xl4", gpu_count=3, cpu_cores=99, gpu_type="a100-40gb")
    assert [text.partition(":")[0] for text in found] == ["gpu_count", "cpu_cores", "gpu_type"]


def test_type_and_count_give_the_exact_cluster() -> None:
    """Type and count that match a cluster's name lead to it."""
    choice = choose_cluster(spec(gpu_type="a100-40gb", gpu_count=2), CLUSTERS)
    assert choice.cluster == "2xa100-40gb"
    assert choice.reason == "exact match: 2 × A100-40GB per VM, $7.40 to $8.40/h by region"


def test_count_between_two_sizes_takes_the_larger_by_consent_and_says_so() -> None:
    """Three GPUs run on a VM with four if the job allows it, and the reason says so; otherwise the
    job is refused and the VM offered by name and price."""
    three = spec(gpu_type="a100-40gb", gpu_count=3, allow_larger=True)
    choice = choose_cluster(three, CLUSTERS)
    assert choice.cluster == "4xa100-40gb"
    assert choice.reason.startswith("larger than the 3 asked for, as the job allows: 4 × A100-40GB")
    (text,) = refused(gpu_type="a100-40gb", gpu_count=3, allow_larger=False)
    assert text == (
        "allow_larger: true: no cluster has exactly 3 × A100-40GB per VM; nearest fit: "
        "4xa100-40gb (4 × A100-40GB per VM, $14.70 to $15.70/h by region) with --allow-larger"
    )


def test_needs_beyond_the_exact_size_move_to_a_larger_vm() -> None:
    """A job that needs more memory than its exact size has goes to the next size."""
    choice = choose_cluster(spec(gpu_type="a100-40gb", gpu_count=2, memory_mb=200_000), CLUSTERS)
    assert choice.cluster == "4xa100-40gb"


def test_unknown_type_names_the_nearest() -> None:
    """An unknown GPU type is refused with the ones that look like it."""
    (text,) = refused(gpu_type="a100")
    assert text.startswith("gpu_type: a GPU type that exists (nearest: a100-40gb")
    v100 = cluster("1xv100", 1, "v100", 2.9)
    with pytest.raises(BadInput, match=r"nearest: a100-40gb, v100,"):
        choose_cluster(spec(gpu_type="a100"), [*CLUSTERS, v100])


def test_unknown_type_without_any_near_lists_all() -> None:
    """A GPU type like no other is answered with all there are."""
    (text,) = refused(gpu_type="zzzzzz")
    assert "one of: a100-40gb, h100-80gb, l4" in text


def test_too_many_gpus_name_the_largest() -> None:
    """More GPUs than any VM of the type has is refused with the largest there is."""
    (text,) = refused(gpu_type="a100-40gb", gpu_count=8)
    assert text == "gpu_count: at most 4: the largest cluster with a100-40gb is 4xa100-40gb"
    (text,) = refused(gpu_count=9)
    assert text == "gpu_count: at most 8: the largest cluster of all is 8xh100-80gb"


def test_without_a_type_the_cheapest_that_fits() -> None:
    """No type: the cheapest cluster that has what the job needs."""
    assert choose_cluster(spec(), CLUSTERS).cluster == "1xl4"
    assert choose_cluster(spec(gpu_count=2), CLUSTERS).cluster == "2xa100-40gb"
    assert choose_cluster(spec(regions=("us-west1",)), CLUSTERS).cluster == "2xa100-40gb"


def test_price_counts_only_in_allowed_regions() -> None:
    """A cluster that is cheap elsewhere does not win where the job must run."""
    cheap_elsewhere = cluster("1xt4", 1, "t4", 1.0, "us-west1", "us-east1", "us-central1")
    steady = cluster("1xl4", 1, "l4", 2.5, "us-central1")
    found = choose_cluster(spec(regions=("us-central1",)), (cheap_elsewhere, steady))
    assert found.cluster == "1xl4"


def test_unknown_region_names_the_nearest() -> None:
    """A region that no cluster has is refused with the ones that look like it."""
    (text,) = refused(regions=("us-centrl1",))
    assert text.startswith("regions:")
    assert "us-central1" in text


def test_region_of_another_cluster_is_refused() -> None:
    """A region that exists, but not for the chosen type, is refused with the type's own."""
    (text,) = refused(gpu_type="h100-80gb", regions=("us-west1",))
    assert text == "regions: regions of 8xh100-80gb: us-east4"


def test_no_clusters_at_all() -> None:
    """An empty configuration is an error, not an index out of range."""
    with pytest.raises(BadInput, match="configuration"):
        choose_cluster(spec(), ())


@st.composite
def some_clusters(draw: st.DrawFn) -> list[ClusterSpec]:
    sizes = draw(
        st.lists(
            st.tuples(st.sampled_from((1, 2, 4, 8)), st.sampled_from(("l4", "t4", "a100-40gb"))),
            min_size=1,
            max_size=6,
            unique=True,
        )
    )
    return [
        ClusterSpec(
            name=f"{gpus}x{gpu_type}",
            gpu_type=gpu_type,
            gpus=gpus,
            machine_type="m",
            vm_max=1,
            spot=draw(st.booleans()),
            gpu_memory_gb=draw(st.sampled_from((0, 16, 40))),
            cpus=draw(st.integers(0, 64)),
            memory_gb=draw(st.integers(0, 256)),
            regions=tuple(
                RegionSpec(region, (), draw(st.floats(0.1, 99)), draw(st.floats(0.1, 99)))
                for region in draw(
                    st.lists(st.sampled_from(REGIONS), min_size=1, max_size=3, unique=True)
                )
            ),
        )
        for gpus, gpu_type in sizes
    ]


some_specs = st.builds(
    JobSpec,
    job_id=st.just("j"),
    gpu_type=st.sampled_from((None, "l4", "t4", "a100-40gb", "v100")),
    gpu_count=st.integers(1, 10),
    cluster=st.sampled_from((None, None, None, "1xl4", "8xt4", "3xv100")),
    gpu_memory_mb=st.sampled_from((0, 16_384, 50_000)),
    cpu_cores=st.sampled_from((0, 8.5, 100)),
    memory_mb=st.sampled_from((0, 64_000, 512_000)),
    regions=st.lists(st.sampled_from((*REGIONS, "mars-north1")), max_size=2).map(tuple),
)


@given(some_specs, some_clusters(), st.randoms(use_true_random=False))
def test_choice_fits_whatever_the_order(
    job: JobSpec, clusters: list[ClusterSpec], dice: random.Random
) -> None:
    """A chosen cluster has all that was asked for; a refusal names fields of a submission and
    happens only if nothing fits; and neither depends on the order of the configuration."""
    shuffled = clusters[:]
    dice.shuffle(shuffled)
    try:
        choice = choose_cluster(job, clusters)
    except BadInput as refusal:
        assert all(fault.field in FIELDS for fault in refusal.faults)
        assert all(misfits(job, c) for c in clusters if job.cluster in (None, c.name))
        with pytest.raises(BadInput) as again:
            choose_cluster(job, shuffled)
        assert again.value.faults == refusal.faults
        return
    chosen = next(c for c in clusters if c.name == choice.cluster)
    assert misfits(job, chosen) == []
    assert choose_cluster(job, shuffled) == choice


H100 = replace(CLUSTERS[0], name="1xh100-80gb", gpu_type="h100-80gb", gpus=1, spot=False)
A100 = replace(H100, name="1xa100-80gb", gpu_type="a100-80gb")
NEEDS = ("h100-80gb", "a100-80gb")


def test_types_are_tried_in_the_order_of_the_job() -> None:
    """The first that is not blocked; the reason says what was passed over."""
    first = choose_cluster(spec(gpu_types=NEEDS), (A100, H100))
    assert first.cluster == H100.name
    assert first.reason == (
        "choice 1 of 2, exact match: 1 × H100-80GB per VM, $0.70 to $1.70/h by region"
    )
    blocked = {H100.name: "stockout in all its 3 regions"}
    second = choose_cluster(spec(gpu_types=NEEDS), (A100, H100), blocked)
    assert (second.cluster, second.reason) == (
        A100.name,
        (
            "choice 2 of 2, exact match: 1 × A100-80GB per VM, $0.70 to $1.70/h by region; "
            "passed over: 1xh100-80gb (stockout in all its 3 regions)"
        ),
    )
    both = {**blocked, A100.name: "quota in its region"}
    stays = choose_cluster(spec(gpu_types=NEEDS), (A100, H100), both)
    assert stays.cluster == H100.name
    assert stays.reason.endswith(
        "(stockout in all its 3 regions), and no other cluster that serves the job has"
    )


def test_unknown_type_of_a_list_is_refused_by_name() -> None:
    """A typo must not quietly make the list shorter."""
    with pytest.raises(BadInput) as error:
        choose_cluster(spec(gpu_types=("h100-80gb", "a100-80g")), (A100, H100))
    (fault,) = error.value.faults
    assert (fault.field, fault.got) == ("gpu_types", '"a100-80g"')


def test_denied_regions_leave_the_others() -> None:
    """The price is that of a region that is left; with none left the cluster does not fit."""
    regions = [r.region for r in H100.regions]
    assert choose_cluster(spec(regions_denied=tuple(regions[:-1])), (H100,)).cluster == H100.name
    with pytest.raises(BadInput) as error:
        choose_cluster(spec(regions_denied=tuple(regions)), (H100,))
    assert error.value.faults[0].field == "regions_denied"


def test_shared_vm_is_as_good_as_one_of_the_exact_size() -> None:
    """It costs its part of the VM; a whole VM of that size would be passed over for its price."""
    shared = replace(H100, name="8xh100-80gb", gpus=8, share=True)
    whole = replace(shared, share=False)
    blocked = {H100.name: "stockout in its region"}
    dear = replace(whole, regions=tuple(replace(r, usd_per_hour=99.0) for r in whole.regions))
    request = spec(gpu_type="h100-80gb")
    assert choose_cluster(request, (shared, H100), blocked).cluster == shared.name
    assert choose_cluster(request, (dear, H100), blocked).cluster == H100.name
    capped = spec(gpu_type="h100-80gb", max_usd_per_hour=100.0)
    assert choose_cluster(capped, (dear, H100), blocked).cluster == dear.name
    assert "shared" in choose_cluster(request, (shared,)).reason


def test_what_v1_workers_cannot_run_is_named() -> None:
    """They know workflows, and take whatever job comes next in whichever region."""
    v1 = replace(
        cluster("1xl4", 1, "l4", 0.7),
        worker="v1",
        regions=tuple(RegionSpec(name, (f"{name}-a",), 1.0, 0.5) for name in REGIONS[:2]),
    )
    assert misfits(spec(workflow="train", regions=REGIONS[:2]), v1) == []
    wrong = spec(image="busybox", environment={"A": "b"}, regions=REGIONS[:1], replicas=2)
    found = {fault.field: fault.expected for fault in misfits(wrong, v1)}
    assert set(found) == {"replicas", "workflow", "image", "environment", "regions"}
    assert "override_env" in found["environment"]
    assert misfits(wrong, replace(v1, worker="v2", vm_max=2)) == []


def test_a_cap_below_all_prices_names_the_cheapest() -> None:
    """Who offers too little is told what the cheapest VM costs, not the dearest."""
    cheapest = min(
        (c for c in CLUSTERS if c.gpu_type == "l4"), key=lambda c: c.cheapest_usd_per_hour
    )
    (text,) = refused(gpu_type="l4", max_usd_per_hour=0.01)
    assert text.startswith(f"max_usd_per_hour: at least {cheapest.cheapest_usd_per_hour:g}, ")
    assert f"a VM of {cheapest.name} costs" in text


def test_a_gang_is_judged_by_the_largest_cluster() -> None:
    """More VMs than any cluster has: the largest that the job can use is named, with its limit."""
    small = replace(cluster("8xl4", 8, "l4", 8.0), vm_max=2)
    large = replace(cluster("1xl4", 1, "l4", 0.7), vm_max=8)
    dear = replace(cluster("1xt4", 1, "t4", 0.5), vm_max=5)
    for clusters in ([small, large, dear], [dear, large, small]):
        with pytest.raises(BadInput) as caught:
            choose_cluster(spec(replicas=9), clusters)
        (fault,) = caught.value.faults
        assert (fault.field, fault.got) == ("replicas", "9")
        assert fault.expected == "at most 8: 1xl4 is the largest cluster that the job can use"
    with pytest.raises(BadInput) as caught:
        choose_cluster(spec(replicas=3, gpu_count=8), [small, large, dear])
    assert [str(fault.expected)[:9] for fault in caught.value.faults] == ["at most 2"]
    assert choose_cluster(spec(replicas=6), [small, large, dear]).cluster == "1xl4"
