"""What things cost, useful and wasted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, timedelta
from typing import cast, get_args

from msgspec import Struct

from core.access import Right
from core.cost import CostKind, Spent, TenantBudget
from core.cost_report import By, CostQuestion, CostReport, Costs, printed
from core.errors import BadInput, Fault
from core.submission import shown
from core.tenants import budgets_of
from scheduler.api.caller import ApiCaller
from scheduler.api.http.endpoint import Routes, route
from scheduler.api.http.params import Param, Query
from scheduler.api.shapes import Time, iso

DAYS_MAX = 3660
_SPAN = re.compile(r"(\d{1,4})d")
_EXPECTED = f"a number of days such as 7d (at most {DAYS_MAX}d), or a date such as 2026-01-31"


class AmountOut(Struct, frozen=True):
    """VM time and money, with what it was spent on."""

    usd: float
    useful_usd: float
    wasted_usd: float
    waste_share: float
    """Wasted ÷ all; 0 of nothing."""
    kinds: Mapping[str, float]
    """useful, boot, idle, hedge, preempted, lost → dollars."""
    vm_hours: float
    gpu_hours: float


class CostRowOut(Struct, frozen=True):
    """One group of a report; an empty key is what nobody caused."""

    key: str
    amount: AmountOut


class BudgetOut(Struct, frozen=True):
    """What a tenant may spend by the UTC calendar, and has spent."""

    tenant: str
    day_usd: float
    usd_per_day: float | None
    month_usd: float
    usd_per_month: float | None
    held: bool
    """New work of this tenant is not started."""


class CostOut(Struct, frozen=True):
    """Billed VM time of whole days (UTC), VMs that live up to now."""

    now: Time
    by: str
    since: str
    until: str
    rows: tuple[CostRowOut, ...]
    others: AmountOut | None
    """By job: all jobs that are not named."""
    total: AmountOut
    """Rows and others add up to it, as they are printed here."""
    decimals: int
    """To so many decimals the dollars of rows, others and total are rounded."""
    burn_usd_per_hour: float
    today_usd: float
    forecast_usd: float
    """Of today, if everything goes on as it is."""
    budgets: tuple[BudgetOut, ...]


class CostRoutes(Routes):
    """The bill."""

    tag = "cost"

    @route(
        "GET /api/v1/cost",
        Right.COST_READ,
        "Costs.",
        params=(
            Param("by", "text", "What to group by.", default="kind", words=get_args(By)),
            Param("since", "text", f"First day (UTC): {_EXPECTED}.", default="7d"),
            Param("until", "text", "Last day (UTC), included; as `since`. Default: today."),
            Param("tenant", "text", "Only what this tenant's jobs caused."),
            Param("cluster", "text", "Only this cluster."),
            Param("limit", "whole", "Most jobs by name.", default=100, low=1, high=1000),
        ),
    )
    async def cost(self, query: Query, caller: ApiCaller) -> CostOut:
        """What was spent, on what, and what is being spent now."""
        services = self._services
        question = _question(query, services.clock.now().astimezone(UTC).date())
        reads = services.bound_reads(caller)
        question = reads.own_cost(question)
        report = await reads.cost(question)
        if not report.rows:
            services.refuse_unknown_place(question.cluster)
        rows = await services.store.tenants()
        known = budgets_of(services.settings.current.tenants, (row.tenant for row in rows))
        budgets = {
            tenant: budget
            for tenant, budget in known.items()
            if question.tenant_id in (None, tenant)
        }
        spent = await services.store.spent() if budgets else {}
        return cost_out(question, report, budgets, spent)


def _question(query: Query, today: date) -> CostQuestion:
    faults: list[Fault] = []
    since = _day(query.text("since") or "7d", "since", today, faults)
    until = _day(query.text("until") or "0d", "until", today, faults)
    if not faults and since > until:
        faults.append(Fault("since", since.isoformat(), f"not after until ({until.isoformat()})"))
    if faults:
        raise BadInput(faults)
    return CostQuestion(
        by=cast("By", query.text("by")),
        since=since,
        until=until,
        tenant_id=query.text("tenant"),
        cluster=query.text("cluster"),
        limit=query.whole("limit"),
    )


def _day(word: str, name: str, today: date, faults: list[Fault]) -> date:
    """A date, or so many days before today."""
    span = _SPAN.fullmatch(word)
    if span is not None and int(span[1]) <= DAYS_MAX:
        return today - timedelta(days=int(span[1]))
    try:
        return date.fromisoformat(word)
    except ValueError:
        faults.append(Fault(name, shown(word), _EXPECTED))
        return today


def cost_out(
    question: CostQuestion,
    report: CostReport,
    budgets: Mapping[str, TenantBudget],
    spent: Mapping[str, Spent],
) -> CostOut:
    """Dearest first; days in their order."""
    costs = [*report.rows.values(), *((report.others,) if report.others else ())]
    dollars = printed(costs, report.decimals)
    amounts = [amount_out(*pair, report.decimals) for pair in zip(costs, dollars, strict=True)]
    rows = [CostRowOut(*pair) for pair in zip(report.rows, amounts, strict=False)]
    by_day = question.by == "day"
    rows.sort(key=lambda row: (row.key,) if by_day else (-row.amount.usd, row.key))
    return CostOut(
        now=iso(report.now),
        by=question.by,
        since=question.since.isoformat(),
        until=question.until.isoformat(),
        rows=tuple(rows),
        others=amounts[-1] if report.others else None,
        total=amount_out(report.total, _summed(dollars), report.decimals),
        decimals=report.decimals,
        burn_usd_per_hour=round(report.burn_usd_per_hour, 6),
        today_usd=round(report.today.usd, 6),
        forecast_usd=round(report.forecast_usd, 6),
        budgets=tuple(
            _budget(tenant, budget, spent.get(tenant, Spent()))
            for tenant, budget in sorted(budgets.items())
        ),
    )


def _budget(tenant: str, budget: TenantBudget, spent: Spent) -> BudgetOut:
    day, month = budget.usd_per_day, budget.usd_per_month
    return BudgetOut(
        tenant=tenant,
        day_usd=round(spent.day_usd, 6),
        usd_per_day=day,
        month_usd=round(spent.month_usd, 6),
        usd_per_month=month,
        held=(day is not None and spent.day_usd >= day)
        or (month is not None and spent.month_usd >= month),
    )


def _summed(dollars: Iterable[Mapping[CostKind, float]]) -> Mapping[CostKind, float]:
    found: dict[CostKind, float] = {}
    for kinds in dollars:
        for kind, value in kinds.items():
            found[kind] = found.get(kind, 0.0) + value
    return found


def amount_out(costs: Costs, dollars: Mapping[CostKind, float], decimals: int) -> AmountOut:
    """The time of `costs`, with its dollars as they are printed."""
    everything = sum(dollars.values())
    useful = dollars.get(CostKind.USEFUL, 0.0)
    wasted = everything - useful
    return AmountOut(
        usd=round(everything, decimals),
        useful_usd=round(useful, decimals),
        wasted_usd=round(wasted, decimals),
        waste_share=round(wasted / everything, 6) if everything else 0.0,
        kinds={str(kind): round(dollars.get(kind, 0.0), decimals) for kind in CostKind},
        vm_hours=round(sum(amount.vm_seconds for amount in costs.values()) / 3600, 6),
        gpu_hours=round(sum(amount.gpu_seconds for amount in costs.values()) / 3600, 6),
    )
