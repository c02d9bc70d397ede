"""A job as a submission, as far as the caller may know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from core.access import Scope
from core.errors import BadInput, Fault
from core.job import Job
from core.resubmission import array_submission_of, submission_of
from scheduler.api.caller import ApiCaller
from scheduler.api.http.params import Param

WHOLE_ARRAY = Param(
    "whole_array",
    "flag",
    "Of a job of an array: the submission of all its jobs.",
    default=False,
)


class SubmissionOut(Struct, frozen=True):
    """What to submit for the same job again."""

    job_id: str
    submission: Mapping[str, Any]
    """Fields, as in POST /api/v1/jobs; without `job_id`, and without `user_id` if the caller cannot
    submit for that user."""
    hidden: tuple[str, ...]
    """Variables of the environment whose values the caller may not see: they are left out."""
    array: str | None
    """The indexes of the array that the job belongs to."""


def submission_out(job: Job, caller: ApiCaller, *, whole: bool) -> SubmissionOut:
    """BadInput if all jobs of an array are asked for, and it belongs to none."""
    spec = job.spec
    if whole and spec.array is None:
        raise BadInput([Fault(WHOLE_ARRAY.name, "true", "false: the job belongs to no array")])
    found = array_submission_of(spec) if whole else submission_of(spec)
    principal = caller.principal
    if spec.user_id != principal.user_id and Scope.ON_BEHALF_OF not in principal.scopes:
        found.pop("user_id", None)
    hidden: tuple[str, ...] = ()
    if not caller.sees_environment(spec):
        hidden = tuple(sorted(found.pop("environment", {})))
    return SubmissionOut(spec.job_id, found, hidden, spec.array)
