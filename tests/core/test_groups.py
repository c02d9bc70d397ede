"""The words of arrays, groups and dependencies."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput, IllegalTransition
from core.groups import ARRAY_MAX, After, GroupKey, dependency_words, parse_after, parse_array
from core.job import BLOCKED_MAX_S, E, Job, JobStatus, Rules, S
from core.job_fields import JobSpec
from core.job_steps import advance, new_job
from core.reads import GroupRow
from core.submission import content_hash, parse_submission
from core.timers import Timers

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        ("1-4", (1, 2, 3, 4)),
        ("7", (7,)),
        ("1,5, 3", (1, 3, 5)),
        ("0-90:30", (0, 30, 60, 90)),
        ("1-3,10-20:5", (1, 2, 3, 10, 15, 20)),
    ],
)
def test_ranges_lists_and_steps(text: str, indexes: tuple[int, ...]) -> None:
    """An array is written as people write ranges, lists, and steps."""
    assert parse_array(text) == indexes


@pytest.mark.parametrize(
    "text", ["", "a", "3-1", "1-5:0", "1,1", "1-3,2", "-1", "1-", f"0-{ARRAY_MAX}", "1-9999999"]
)
def test_what_is_no_array_is_refused(text: str) -> None:
    """Nothing, letters, backward ranges, an index twice, and too many of them."""
    assert parse_array(text) is None


@given(st.sets(st.integers(0, 99_999), min_size=1, max_size=50))
def test_any_list_is_its_own_indexes(indexes: set[int]) -> None:
    """A list of numbers means these numbers, in order."""
    assert parse_array(",".join(map(str, indexes))) == tuple(sorted(indexes))


def test_after_says_which_end_will_do() -> None:
    """A dependency must end well unless any end will do."""
    assert parse_after("a") == parse_after("a:ok") == After("a")
    assert parse_after("a:any") == After("a", good_only=False)
    assert parse_after("a:bad") is None
    assert parse_after(":ok") is None
    assert dependency_words(["a:ok", "b:any"]) == "waits for the end of a, b (in any way)"


def test_counts_in_words() -> None:
    """The line under a group's jobs."""
    words = GroupRow(
        GroupKey("default", "0", "g"), {JobStatus.RUNNING: 3, JobStatus.SUCCEEDED: 997}
    ).words
    assert words == "1000 jobs: 3 RUNNING, 997 SUCCEEDED"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"array": "5-1"}, "array"),
        ({"array": "1-3", "group": "g"}, "group"),
        ({"array": "1-3", "job_id": "x" * 62}, "job_id"),
        ({"after": "a"}, "after"),
        ({"after": ["a", "a:any"]}, "after"),
        ({"after": ["me"], "job_id": "me"}, "after"),
        ({"after": ["g"], "group": "g"}, "after"),
    ],
)
def test_faults_name_their_field(fields: dict[str, object], named: str) -> None:
    """Wrong arrays, ids that grow too long, a job that would wait for itself."""
    with pytest.raises(BadInput) as caught:
        parse_submission({"command": ["true"], **fields}, Timers(), "fresh")
    assert [fault.field for fault in caught.value.faults] == [named]


def test_an_older_submission_keeps_its_hash() -> None:
    """Fields that came later leave the hash of a submission without them alone."""
    spec = JobSpec("j", command=("true",))
    assert content_hash(spec) == "5e0b605f88618d6d53c076029f78d1e8989634755ec86bd609e91db77b8a882c"
    assert content_hash(replace(spec, group="g")) != content_hash(spec)


def blocked_job() -> Job:
    spec = JobSpec("j", command=("true",), queue_timeout_s=60)
    return new_job("u", spec, "1xl4", NOW, blocked="u")


def test_a_blocked_job_is_not_admitted() -> None:
    """Behind a hold there is no way but its release, a stop, a bad end, or its long deadline."""
    job = blocked_job()
    with pytest.raises(IllegalTransition):
        advance(job, E.ADMITTED, NOW, Rules())
    assert job.deadline_at == NOW + timedelta(seconds=BLOCKED_MAX_S)
    for event in (E.STOP_ASKED, E.DEPENDENCY_FAILED, E.QUEUE_TIMEOUT):
        assert advance(job, event, NOW, Rules()).blocked is None


def test_the_queue_clock_starts_at_the_release() -> None:
    """Waiting for jobs of the same user uses up neither the queue time-out nor the aging limit."""
    job, later = blocked_job(), NOW + timedelta(hours=5)
    free = advance(job, E.RELEASED, later, Rules())
    assert (free.status, free.blocked, free.queued_since) == (S.QUEUED, None, later)
    assert free.deadline_at == later + timedelta(seconds=60)
    assert free.due - later == job.due - NOW
    assert advance(free, E.ADMITTED, later, Rules()).status is S.PROVISIONING
