"""More GPUs than asked for and spot VMs: by consent alone, at submission and ever after."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cluster import ClusterSpec, RegionSpec
from core.errors import BadInput
from core.job_fields import JobSpec
from core.submission import content_hash, parse_submission
from core.timers import Timers
from scheduler.submission.cluster_selection import (
    candidates,
    choose_cluster,
    in_preference,
    misfits,
)
from scheduler.submission.quotes import is_larger, quote_of, usd
from scheduler.submission.tenant_access import Terms


def cluster(name: str, usd_per_hour: float, *, spot: bool = False, **more: object) -> ClusterSpec:
    gpus, _, kind = name.partition("x")
    regions = (RegionSpec("us-central1", (), usd_per_hour, usd_per_hour),)
    base = ClusterSpec(name, kind.removesuffix("-spot"), int(gpus), f"m-{name}", 9, regions)
    return replace(base, spot=spot, **more)  # type: ignore[arg-type]


def spec(**fields: object) -> JobSpec:
    return Terms().agreed({"job_id": "j", **fields})


def refusal(job: JobSpec, *clusters: ClusterSpec) -> str:
    with pytest.raises(BadInput) as caught:
        choose_cluster(job, clusters)
    return str(caught.value)


ONE, FOUR = cluster("1xl4", 0.7), cluster("4xl4", 2.8)
SPOT = cluster("4xt4", 1.0, spot=True)


def test_a_larger_machine_is_offered_and_not_taken() -> None:
    """The refusal names the nearest fit and its price; with consent the same machine is taken."""
    words = refusal(spec(gpu_type="l4", gpu_count=3), ONE, FOUR)
    assert words.startswith("allow_larger: no cluster has exactly 3 × L4 per VM; nearest fit: ")
    assert "4xl4 (4 × L4 per VM, $2.80/h) with --allow-larger" in words
    taken = choose_cluster(spec(gpu_type="l4", gpu_count=3, allow_larger=True), (ONE, FOUR))
    assert (taken.cluster, taken.reason) == (
        "4xl4",
        "larger than the 3 asked for, as the job allows: 4 × L4 per VM, $2.80/h",
    )


def test_a_named_cluster_is_consent_to_its_size_and_not_to_spot() -> None:
    """Its name says how many GPUs a VM has; what stays unused is said."""
    named = choose_cluster(spec(cluster="4xl4"), (ONE, FOUR))
    assert named.reason == "cluster asked for: 4 × L4 per VM, $2.80/h, of which 3 stay unused"
    words = refusal(spec(cluster="4xt4", gpu_count=4), ONE, SPOT)
    assert "spot: got false, expected true to take 4xt4 (4 × T4 per VM, spot, $1.00/h)" in words


def test_a_part_of_a_shared_vm_is_not_larger() -> None:
    """It costs its part, and needs no consent."""
    shared = replace(FOUR, share=True)
    choice = choose_cluster(spec(gpu_type="l4"), (shared,))
    assert choice.reason == "exact match: 1 of the 4 × L4 of a shared VM, $0.70/h"


def test_spot_is_taken_by_consent_alone() -> None:
    """Without it the cluster is offered with its price; a job that wants spot gets the spot VMs of
    its type before the standard ones."""
    words = refusal(spec(gpu_type="t4", gpu_count=4), ONE, SPOT)
    assert "every cluster that fits has spot VMs" in words
    assert "4xt4 (4 × T4 per VM, spot, $1.00/h) with --spot" in words
    both = (cluster("4xt4", 0.9), cluster("4xt4-spot", 1.0, spot=True))
    assert choose_cluster(spec(gpu_type="t4", gpu_count=4), both).cluster == "4xt4"
    assert choose_cluster(spec(gpu_type="t4", gpu_count=4, spot=True), both).cluster == "4xt4-spot"


def test_spot_that_is_not_there_is_refused_with_alternatives() -> None:
    """Standard VMs of what was asked for, and spot VMs that are larger, each with its price."""
    one_t4 = cluster("1xt4", 0.5)
    words = refusal(spec(gpu_type="t4", spot=True), one_t4, SPOT)
    assert words.startswith("spot: no cluster with spot VMs fits as asked; instead: ")
    assert "4xt4 (4 × T4 per VM, spot, $1.00/h) with --allow-larger" in words
    assert "1xt4 (1 × T4 per VM, $0.50/h) without --spot" in words
    assert "without --spot" in refusal(spec(cluster="1xl4", spot=True), ONE)


def test_a_standard_vm_does_not_fit_a_job_that_insists_on_spot() -> None:
    """Where spot VMs are asked for and none fit, the candidates say that standard VMs need the job
    to drop --spot; where some fit, or the tenant alone prefers spot, standard VMs fit too."""
    one_t4, wants = cluster("1xt4", 0.5), spec(gpu_type="t4", spot=True)
    needs = [(c.cluster.name, c.needs) for c in candidates(wants, (one_t4, SPOT))]
    assert needs == [("4xt4", ("allow_larger",)), ("1xt4", ("no_spot",))], "spot VMs first"
    (standard,) = candidates(wants, (one_t4,), spot_by_default=True)
    assert standard.needs == ()
    both = (one_t4, cluster("1xt4-spot", 0.2, spot=True))
    assert [c.needs for c in candidates(wants, both)] == [(), ()]


def test_a_list_of_types_prefers_an_exact_fit() -> None:
    """The second type in the exact size comes before the first type in a larger one."""
    job = spec(gpu_types=("l4", "t4"), gpu_count=1, allow_larger=True)
    choice = choose_cluster(job, (FOUR, cluster("1xt4", 0.5)))
    assert (choice.cluster, choice.reason) == (
        "1xt4",
        "choice 2 of 2, exact match: 1 × T4 per VM, $0.50/h",
    )


def test_a_drained_cluster_is_named() -> None:
    """As the better match when another one is taken, as the reason when none is left."""
    drained, dearer = replace(ONE, drain=True, vm_max=0), cluster("1xt4", 0.9)
    choice = choose_cluster(spec(), (drained, dearer))
    assert (choice.cluster, choice.reason) == (
        "1xt4",
        (
            "cheapest match: 1 × T4 per VM, $0.90/h; 1xl4 would be the better match and is being "
            "drained"
        ),
    )
    words = refusal(spec(gpu_type="l4"), drained, dearer)
    assert "1xl4 (1 × L4 per VM, $0.70/h) would be the match and is being drained" in words
    assert "drained" not in choose_cluster(spec(gpu_type="t4"), (drained, dearer)).reason
    assert "drained" not in refusal(spec(spot=True), drained, dearer)


def test_the_price_is_of_the_whole_submission() -> None:
    """Replicas × jobs of an array, as many as the limit of the cluster lets run at once."""
    assert quote_of(spec(replicas=4), FOUR).total_usd_per_hour == pytest.approx(11.2)
    assert quote_of(spec(array="1-100"), FOUR).vms == 9
    assert quote_of(spec(replicas=2), ONE).words() == (
        "1 × L4 per VM, $0.70/h each, $1.40/h for 2 VMs"
    )


def test_a_dear_region_counts_unless_the_job_excludes_it() -> None:
    """The price goes from the cheapest to the dearest region that the job may be given."""
    regions = tuple(RegionSpec(n, (), p, p) for n, p in (("us-a1", 0.7), ("us-b1", 1.1)))
    wide = replace(ONE, regions=regions)
    assert quote_of(spec(), wide).price == "$0.70 to $1.10/h by region"
    assert quote_of(spec(max_usd_per_hour=1.0), wide).price == "$0.70/h"
    assert quote_of(spec(regions=("us-b1",)), wide).price == "$1.10/h"
    assert (usd(0.012), usd(0.0)) == ("$0.012", "$0.00")


def test_jobs_from_before_keep_their_meaning() -> None:
    """A stored job that says nothing may still have a larger machine and spot VMs, and a repeat of
    its submission is still the same one."""
    old = JobSpec("j", gpu_type="t4", gpu_count=3)
    assert (old.spot, old.allow_larger) == (None, None)
    assert [c.name for c in in_preference(old, (SPOT,))] == ["4xt4"]
    body = {"job_id": "j", "command": ["true"], "gpu_count": 3, "gpu_type": "t4"}
    before = parse_submission(body, Timers(), "x")
    assert content_hash(before) != content_hash(
        parse_submission({**body, "allow_larger": True}, Timers(), "x")
    )
    assert content_hash(before) == content_hash(replace(before, allow_larger=None, spot=None))


@st.composite
def fleets(draw: st.DrawFn) -> list[ClusterSpec]:
    kinds = st.tuples(st.sampled_from((1, 2, 4, 8)), st.sampled_from(("l4", "t4")), st.booleans())
    made = draw(st.lists(kinds, min_size=1, max_size=6, unique=True))
    return [
        cluster(
            f"{gpus}x{kind}{'-spot' if spot else ''}",
            draw(st.floats(0.1, 9)),
            spot=spot,
            share=draw(st.booleans()),
            drain=draw(st.integers(0, 4)) == 0,
        )
        for gpus, kind, spot in made
    ]


jobs = st.builds(
    spec,
    gpu_types=st.sampled_from(((), ("l4",), ("t4", "l4"), ("l4", "t4"))),
    gpu_count=st.integers(1, 8),
    spot=st.booleans(),
    allow_larger=st.booleans(),
    max_usd_per_hour=st.sampled_from((None, 5.0)),
)


@given(jobs, fleets(), st.randoms(use_true_random=False))
def test_consent_holds_whatever_there_is(
    job: JobSpec, clusters: list[ClusterSpec], dice: random.Random
) -> None:
    """What is taken, now or by a reroute later, was agreed to; an exact fit wins over a larger VM;
    and the order of the clusters decides nothing."""
    shuffled = clusters[:]
    dice.shuffle(shuffled)
    try:
        choice = choose_cluster(job, clusters)
    except BadInput as refused:
        assert refusal(job, *shuffled) == str(refused)
        return
    assert choose_cluster(job, shuffled) == choice
    serving = in_preference(job, [c for c in clusters if not c.drain])
    for found in serving:
        assert job.spot or not found.spot
        assert job.allow_larger or not is_larger(job, found)
        assert not misfits(job, found)
    sizes = [is_larger(job, found) for found in serving]
    assert sizes == sorted(sizes)
    assert choice.cluster == serving[0].name
    assert not next(c for c in clusters if c.name == choice.cluster).drain


def test_a_move_costs_no_more_than_was_confirmed() -> None:
    """An array is told the price of the two VMs that its cluster can run. Where sixteen run at once
    it would cost more than is bought without asking: no job of it is moved there."""
    terms = Terms(confirm_above_usd_per_hour=10.0)
    few, many = cluster("1xl4", 3.0, vm_max=2), cluster("1xl4-b", 3.5, gpu_type="l4", vm_max=16)
    for asked, moves in ((spec(array="1-100"), False), (spec(array="1-2"), True), (spec(), True)):
        quote = quote_of(asked, few)
        terms.refuse_dear(asked, quote, None)
        one = replace(terms.priced(asked, quote), array=None)
        assert (not misfits(one, many)) is moves
