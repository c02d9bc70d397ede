"""The parts of db/ that need no database: values as rows, guards, folding, page tokens."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.changes import JobProgress, NewVm, Unit, VmBeat, VmMove
from core.errors import BadInput
from core.job import Job, JobEvent, JobSpec
from core.messages import Progress
from core.vm import Vm, VmState, move_vm
from db.ledger import Known, fold, judge
from db.pages import place_of, token_for
from db.rows import JOB_BIRTH, JOB_STATE, VM, clean, storable, to_json
from tests.db.builders import Maker, at, step, submitted

anything = st.text(st.characters(codec=None, exclude_categories=()))


@given(anything)
def test_any_text_can_be_stored(words: str) -> None:
    """Whatever is said becomes text without NUL and half characters; good text stays as it is."""
    kept = clean(words)
    assert "\0" not in kept
    kept.encode()
    if "\0" not in words and not any(0xD800 <= ord(c) < 0xE000 for c in words):
        assert kept == words


@given(st.recursive(anything, lambda inner: st.lists(inner) | st.dictionaries(anything, inner)))
def test_any_json_can_be_stored(value: object) -> None:
    """JSON for the database holds no NUL at any depth."""
    kept = json.loads(to_json(value))
    assert "\0" not in json.dumps(kept, ensure_ascii=False)
    assert "\\u0000" not in json.dumps(kept).replace("\\\\", "")


@given(anything)
def test_specs_are_stored_exactly_or_not_at_all(words: str) -> None:
    """A spec is storable if and only if storing changes nothing in it."""
    spec = JobSpec(job_id="j", command=("echo", words))
    assert storable(spec) == (clean(words) == words)


def test_every_field_has_its_column() -> None:
    """A field that is added to a VM or a job cannot be forgotten here."""
    assert {field.name for field in fields(Vm)} == {field.name for field in VM.fields}
    of_lease = {"lease_id", "vm_name", "vm_uid", "lease_region", "lease_zone", "slots"}
    of_spec = {"tenant_id", "user_id", "job_id", "name", "priority", "labels", "group_id", "tier"}
    of_gang = {"rank", "gang_size"}
    columns = {field.name for field in (*JOB_STATE, *JOB_BIRTH)}
    assert {field.name for field in fields(Job)} - {
        "lease"
    } == columns - of_lease - of_spec - of_gang


def test_refused_units_leave_nothing_behind() -> None:
    """A unit is judged as if those before it were written, and refused ones were not there."""
    maker = Maker()
    one, two, three = maker.vm("a"), maker.vm("b"), maker.vm("a")
    gone = VmMove(one, move_vm(one, VmState.GONE, at(1), "gone"))
    units: list[Unit] = [
        (NewVm(one, 2),),
        (NewVm(two, 2), NewVm(three, 9)),  # the name of the first: b is not made either
        (NewVm(replace(two, cluster="1xl4"), 2),),
        (gone, NewVm(three, 2)),
    ]
    known = Known()
    assert list(judge(units, known)) == [1]
    assert known.vm_counts == {"1xl4": 2}


def test_many_changes_to_one_row_become_one() -> None:
    """Only the last state of each row is written, with all of its history."""
    maker = Maker()
    job, vm = maker.job(), maker.vm()
    admitted = step(job, JobEvent.ADMITTED)
    back = step(admitted.after, JobEvent.WITHDRAWN)
    writes = fold([(submitted(job),), (admitted, back), (VmBeat(vm.uid, at(2)),)])
    assert writes.new_jobs == {job.uid: back.after}
    assert writes.jobs == {}
    assert [entry.event for _, entry in writes.events] == ["submitted", "admitted", "withdrawn"]


def test_beats_and_progress_alone_wake_nobody() -> None:
    """What happens all the time is not worth a turn of the loop."""
    maker = Maker()
    quiet: Unit = (
        VmBeat(maker.vm().uid, at(1)),
        JobProgress(maker.job().uid, 1, Progress(1), None, at(1)),
    )
    assert not fold([quiet]).wakes
    assert fold([quiet, (submitted(maker.job()),)]).wakes


def test_tokens_come_back_as_they_went() -> None:
    """A token holds the place it was made for, and serves one question."""
    uid = Maker().job().uid
    token = token_for(("jobs", "a"), at(0.123456), uid)
    place = place_of(("jobs", "a"), token)
    assert place is not None
    assert (place.at, str(place.uid)) == (at(0.123456), uid)
    with pytest.raises(BadInput, match="page_token"):
        place_of(("jobs", "b"), token)


@given(st.text())
def test_no_token_of_others_is_taken(token: str) -> None:
    """Any other text is refused with the name of the field."""
    with pytest.raises(BadInput, match="page_token"):
        place_of("jobs", token)
