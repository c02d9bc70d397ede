"""The model of what a fleet needs: linear in what moves, and fitted to what was measured."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bench.scale import (
    LARGE,
    LEADER,
    MEASURED,
    RUN_S,
    RUSH_ENDS_PER_S,
    SOURCES,
    FleetSize,
    UnitCosts,
    checked_size,
    fitted,
    leader_cores,
    needs,
    page_of,
)

SIZE = FleetSize(vms=10_000, queued=0, heartbeat_s=10, submits_per_s=0, ends_per_s=0)


def test_a_leader_pays_for_what_moves_not_for_what_waits() -> None:
    """Twice the heartbeats, twice their CPU; ten million queued jobs cost the leader none."""
    costs = replace(MEASURED, leader_ms_per_s=0.0)
    once = leader_cores(SIZE, costs)
    assert once == pytest.approx(1000 * costs.heartbeat_ms / 1000)
    assert leader_cores(replace(SIZE, vms=20_000), costs) == pytest.approx(2 * once)
    assert leader_cores(replace(SIZE, heartbeat_s=5), costs) == pytest.approx(2 * once)
    assert leader_cores(replace(SIZE, queued=10_000_000), costs) == once
    assert leader_cores(replace(SIZE, ends_per_s=10), costs) == pytest.approx(
        once + costs.end_ms / 100
    )


def test_the_scarcest_comes_first_and_says_what_follows() -> None:
    """Each limit names what takes its place."""
    found = needs(LARGE, MEASURED)
    assert [one.share for one in found] == sorted((one.share for one in found), reverse=True)
    assert all(one.then for one in found)
    assert {one.what for one in found} >= {LEADER, "Pub/Sub subscriptions", "database"}


def _measured(vms: int, costs: UnitCosts) -> dict[str, float]:
    found: dict[str, float] = {"rss_mb": costs.leader_mb + vms * costs.vm_kb / 1000}
    found["ready_s"] = costs.ready_s
    for name, ends in (("steady", vms / RUN_S), ("rush", RUSH_ENDS_PER_S)):
        size = checked_size(vms, ends)
        found[f"{name}_cores"] = leader_cores(size, costs)
        found[f"{name}_server_cores"] = (
            vms / 10 * costs.server_heartbeat_ms + ends * costs.server_end_ms
        ) / 1000
    return found


def test_a_model_that_is_right_is_found_again() -> None:
    """From two sizes of a fleet that follows the model, it says what a third one needs."""
    costs = replace(MEASURED, leader_ms_per_s=20.0)
    found = fitted({vms: _measured(vms, costs) for vms in (1000, 10_000)}, MEASURED)
    third = checked_size(3000, RUSH_ENDS_PER_S)
    assert leader_cores(third, found) == pytest.approx(leader_cores(third, costs), rel=0.02)
    assert found.vm_kb == pytest.approx(costs.vm_kb)


def test_each_unit_cost_names_the_command_that_measures_it() -> None:
    """One place has them all."""
    assert set(SOURCES) == set(asdict(MEASURED))


def test_the_page_says_what_the_model_says() -> None:
    """docs/internals/scale.md is printed by --markdown."""
    page = Path(__file__).parents[2] / "docs" / "internals" / "scale.md"
    again = "print it again: python -m bench.scale --markdown > docs/internals/scale.md"
    assert page.read_text(encoding="utf-8") == page_of(MEASURED), again
