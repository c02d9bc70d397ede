"""Google's answers as our values."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from core.mig import Leaving, MachineState
from migs.responses import leaving, machine_state, read_group_error

M = MachineState


@pytest.mark.parametrize(
    ("status", "machine"),
    [
        ("", M.NONE),
        ("PENDING", M.WAITING),
        ("PROVISIONING", M.STARTING),
        ("STAGING", M.STARTING),
        ("RUNNING", M.RUNNING),
        ("STOPPING", M.STOPPING),
        ("SUSPENDING", M.STOPPING),
        ("TERMINATED", M.OFF),
        ("A_NEW_WORD", M.STOPPING),
    ],
)
def test_machine_state(status: str, machine: MachineState) -> None:
    """A status that Google has not told us of is no place for a job."""
    assert machine_state(status) is machine


def test_leaving() -> None:
    """Only what ends the membership is of interest."""
    assert [leaving(a) for a in ("", "NONE", "CREATING", "RESTARTING")] == [None] * 4
    assert leaving("DELETING") is Leaving.DELETING
    assert leaving("ABANDONING") is Leaving.ABANDONING


@pytest.mark.parametrize(("action", "told"), [("CREATING", True), ("DELETING", False), ("", True)])
def test_errors_of_deletions_are_left_out(action: str, told: bool) -> None:
    """The group's history also tells of members that could not be deleted: they block nothing."""
    url = "zones/us-central1-a/instances/vm-9"
    line = SimpleNamespace(
        timestamp="2026-12-01T10:00:00Z",
        instance_action_details=SimpleNamespace(action=action, instance=url),
        error=SimpleNamespace(code="RESOURCE_NOT_FOUND", message="no vm-9"),
    )
    assert (read_group_error(line) is not None) is told
