"""What a submission may contain."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from core.job_fields import FIELDS, JobSpec
from core.submission import content_hash, json_schema, nearest, parse_submission
from core.timers import Timers

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)

FIRST_FIELDS = (
    *("job_id", "user_id", "tenant_id", "name", "labels", "priority", "keep_alive"),
    *("command", "shell", "environment", "workflow", "workflow_args", "cluster", "regions"),
    *("gpu_type", "gpu_count", "gpu_memory_mb", "cpu_cores", "memory_mb"),
    *("max_runtime_s", "queue_timeout_s", "stop_grace_s", "retries"),
)
"""Of the first version: always part of the hash."""


def parse(**data: object) -> JobSpec:
    return parse_submission(data, Timers(), "fresh")


def faults_of(**data: object) -> dict[str, str]:
    with pytest.raises(BadInput) as caught:
        parse(**data)
    return {fault.field: fault.expected for fault in caught.value.faults}


def test_smallest_submission_is_a_command() -> None:
    """Everything else has a default."""
    spec = parse(command=["true"])
    assert (spec.job_id, spec.gpu_count, spec.priority, spec.user_id) == ("fresh", 1, 500, "0")


def test_every_fault_is_reported_at_once() -> None:
    """One answer, all the work."""
    found = faults_of(command=[], gpu_count=-1, job_id="../x", colour="red", priority="huge")
    assert set(found) == {"command", "gpu_count", "job_id", "colour", "priority"}


@pytest.mark.parametrize(
    ("word", "priority"), [("low", 0), ("normal", 500), ("High", 1000), ("urgent", 2000), (7, 7)]
)
def test_a_priority_may_be_the_name_of_its_class(word: object, priority: int) -> None:
    """The name stands for the lowest of its class, and is the same submission as the number."""
    named = parse(command=["a"], priority=word)
    assert named.priority == priority
    assert content_hash(named) == content_hash(parse(command=["a"], priority=priority))


def test_a_priority_that_is_no_class_is_told_both_ways() -> None:
    """The range and the names, no words of a library."""
    expected = "a whole number from 0 to 9999, or low, normal, high, urgent"
    assert faults_of(command=["a"], priority="huge") == {"priority": expected}


@pytest.mark.parametrize("count", [-1, 65, 10**12, 1.5, "2", True, None, [1]])
def test_absurd_gpu_counts_are_refused(count: object) -> None:
    """With the range in the message."""
    assert "0 to 64" in faults_of(command=["x"], gpu_count=count)["gpu_count"]


def test_unknown_field_names_its_neighbour() -> None:
    """Refused, not ignored."""
    assert "gpu_count" in faults_of(command=["x"], gpu_cuont=1)["gpu_cuont"]
    assert "gpu_count" in faults_of(command=["x"], gpus=2)["gpus"], "as --gpus is called"


@pytest.mark.parametrize("bad", ["", "a b", "../etc", "-x", "x" * 64, "é", 7, "a\n", "a/b"])
def test_ids_that_break_the_pattern_are_refused(bad: object) -> None:
    """An id is part of paths and names."""
    assert "job_id" in faults_of(command=["x"], job_id=bad)


def test_shell_wants_one_string() -> None:
    """A list under shell would lose its quoting."""
    assert "command" in faults_of(command=["echo", "a"], shell=True)
    assert parse(command=["echo a | cat"], shell=True).shell


def test_program_must_have_a_name() -> None:
    """An empty first word would boot a VM for nothing."""
    assert "command" in faults_of(command=[""])
    assert "command" in faults_of(command=[" ", "x"])


def test_gpu_types_may_be_written_in_any_case() -> None:
    """People write L4 and A100-40GB."""
    assert parse(command=["x"], gpu_type="A100-40GB").gpu_type == "a100-40gb"


def test_args_follow_the_command() -> None:
    """Both lists make one argv."""
    assert parse(command=["python3"], args=["-c", "1"]).command == ("python3", "-c", "1")


def test_body_that_is_no_object_is_refused() -> None:
    """With the word 'body' in it."""
    with pytest.raises(BadInput, match="body"):
        parse_submission([1], Timers(), "x")


@given(st.dictionaries(st.sampled_from([*FIELDS, "other"]), JSON, max_size=8))
def test_any_json_is_a_spec_or_bad_input(data: dict[str, object]) -> None:
    """Nothing else is ever raised."""
    try:
        spec = parse_submission(data, Timers(), "fresh")
    except BadInput as error:
        assert error.faults
    else:
        assert content_hash(spec) == content_hash(spec)


def test_labels_of_a_large_array_are_bounded() -> None:
    """Each of its jobs is found by them: they are stored with each."""
    labels = {"team": "x" * 1000}
    assert parse(command=["x"], labels=labels, array="1-1000").labels == labels
    fault = faults_of(command=["x"], labels=labels, array="1-10000")["labels"]
    assert "at most 400 bytes" in fault


def test_content_hash_tells_contents_apart() -> None:
    """Same words, same hash; one word other, another hash."""
    assert content_hash(parse(command=["a"])) == content_hash(parse(command=["a"]))
    assert content_hash(parse(command=["a"])) != content_hash(parse(command=["a"], priority=501))


@given(st.text(max_size=8), st.lists(st.text(max_size=4)), st.floats(allow_nan=False))
def test_content_hash_is_that_of_sorted_json(text: str, words: list[str], number: float) -> None:
    """What was stored by earlier releases is compared with it: the text may not change."""
    spec = JobSpec(
        job_id="j",
        user_id="u",
        name=text,
        command=tuple(words),
        labels={"b": text, "a": ""},
        max_runtime_s=number,
        gpu_count=3,
        keep_alive=True,
        group=text or None,
    )
    said = {name: getattr(spec, name) for name in FIRST_FIELDS} | ({"group": text} if text else {})
    whole = json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    assert content_hash(spec) == hashlib.sha256(whole).hexdigest()


def test_schema_names_every_field() -> None:
    """The documentation is made of the same table."""
    properties = json_schema()["properties"]
    assert isinstance(properties, dict)
    assert set(properties) == set(FIELDS)


def test_nearest_lists_all_when_nothing_is_near() -> None:
    """So that the reader can choose."""
    assert nearest("zzzz", ["l4", "t4"]) == "one of: l4, t4"
    assert "a100-40gb" in nearest("a100", ["a100-40gb", "t4"])


def test_types_in_order_of_preference_and_denied_regions() -> None:
    """Small letters, in the order given."""
    spec = parse(command=["x"], gpu_types=["H100-80GB", "l4"], regions_denied=["us-west1"])
    assert spec.gpu_types == ("h100-80gb", "l4")
    assert [spec.allows_region(name) for name in ("us-west1", "us-east1")] == [False, True]


@pytest.mark.parametrize("bad", ["l4", ["l4", "L4"], [1], ["no such/thing"], ["x"] * 17, None])
def test_type_lists_that_cannot_be_meant_are_refused(bad: object) -> None:
    """Not a list, a type twice, not a name, too many."""
    assert "preferred one first" in faults_of(command=["x"], gpu_types=bad)["gpu_types"]


def test_fields_that_contradict_each_other_are_refused() -> None:
    """One type or several; a region wanted or denied."""
    both = faults_of(command=["x"], gpu_type="l4", gpu_types=["t4", "l4"])
    assert both == {"gpu_types": "gpu_type or gpu_types, not both"}
    found = faults_of(command=["x"], regions=["us-east1"], regions_denied=["us-east1"])
    assert set(found) == {"regions_denied"}
