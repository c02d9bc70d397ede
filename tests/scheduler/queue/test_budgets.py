"""Budgets of tenants: who is warned, who is held, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from core.changes import ClearAlert, PendingReason, RaiseAlert
from core.cost import CostKind, SettledBills, Spent, TenantBudget
from core.job import E, Job, S
from core.messages import OutMessage
from core.tenants import TenantRow
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import Silence
from scheduler.operations.costs import AGAIN_S, BATCH, SETTLE_S, Bookkeeper
from scheduler.operations.metrics import Metrics
from scheduler.plan_builder import PlanBuilder
from scheduler.queue.budgets import BudgetStatus, alert_changes, judge, unread
from tests.builders import RULES, cluster, dice, job, live, snapshot, vm

SPENT, WARNING = "budget_spent", "budget_warning"
NOON = datetime(2026, 12, 31, 12, 0, tzinfo=UTC)
DAY = {"acme": TenantBudget(usd_per_day=100)}
BOTH = {"acme": TenantBudget(usd_per_day=100, usd_per_month=2000, warn_at=0.5)}


def test_below_the_warning_nothing_happens() -> None:
    """Nobody is told, nobody is held."""
    assert judge(DAY, {"acme": Spent(79.9, 79.9)}, NOON, BudgetStatus()) == BudgetStatus()
    assert judge(DAY, {}, NOON, BudgetStatus()) == BudgetStatus()


def test_warning_at_its_part_of_the_budget() -> None:
    """A human is told at 80 %; work goes on."""
    standing = judge(DAY, {"acme": Spent(80.0, 80.0)}, NOON, BudgetStatus())
    assert standing.held == {}
    assert list(standing.alerts) == [(WARNING, "acme today")]


def test_spent_day_is_held_until_midnight() -> None:
    """At 100 % new work waits, and says until when."""
    standing = judge(DAY, {"acme": Spent(100.0, 100.0)}, NOON, BudgetStatus())
    assert standing.held == {
        "acme": "tenant acme has used $100.00 of its $100 for today; "
        "it resumes at 00:00 UTC or when the budget is raised"
    }
    assert list(standing.alerts) == [(SPENT, "acme today")]


def test_an_alert_about_a_budget_stays_true_while_the_sum_grows() -> None:
    """It is written once, so it names no sum."""
    for first, later in ((80.0, 95.0), (100.0, 140.0)):
        before = judge(DAY, {"acme": Spent(first, first)}, NOON, BudgetStatus())
        after = judge(DAY, {"acme": Spent(later, later)}, NOON, before)
        assert after.alerts == before.alerts
        assert not any("$" in message for message in after.alerts.values())


def test_spent_month_gives_the_reason_before_a_spent_day() -> None:
    """The one that ends last; the year has an end, too."""
    standing = judge(BOTH, {"acme": Spent(120.0, 2500.0)}, NOON, BudgetStatus())
    assert standing.held["acme"].endswith(
        "for this month; it resumes at 2027-01-01 00:00 UTC or when the budget is raised"
    )
    assert set(standing.alerts) == {(SPENT, "acme today"), (SPENT, "acme this month")}


def test_words_of_a_hold_stay() -> None:
    """Running jobs make the sum grow; the queue is not rewritten for it. A raised budget or a new
    day has words of its own."""
    first = judge(DAY, {"acme": Spent(100.0, 100.0)}, NOON, BudgetStatus())
    later = judge(DAY, {"acme": Spent(140.0, 140.0)}, NOON, first)
    assert later.held == first.held
    raised = {"acme": TenantBudget(usd_per_day=130)}
    assert (
        "$140.00 of its $130" in judge(raised, {"acme": Spent(140, 140)}, NOON, later).held["acme"]
    )
    assert judge(DAY, {"acme": Spent(0.0, 140.0)}, NOON, later).held == {}


def test_alerts_are_raised_once_and_cleared_when_over() -> None:
    """Only news is written, and other alerts are not ours."""
    standing = BudgetStatus(alerts={(SPENT, "acme today"): "spent"})
    (raised,) = alert_changes(standing, [("fleet_silent", "heartbeats")], NOON)
    assert raised == RaiseAlert(SPENT, "acme today", "error", "spent", NOON)
    assert alert_changes(standing, [(SPENT, "acme today")], NOON) == []
    assert alert_changes(BudgetStatus(), [(WARNING, "acme today")], NOON) == [
        ClearAlert(WARNING, "acme today", NOON)
    ]
    assert alert_changes(unread(DAY), [(WARNING, "acme today")], NOON) == []


# --- in the plan --------------------------------------------------------------------------


def planned(
    budgets: BudgetStatus, *jobs: Job, vm_max: int = 1
) -> tuple[PlanBuilder, list[PendingReason]]:
    """One cycle over these jobs with an idle VM."""
    busy = [vm(j.lease.vm_name, leases=(j.lease.lease_id,)) for j in jobs if j.lease]
    seen = snapshot(jobs, (vm("vm-9"), *busy))
    plan = PlanBuilder(seen, RULES, lambda _: OutMessage("control", b""))
    around = Circumstances({"1xl4": cluster(vm_max=vm_max)}, Silence(()), True, budgets)
    return plan, plan_jobs(plan, seen, around, dice())


HELD = BudgetStatus({"acme": "spent"})


def test_held_tenant_takes_nobodys_place() -> None:
    """Its job waits with its why, and the next tenant's job behind it runs."""
    held, other = job(1, tenant_id="acme"), job(2, tenant_id="other")
    plan, reasons = planned(HELD, held, other)
    assert plan.jobs[held.uid].status is S.QUEUED
    assert plan.jobs[other.uid].status is S.ASSIGNED
    assert PendingReason(held.uid, "spent") in reasons


