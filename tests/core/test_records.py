"""Copies of large records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.job_fields import JobSpec
from core.records import Changer

SPEC = JobSpec("a", gpu_type="l4", command=("true",), environment={"A": "b"})


def test_a_changed_record_is_what_replace_makes() -> None:
    """Equal, with the same hash of its fields, and the first stays as it was."""
    changed = Changer(JobSpec)
    assert changed(SPEC) == SPEC
    assert changed(SPEC, job_id="b", group="g") == replace(SPEC, job_id="b", group="g")
    assert SPEC.job_id == "a"


def test_a_field_that_there_is_not_is_a_mistake() -> None:
    """As with replace."""
    with pytest.raises(KeyError):
        Changer(JobSpec)(SPEC, jobid="b")
