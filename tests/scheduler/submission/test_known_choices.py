"""Selections that are kept are the ones that would be made anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from core.cluster import ClusterSpec
from core.errors import BadInput
from core.job_fields import JobSpec
from core.region_blocks import BlockKind, RegionBlock
from scheduler.submission.cluster_selection import choose_cluster
from scheduler.submission.known_choices import KEPT_MAX, NAMED, UNREAD, KnownChoices
from tests.scheduler.api.fakes import CLUSTERS, NOW

SPECS = (
    JobSpec("a", gpu_type="l4"),
    JobSpec("b", gpu_count=2, environment={"A": "b"}),
    JobSpec("c", gpu_types=("h100-80gb", "a100-40gb"), gpu_count=2, replicas=3, allow_larger=True),
    JobSpec("d", gpu_count=0, cpu_cores=2.0, max_usd_per_hour=1.0),
    JobSpec("e", cluster="1xl4", regions=("europe-west4",), array="0-9"),
    JobSpec("f", workflow="w", image="i", working_dir="/w", spot=False),
)


class OnlyAny:
    """A mapping of which only may be asked whether it holds anything."""

    def __init__(self, there: bool) -> None:
        self._there = there

    def __bool__(self) -> bool:
        return self._there


@dataclass(frozen=True)
class WhatIsRead:
    """A job of which cluster selection may read all but the fields that are said to be unread."""

    spec: JobSpec

    def __getattr__(self, name: str) -> Any:
        assert name not in UNREAD, f"cluster selection reads {name}"
        if name in NAMED:
            return OnlyAny(bool(getattr(self.spec, name)))
        return getattr(self.spec, name)

    @property
    def least(self) -> int:
        return JobSpec.least.fget(self)  # type: ignore[attr-defined,no-any-return]

    def allows_region(self, region: str) -> bool:
        return JobSpec.allows_region(self, region)  # type: ignore[arg-type]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.job_id)
def test_selection_reads_no_more_than_the_key_holds(spec: JobSpec) -> None:
    """Else two jobs that differ in another field would get one answer."""
    read: Any = WhatIsRead(spec)
    assert choose_cluster(read, CLUSTERS) == choose_cluster(spec, CLUSTERS)


def choose(
    known: KnownChoices,
    spec: JobSpec,
    clusters: tuple[ClusterSpec, ...] = CLUSTERS,
    blocks: tuple[RegionBlock, ...] = (),
    later_s: float = 0,
) -> str:
    now = NOW + timedelta(seconds=later_s)
    return known.choose(spec, clusters, blocks, now, spot_by_default=False).cluster


def test_the_same_request_is_answered_from_what_is_known() -> None:
    """By the same object, whatever the job is called."""
    known = KnownChoices()
    for spec in SPECS:
        first = known.choose(spec, CLUSTERS, (), NOW, spot_by_default=False)
        assert first == choose_cluster(spec, CLUSTERS)
        other = replace(spec, job_id="other", command=("x",), priority=700)
        assert known.choose(other, CLUSTERS, (), NOW, spot_by_default=False) is first


def test_another_configuration_is_another_answer() -> None:
    """The cluster that was chosen may be drained now."""
    known, spec = KnownChoices(), JobSpec("a", gpu_count=2, allow_larger=False)
    assert choose(known, spec) == "2xa100-40gb"
    drained = tuple(replace(c, drain=c.name == "2xa100-40gb") for c in CLUSTERS)
    with pytest.raises(BadInput, match="is being drained"):
        choose(known, spec, drained)
    assert choose(known, spec) == "2xa100-40gb"


def block(region: str, until_s: float) -> RegionBlock:
    until = NOW + timedelta(seconds=until_s)
    place = (region, "", "machine-1xl4", False, BlockKind.STOCKOUT)
    return RegionBlock(*place, NOW, NOW, until, 1, "")


def test_a_region_block_counts_until_it_ends() -> None:
    """A choice that was made around it is not kept for longer."""
    known, spec = KnownChoices(), JobSpec("a", gpu_count=1, allow_larger=True)
    blocks = (block("us-central1", 60), block("europe-west4", 90))
    assert choose(known, spec) == "1xl4"
    around = choose(known, spec, blocks=blocks)
    assert choose(known, spec, blocks=blocks, later_s=59) == around
    assert choose(known, spec, blocks=blocks, later_s=60) == "1xl4"


def test_what_is_kept_is_bounded() -> None:
    """Jobs that all ask for something else do not fill the memory."""
    known = KnownChoices()
    for megabytes in range(KEPT_MAX + 10):
        choose(known, JobSpec("a", gpu_type="l4", memory_mb=megabytes))
    assert len(known._made) <= KEPT_MAX
