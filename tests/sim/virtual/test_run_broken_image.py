"""Nothing boots on the machines for a while: people are told, jobs wait, and end in the end."""

from __future__ import annotations

import pytest

from sim.cloud.model import EffectKind, VmInfo
from sim.virtual.run import SeedResult, SimulationPlan, SimulationRun

BROKEN_S = 1300.0
"""Long enough for three boots in a row to fail."""


def play(*, heard: bool) -> SeedResult:
    run = SimulationRun(SimulationPlan(seed=3, jobs=3, faults=False))
    assert 4 * run.settings.timers.boot_timeout_s < BROKEN_S
    machines, works = run.cloud.machines, run.cloud.machines[EffectKind.POWER_ON]

    def power_on(vm: VmInfo) -> None:
        if run.loop.time() >= BROKEN_S:
            works(vm)

    machines[EffectKind.POWER_ON] = power_on
    if not heard:
        topic, refused = run.settings.names.heartbeat_topic, run.broker.refused
        refused.add(topic)
        run.loop.later(BROKEN_S, refused.discard, topic)
    return run.run()


@pytest.mark.parametrize("heard", [True, False], ids=["bus works", "bus is away"])
def test_vms_that_never_get_ready_are_told_of_and_no_job_is_lost(heard: bool) -> None:
    """While nobody can hear workers, nobody is blamed."""
    outcome = play(heard=heard)
    assert not outcome.violations
    assert outcome.statuses.keys() <= {"SUCCEEDED", "CANCELLED"}
    assert (outcome.faults["alert_cloud_unready"] > 0) is heard
