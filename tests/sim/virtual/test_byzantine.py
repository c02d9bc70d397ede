"""A VM that lies: nothing that it sends changes anything, and each check is needed for that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from messaging.proofs import control
from messaging.proofs.control import Numbers
from messaging.proofs.heartbeats import HeartbeatVerifier, ProofKind
from scheduler.cycle.heartbeats import Latest
from scheduler.cycle.worker_checks import WorkerChecks
from sim.virtual.run import SeedResult, SimulationPlan, simulate

Patch = pytest.MonkeyPatch
SEEDS = (1, 2, 3)


def run(seed: int) -> SeedResult:
    return simulate(SimulationPlan(seed, jobs=40, forged=3000))


def test_nothing_that_a_vm_forges_changes_anything() -> None:
    """Thousands of forged, changed, repeated and swapped messages of every kind."""
    outcome = run(1)
    assert outcome.violations == []
    assert outcome.faults["forged_message"] >= 2500
    assert outcome.faults["alert_worker_unproven"] > 0


def believe_every_proof(patch: Patch) -> None:
    patch.setattr(HeartbeatVerifier, "check", lambda *_: ProofKind.SIGNED)


def believe_every_instance(patch: Patch) -> None:
    patch.setattr(WorkerChecks, "is_instance", lambda *_: True)


def believe_every_order(patch: Patch) -> None:
    patch.setattr(control, "_check", lambda *_: None)


def take_orders_again(patch: Patch) -> None:
    patch.setattr(Numbers, "take", lambda *_: True)


def hear_again(patch: Patch) -> None:
    patch.setattr(Latest, "is_news", lambda *_: True)


def seal_nothing(patch: Patch) -> None:
    patch.setattr(control, "seal", lambda plain, *_: plain)
    patch.setattr(control, "unseal", lambda sealed, *_: sealed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "take_out",
    [
        believe_every_proof,
        believe_every_instance,
        believe_every_order,
        take_orders_again,
        hear_again,
        seal_nothing,
    ],
)
def test_each_check_is_needed(monkeypatch: Patch, take_out: Callable[[Patch], None]) -> None:
    """With one of them taken out, the checkers find what the VM did."""
    take_out(monkeypatch)
    found = [violation.invariant for seed in SEEDS for violation in run(seed).violations]
    assert found
