"""The bus takes no orders for workers for a while: nobody is blamed, and no VM bought, for it."""

from __future__ import annotations

from sim.virtual.world import Plan, Run

REFUSED_FROM_S, REFUSED_UNTIL_S = 20.0, 260.0


def test_worker_that_could_not_be_told_is_not_given_up() -> None:
    """The start waits in the outbox for much longer than a worker has to claim it."""
    run = Run(Plan(seed=3, jobs=12, faults=False))
    refused, topic = run.broker.refused, run.settings.names.control_topic
    assert 3 * run.settings.timers.claim_timeout_s < REFUSED_UNTIL_S - REFUSED_FROM_S
    run.loop.later(REFUSED_FROM_S, refused.add, topic)
    run.loop.later(REFUSED_UNTIL_S, refused.discard, topic)
    outcome = run.run()
    assert not outcome.violations
    assert outcome.transitions["PROVISIONING placed ASSIGNED"] > 0
    assert outcome.transitions["ASSIGNED claim_timeout QUEUED"] == 0
