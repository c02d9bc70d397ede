from __future__ import annotations

from core.job_fields import JobSpec
from core.members import Member, count_of, first_job_id, member_spec, members_of


def ids_of(spec: JobSpec) -> list[str]:
    return [member_spec(spec, member).job_id for member in members_of(spec)]


def test_a_job_is_its_only_member() -> None:
    """As it was submitted, the very same object."""
    spec = JobSpec("alone", environment={"A": "1"})
    assert list(members_of(spec)) == [Member()]
    assert count_of(spec) == 1
    assert member_spec(spec, Member()) is spec


def test_an_array_has_a_job_for_each_index() -> None:
    """In the group of its id, with its place in the environment."""
    spec = JobSpec("sweep", array="1-3,9", environment={"A": "1"})
    assert ids_of(spec) == ["sweep-1", "sweep-2", "sweep-3", "sweep-9"]
    assert (count_of(spec), first_job_id(spec)) == (4, "sweep-1")
    member = member_spec(spec, Member(9))
    assert member.group == "sweep"
    assert member.environment == {"A": "1", "ZEN_ARRAY_ID": "sweep", "ZEN_ARRAY_INDEX": "9"}


def test_of_a_gang_the_first_member_is_as_submitted() -> None:
    """The others have longer ids and are in no group: a group counts the gang once."""
    spec = JobSpec("train", replicas=3, group="night")
    assert ids_of(spec) == ["train", "train.1", "train.2"]
    assert member_spec(spec, Member(rank=0)) is spec
    assert member_spec(spec, Member(rank=2)).group is None


def test_an_array_of_gangs_has_all_members_of_each() -> None:
    """Gang by gang."""
    spec = JobSpec("grid", replicas=2, array="0,5")
    assert ids_of(spec) == ["grid-0", "grid-0.1", "grid-5", "grid-5.1"]
    assert count_of(spec) == 4
    last = member_spec(spec, Member(5, 1))
    assert last.group is None
    assert last.environment["ZEN_ARRAY_INDEX"] == "5"
