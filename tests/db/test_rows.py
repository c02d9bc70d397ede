"""Values as rows, without a database."""

from __future__ import annotations

import json
from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from core.job import Job
from core.vm import Vm
from db.rows import JOB_BIRTH, JOB_STATE, VM, to_json

anything = st.text(st.characters(codec=None, exclude_categories=()))


@given(st.recursive(anything, lambda inner: st.lists(inner) | st.dictionaries(anything, inner)))
def test_any_json_can_be_stored(value: object) -> None:
    """JSON for the database holds no NUL at any depth."""
    kept = json.loads(to_json(value))
    assert "\0" not in json.dumps(kept, ensure_ascii=False)
    assert "\\u0000" not in json.dumps(kept).replace("\\\\", "")


def test_every_field_has_its_column() -> None:
    """A field that is added to a VM or a job cannot be forgotten here."""
    assert {field.name for field in fields(Vm)} == {field.name for field in VM.fields}
    of_lease = {"lease_id", "vm_name", "vm_uid", "lease_region", "lease_zone", "slots"}
    of_spec = {"tenant_id", "user_id", "job_id", "name", "priority", "labels", "group_id", "tier"}
    of_gang = {"rank", "gang_size"}
    columns = {field.name for field in (*JOB_STATE, *JOB_BIRTH)}
    # The spec is written with what it shares with others.
    own = {field.name for field in fields(Job)} - {"lease", "spec"}
    assert own == columns - of_lease - of_spec - of_gang