def test_admitted_job_without_a_vm_goes_back_and_running_ones_stay() -> None:
    """A job that waits for a VM asks for one no longer; what runs is left alone."""
    waits = job(1, E.ADMITTED, tenant_id="acme")
    runs = job(2, E.ADMITTED, E.PLACED, E.CLAIMED, E.STARTED, tenant_id="acme")
    plan, _ = planned(HELD, waits, runs, vm_max=4)
    assert (plan.jobs[waits.uid].status, plan.jobs[waits.uid].reason) == (S.QUEUED, "spent")
    assert plan.jobs[runs.uid] == runs


def test_before_the_first_reading_nothing_new_begins() -> None:
    """A new leader holds tenants with budgets back for a moment, and takes nothing away."""
    new, admitted = job(1, tenant_id="acme"), job(2, E.ADMITTED, tenant_id="acme", priority=900)
    plan, reasons = planned(unread(DAY), new, admitted, vm_max=4)
    assert plan.jobs[new.uid].status is S.QUEUED
    assert plan.jobs[admitted.uid].status is S.ASSIGNED
    assert PendingReason(new.uid, "the budget of tenant acme is being read") in reasons
    assert unread({}) == BudgetStatus()


# --- the task -----------------------------------------------------------------------------


class Books:
    """Answers from lists; ends the task when it has no more to say."""

    def __init__(self, spent: Mapping[str, Spent] | None = None, *settled: SettledBills) -> None:
        self.the_spent = spent or {}
        self.rounds = list(settled)
        self.asked = 0

    async def settle_costs(self, batch: int) -> SettledBills:
        assert batch == BATCH
        if not self.rounds:
            raise asyncio.CancelledError
        return self.rounds.pop(0)

    async def spent(self) -> Mapping[str, Spent]:
        self.asked += 1
        return self.the_spent

    async def tenants(self) -> Sequence[TenantRow]:
        return ()


class Clock:
    def now(self) -> datetime:
        return NOON

    def monotonic(self) -> float:
        return 0.0


async def test_standing_is_unread_until_read_and_a_change_wakes() -> None:
    """The loop hears of a hold at once, and is not woken by the same standing again."""
    woken: list[bool] = []
    books = Books({"acme": Spent(100.0, 100.0)})
    bookkeeper = Bookkeeper(
        books, live(tenants=DAY), Metrics(), Clock(), lambda: woken.append(True)
    )
    assert not bookkeeper.standing().known
    for _ in range(2):
        await bookkeeper.read()
    assert "acme" in bookkeeper.standing().held
    assert woken == [True]
    books.the_spent = {"acme": Spent(0.0, 100.0)}
    await bookkeeper.read()
    assert bookkeeper.standing().held == {}
    assert woken == [True, True]


async def test_without_budgets_nothing_is_asked() -> None:
    """No sums are read for nobody."""
    books = Books()
    bookkeeper = Bookkeeper(books, live(), Metrics(), Clock(), lambda: None)
    await bookkeeper.read()
    assert (books.asked, bookkeeper.standing()) == (0, BudgetStatus())


async def test_full_rounds_of_settling_are_followed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was settled is counted for the metrics."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("scheduler.operations.costs.asyncio.sleep", sleep)
    metrics = Metrics()
    full = SettledBills(BATCH, {(CostKind.IDLE, "1xl4"): 1.5})
    books = Books(None, full, replace(full, vms=1))
    bookkeeper = Bookkeeper(books, live(), metrics, Clock(), lambda: None)
    with pytest.raises(asyncio.CancelledError):
        await bookkeeper.settle()
    assert pauses == [AGAIN_S, SETTLE_S]
    assert 'gpu_scheduler_cost_usd_total{cluster="1xl4",kind="idle"} 3.0' in metrics.text().decode()
