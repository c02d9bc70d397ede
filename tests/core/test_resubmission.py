"""A stored job as a submission: reading it makes the same job again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.job_fields import JobSpec
from core.members import Member, member_spec
from core.resubmission import array_submission_of, submission_of
from core.submission import parse_submission
from core.timers import Timers

TIMERS = Timers()
SUBMISSIONS: dict[str, dict[str, object]] = {
    "the least": {"command": ["true"]},
    "a script": {"script": "echo $A", "environment": {"A": "1"}, "labels": {"team": "vision"}},
    "shell": {"command": ["make && make"], "shell": True, "stop_grace_s": 5},
    "image with arguments": {"image": "python:3.12", "args": ["-c", "print(1)"], "memory_mb": 512},
    "elastic": {"command": ["t"], "replicas": {"min": 2, "max": 8}, "same_zone": True},
    "gang": {"command": ["t"], "replicas": 3, "gpu_type": "l4", "gpu_count": 4},
    "choices": {
        "command": ["t"],
        "gpu_types": ["h100-80gb", "l4"],
        "regions": ["us-west1"],
        "spot": True,
        "deadline": "2030-09-01T18:00:00+00:00",
        "after": ["prep:any"],
        "max_runtime_minutes": 90,
        "secrets": {"T": "zen://T"},
        "priority": "high",
        "retries": 2,
    },
    "no GPU": {"command": ["t"], "cluster": "0xcpu"},
}


@pytest.mark.parametrize("said", SUBMISSIONS.values(), ids=SUBMISSIONS)
def test_a_job_is_submitted_again_as_it_was(said: dict[str, object]) -> None:
    """What is made of a stored job is read as that job, but for its id."""
    spec = parse_submission({**said, "job_id": "one"}, TIMERS, "")
    again = submission_of(spec)
    assert "job_id" not in again
    assert parse_submission(again, TIMERS, "two") == replace(spec, job_id="two")


def test_default_of_the_configuration_is_said() -> None:
    """The service may have another default by now; the job keeps its own."""
    spec = JobSpec(job_id="one", command=("true",))
    assert submission_of(spec)["max_runtime_minutes"] == spec.max_runtime_s / 60


def test_array_and_one_of_its_jobs() -> None:
    """One job keeps its index and leaves the array; the array as a whole is what was submitted."""
    whole = {"command": ["t"], "array": "1-3", "environment": {"A": "1"}}
    spec = parse_submission({**whole, "job_id": "sweep"}, TIMERS, "")
    second = member_spec(spec, Member(2))
    alone = submission_of(second)
    assert alone["environment"] == {"A": "1", "ZEN_ARRAY_ID": "sweep", "ZEN_ARRAY_INDEX": "2"}
    assert not {"array", "group"} & alone.keys()
    assert parse_submission(array_submission_of(second), TIMERS, "sweep") == spec
