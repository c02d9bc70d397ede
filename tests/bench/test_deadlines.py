"""Jobs with a deadline on made-up spot supply: done in time, and cheaper than standard VMs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.deadlines import KINDS, DeadlineTask, JobWithDeadline, rows, run, supply_for, windows
from sim.replay.supply import Supply
from sim.replay.synthetic import Recipe, make_supply

TASK = DeadlineTask(work_h=8.0, deadline_h=12.0, restart_h=0.1, standard_usd_per_hour=80.0)
STATED, COUNTED, SAVED, UNSAVED, SILENT = KINDS.values()


def supply(seed: int, zones: int = 4) -> Supply:
    made = make_supply(Recipe(seed=seed, days=1.5, regions=zones, zones_per_region=1))
    return replace(made, zones=made.zones[:zones])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_done_in_time_whatever_it_says(seed: int) -> None:
    """No window is missed, not even by jobs that state and report nothing, and each pays less than
    a standard VM would cost from the beginning."""
    where = supply(seed)
    for row in rows(where, TASK, windows(where, TASK, 6.0), seed):
        assert row.missed == 0, row.job
        assert row.usd < TASK.work_h * TASK.standard_usd_per_hour, row.job


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("others", [COUNTED, SAVED])
def test_stating_a_run_time_never_costs_more(seed: int, others: JobWithDeadline) -> None:
    """Over a few windows: a user who states how long the job runs pays no more than one who does
    not."""
    both, starts = supply_for(supply(seed, zones=3), TASK), (0.0, 9.0, 20.0)
    stated = sum(run(both, TASK, STATED, start_h, seed).usd for start_h in starts)
    silent = sum(run(both, TASK, others, start_h, seed).usd for start_h in starts)
    assert stated <= silent + 0.01


def test_what_is_saved_saves_money() -> None:
    """Told of nothing, the planner must take the whole run as left after each preemption, and
    goes to standard VMs sooner."""
    both = supply_for(supply(2, zones=2), TASK)
    told = [run(both, TASK, STATED, start_h, 2).usd for start_h in (0.0, 6.0, 12.0, 18.0)]
    untold = [run(both, TASK, UNSAVED, start_h, 2).usd for start_h in (0.0, 6.0, 12.0, 18.0)]
    assert sum(told) < sum(untold)


def test_without_any_spot_it_goes_to_standard_vms() -> None:
    """Spot zones never give anything: the slack is waited for, and the deadline is kept."""
    never = supply(1, zones=2)
    dark = replace(never, zones=tuple(replace(z, times=(0.0,), counts=(0,)) for z in never.zones))
    found = run(supply_for(dark, TASK), TASK, SILENT, 0.0, 1)
    assert found.standard_starts == 1
    assert not found.missed(TASK)
    assert found.ended_h > TASK.work_h + 2.0
