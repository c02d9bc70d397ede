"""Names, timers and ids."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from core.ids import RandomIds
from core.names import BadName, Names, parse_cluster
from core.timers import Timers

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_vm_names_are_parsed_where_they_are_made() -> None:
    """Also when cluster and region contain dashes and digits."""
    names = Names()
    name = names.vm("4xa100-40gb", "us-central1", "x7k2")
    assert name == "pipeline-zen-jobs-4xa100-40gb-us-central1-vm-x7k2"
    assert names.parse_vm(name) == ("4xa100-40gb", "us-central1")


@pytest.mark.parametrize("bad", ["", "foo", "pipeline-zen-jobs-1xl4-us-central1-vm", "x-vm-abcd"])
def test_name_that_does_not_parse_is_in_the_error(bad: str) -> None:
    """So that a human can find the machine."""
    with pytest.raises(BadName, match="VM name"):
        Names().parse_vm(bad)


def test_cluster_name_gives_gpus_and_type() -> None:
    """<number>x<type>."""
    assert parse_cluster("8xh100-80gb") == (8, "h100-80gb")
    assert parse_cluster("8xh100-80gb-spot") == (8, "h100-80gb")
    with pytest.raises(BadName):
        parse_cluster("h100")


def test_default_timers_keep_their_guarantees() -> None:
    """The defaults must not contradict each other."""
    assert Timers().faults() == []


def test_worker_must_freeze_before_its_job_is_given_away() -> None:
    """self_stop_after_s + publish_timeout_s < lost_after_s."""
    found = replace(Timers(), self_stop_after_s=85.0).faults()
    assert [fault.field for fault in found] == ["timers.self_stop_after_s"]


def test_timer_that_is_not_positive_is_a_fault() -> None:
    """Zero seconds is no time-out."""
    assert any(f.field == "timers.boot_timeout_s" for f in Timers(boot_timeout_s=0).faults())


def test_ids_sort_by_time_and_repeat_by_seed() -> None:
    """Simulations need the same names again."""
    ids = RandomIds(random.Random(1))
    older, newer = ids.uid(NOW), ids.uid(NOW + timedelta(seconds=1))
    assert older < newer
    assert RandomIds(random.Random(1)).uid(NOW) == older
    assert len(ids.suffix()) == 4
