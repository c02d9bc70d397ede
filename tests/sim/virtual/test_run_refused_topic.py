"""The bus takes no orders for workers for a while: nobody is blamed, and no place, for it."""

from __future__ import annotations

import json

import pytest

from core.messages import OutMessage
from messaging.errors import ContentRefused
from sim.virtual.run import SimulationPlan, SimulationRun

REFUSED_FROM_S, REFUSED_UNTIL_S = 20.0, 260.0


def test_worker_that_could_not_be_told_is_not_given_up() -> None:
    """The start waits in the outbox for much longer than a worker has to claim it."""
    run = SimulationRun(SimulationPlan(seed=3, jobs=12, faults=False))
    refused, topic = run.broker.refused, run.settings.names.control_topic
    assert 3 * run.settings.timers.claim_timeout_s < REFUSED_UNTIL_S - REFUSED_FROM_S
    run.loop.later(REFUSED_FROM_S, refused.add, topic)
    run.loop.later(REFUSED_UNTIL_S, refused.discard, topic)
    outcome = run.run()
    assert not outcome.violations
    assert outcome.transitions["PROVISIONING placed ASSIGNED"] > 0
    assert outcome.transitions["ASSIGNED claim_timeout QUEUED"] == 0


def refuse(run: SimulationRun, job_id: str = "") -> None:
    """For a while the bus refuses what orders say: those about one job, or all of them."""
    check, topic = run.broker.check, run.settings.names.control_topic

    def checked(message: OutMessage) -> None:
        check(message)
        now = REFUSED_FROM_S <= run.loop.time() < REFUSED_UNTIL_S and message.topic == topic
        start = message.attributes.get("kind") == "start"
        if now and (
            not job_id or (start and json.loads(run.checkers.opened(message))["job_id"] == job_id)
        ):
            raise ContentRefused("no such field")

    run.broker.check = checked  # type: ignore[method-assign]


def test_topic_that_takes_nothing_blames_no_worker() -> None:
    """Somebody gave it a schema: every order is refused for what it says."""
    run = SimulationRun(SimulationPlan(seed=3, jobs=12, faults=False))
    refuse(run)
    outcome = run.run()
    assert not outcome.violations
    assert outcome.transitions["ASSIGNED claim_timeout QUEUED"] == 0


def test_job_whose_orders_are_refused_blocks_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start can never be sent, so it ends. That is its own matter: no worker and no region is
    taken for broken, and the others run."""
    monkeypatch.setattr(f"{__name__}.REFUSED_UNTIL_S", 2400.0)
    run = SimulationRun(SimulationPlan(seed=3, jobs=12, faults=False))
    refuse(run, "job-1")
    outcome = run.run()
    assert not outcome.violations
    assert outcome.transitions["ASSIGNED start_refused FAILED"] == 1
    assert outcome.transitions["ASSIGNED claim_timeout QUEUED"] == 0
    assert outcome.faults["alert_cloud_unclaimed"] == 0
