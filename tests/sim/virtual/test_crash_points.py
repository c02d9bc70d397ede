"""The replica dies at every boundary, once each: nothing is lost and nothing runs once more."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from cli.main import run
from core.messages import OutboxRow
from scheduler.cycle.outbox_relay import PUBLISH_TIMEOUT_S, Relay
from sim.virtual.crash_points import KINDS, JobEnd, crash_at, survey

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EVERY = 5
"""`zen simulate --crash-points` takes every one."""


def test_without_a_crash_the_run_goes_through_all_that_a_job_can_meet() -> None:
    """An end, a failure, a retry, a stop, a lost spot VM; every kind of boundary is passed."""
    calm = crash_at(None)
    assert calm.violations == ()
    assert calm.ended == {
        "ends-well": JobEnd("SUCCEEDED", 1, 1),
        "fails-once": JobEnd("SUCCEEDED", 2, 2),
        "loses-its-vm": JobEnd("SUCCEEDED", 2, 2),
        "is-stopped": JobEnd("CANCELLED", 1, 1),
        "fails": JobEnd("FAILED", 1, 1),
    }
    assert {kind for kind, _ in calm.boundaries} == KINDS.keys()
    assert calm.boundaries == crash_at(None).boundaries, "numbers must mean the same in every run"


def test_a_crash_at_any_boundary_changes_nothing_in_the_end() -> None:
    """Same ends, same attempts, same number of starts on VMs, no VM left, no guarantee broken."""
    found = survey(every=EVERY)
    assert found.faults() == []
    assert all(tried > 0 for _, _, _, tried, _ in found.rows())


def test_an_outbox_that_is_marked_before_it_is_sent_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A start that was never published costs an attempt: the comparison sees it."""

    async def careless(self: Relay, _: str, rows: Sequence[OutboxRow]) -> int:
        await self._store.published([row.outbox_id for row in rows])
        await self._bus.publish([row.message for row in rows], PUBLISH_TIMEOUT_S)
        return len(rows)

    monkeypatch.setattr(Relay, "_send_topic", careless)
    calm = crash_at(None)
    starts = [n for n, where in enumerate(calm.boundaries) if where == ("publish", "before")]
    crashes = (crash_at(number) for number in starts)
    assert any(run.violations or run.ended != calm.ended for run in crashes)


def test_command_prints_what_was_crashed_and_recovered(capsys: pytest.CaptureFixture[str]) -> None:
    """By kind of boundary; exit code 0 if all recovered."""
    words = ["simulate", "--crash-points", "--every", "40", "--workers", "1"]
    assert run(words) == 0
    assert "create or delete call" in capsys.readouterr().out
    assert run([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["faults"] == []
    assert sum(row["crashed"] for row in told["boundaries"]) >= 6
