"""Text that every store can keep."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.job_fields import JobSpec
from core.text import clean, is_storable

anything = st.text(st.characters(codec=None, exclude_categories=()))


@given(anything)
def test_any_text_can_be_stored(words: str) -> None:
    """Whatever is said becomes text without NUL and half characters; good text stays as it is."""
    kept = clean(words)
    assert "\0" not in kept
    kept.encode()
    if "\0" not in words and not any(0xD800 <= ord(c) < 0xE000 for c in words):
        assert kept == words


@given(anything)
def test_specs_are_stored_exactly_or_not_at_all(words: str) -> None:
    """A spec is storable if and only if storing changes nothing in it."""
    spec = JobSpec(job_id="j", command=("echo", words))
    assert is_storable(spec) == (clean(words) == words)


@given(anything, anything)
def test_every_part_of_a_spec_is_looked_at(key: str, words: str) -> None:
    """Names and values of mappings, at any depth, count as the command does."""
    fine = clean(key) == key and clean(words) == words
    assert is_storable(JobSpec(job_id="j", environment={key: words})) == fine
    assert is_storable(JobSpec(job_id="j", workflow_args={"a": [{key: [words, 1]}]})) == fine
