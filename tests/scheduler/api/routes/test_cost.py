"""GET /cost: days, groups, waste, budgets."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest

from core.changes import JobMove, NewJob, NewVm
from core.cost import TenantBudget
from core.cost_report import CostQuestion, CostReport
from core.job import E, Lease
from core.job_fields import JobSpec
from core.job_steps import EventFacts, advance, entry_for, new_job
from core.vm import Vm, VmState
from tests.scheduler.api.fakes import NOW, RULES, House, assert_error


def bill(house: House, tenant: str, hours: float, *, busy: bool = True) -> None:
    """A VM at two dollars an hour that has run for so long, half of it idle if not busy."""
    begun = NOW - timedelta(hours=hours)
    name = f"vm-{tenant}"
    vm = Vm(name, name, "1xl4", "us-central1", VmState.READY, 1, "r", 1, False, 2.0, begun, begun)
    spec = JobSpec(f"job-of-{tenant}", tenant_id=tenant)
    job = new_job(house.ids.uid(begun), spec, "1xl4", begun)
    house.write(
        NewVm(replace(vm, running_since=begun, ready_at=begun), 99),
        NewJob(job, entry_for(None, job, E.SUBMITTED), ""),
    )
    lease = Lease(f"lease-{tenant}", name, name, "us-central1", "us-central1-a", (0,))
    steps = [(E.ADMITTED, begun), (E.PLACED, begun), (E.STARTED, begun)]
    if not busy:
        steps.append((E.EXITED_OK, begun + timedelta(hours=hours / 2)))
    for event, at in steps:
        after = advance(
            job, event, at, RULES, facts=EventFacts(lease=lease if event is E.PLACED else None)
        )
        house.write(JobMove(job, after, (entry_for(job, after, event),)))
        job = after


@pytest.fixture
def house() -> House:
    made = House(tenants={"a": TenantBudget(usd_per_day=4.0), "b": TenantBudget(usd_per_month=50)})
    bill(made, "a", 3)
    bill(made, "b", 2, busy=False)
    return made


async def test_costs_by_tenant(house: House) -> None:
    """Dearest first, with the waste of each; what is nobody's has an empty key."""
    async with house.client() as client:
        body = (await client.get("/api/v1/cost?by=tenant")).json()
    rows = {row["key"]: row["amount"] for row in body["rows"]}
    assert {key: amount["usd"] for key, amount in rows.items()} == {"a": 6.0, "b": 2.0, "": 2.0}
    assert rows[""]["kinds"]["idle"] == rows[""]["wasted_usd"] == 2.0
    total = body["total"]
    assert (total["usd"], total["useful_usd"], total["waste_share"]) == (10.0, 8.0, 0.2)
    assert (total["vm_hours"], total["gpu_hours"]) == (5.0, 5.0)
    assert body["burn_usd_per_hour"] == 4.0
    assert body["today_usd"] == 10.0
    assert body["forecast_usd"] == 10.0 + 12 * 4.0


async def test_printed_table_adds_up() -> None:
    """Thirds of a cent are dealt out: rows add up to the total, kinds to their row, as printed."""
    house = House()
    for n in range(7):
        bill(house, f"t{n}", 1 / 3 + n / 1000, busy=False)
    async with house.client() as client:
        body = (await client.get("/api/v1/cost?by=tenant")).json()
    batch = 10 ** body["decimals"]
    rows, total = [row["amount"] for row in body["rows"]], body["total"]
    assert round(total["usd"] * batch) == sum(round(row["usd"] * batch) for row in rows)
    for amount in (*rows, total):
        assert round(amount["usd"] * batch) == sum(
            round(dollars * batch) for dollars in amount["kinds"].values()
        )


async def test_jobs_that_are_not_named_are_in_the_sum(house: House) -> None:
    """Of a report by job only the dearest are named; the rest is one amount beside them."""
    async with house.client() as client:
        body = (await client.get("/api/v1/cost?by=job&limit=1")).json()
    assert {row["key"]: row["amount"]["usd"] for row in body["rows"]} == {
        "job-of-a": 6.0,
        "": 2.0,
    }
    assert body["others"]["usd"] == 2.0
    assert body["total"]["usd"] == 10.0


async def test_budgets_are_told(house: House) -> None:
    """What was spent of what, and who is held; a tenant sees its own."""
    async with house.client() as client:
        both = (await client.get("/api/v1/cost")).json()["budgets"]
        one = (await client.get("/api/v1/cost?tenant=b")).json()["budgets"]
    assert [(b["tenant"], b["day_usd"], b["held"]) for b in both] == [
        ("a", 6.0, True),
        ("b", 2.0, False),
    ]
    assert [b["tenant"] for b in one] == ["b"]


@pytest.mark.parametrize(
    ("query", "since", "until"),
    [
        ("", "2026-01-24", "2026-01-31"),
        ("since=0d", "2026-01-31", "2026-01-31"),
        ("since=30d&until=1d", "2026-01-01", "2026-01-30"),
        ("since=2025-12-01&until=2025-12-31", "2025-12-01", "2025-12-31"),
    ],
)
async def test_days(
    house: House, query: str, since: str, until: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole days of UTC, by date or by how long ago."""
    questions: list[CostQuestion] = []
    answer = house.reads.cost

    async def cost(question: CostQuestion) -> CostReport:
        questions.append(question)
        return await answer(question)

    monkeypatch.setattr(house.reads, "cost", cost)
    async with house.client() as client:
        body = (await client.get(f"/api/v1/cost?{query}")).json()
    (asked,) = questions
    assert (asked.since, asked.until) == (date.fromisoformat(since), date.fromisoformat(until))
    assert (body["since"], body["until"]) == (since, until)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("by=colour", "by"),
        ("since=yesterday", "since"),
        ("since=9999d", "since"),
        ("until=2026-02-30", "until"),
        ("since=0d&until=1d", "since"),
        ("limit=0", "limit"),
    ],
)
async def test_bad_questions(house: House, query: str, field: str) -> None:
    """Each is refused by the name of its parameter, with what was expected."""
    async with house.client() as client:
        answer = await client.get(f"/api/v1/cost?{query}")
    body = assert_error(answer, 422, "bad_input")
    faults = body["faults"]
    assert isinstance(faults, list)
    assert faults[0]["field"] == field


async def test_without_a_database(house: House) -> None:
    """It says so."""
    house.store.down = True
    async with house.client() as client:
        assert_error(await client.get("/api/v1/cost"), 503, "database_unavailable")


async def test_tenants_show_what_they_have_spent_without_a_budget() -> None:
    """A limit is not needed to be told."""
    house = House()
    bill(house, "a", 3)
    async with house.client() as client:
        limits = (await client.get("/api/v1/tenants/a")).json()["limits"]
    today = next(limit for limit in limits if limit["resource"] == "usd_per_day")
    assert (today["quota"], today["used"]) == (None, 6.0)
