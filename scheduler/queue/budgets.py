"""Whether a tenant may still start work. Pure: budgets and what was spent in, a standing out.

A tenant that has spent its budget is not punished: what runs goes on, what is submitted is
accepted and waits. Day and month are of the UTC calendar.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from operator import attrgetter

from core.alerts import ALERTS, BUDGET_SPENT, BUDGET_WARNING
from core.changes import Change
from core.cost import Spent, TenantBudget, day_start
from core.job import E, Job, S
from scheduler.plan_builder import PlanBuilder

AlertKey = tuple[str, str]


class BudgetSpan(StrEnum):
    """Of the UTC calendar."""

    DAY = "today"
    MONTH = "this month"


@dataclass(frozen=True, slots=True)
class Period:
    """One budget of one tenant, for the day or for the month."""

    tenant: str
    span: BudgetSpan
    resumes: datetime
    limit_usd: float
    used_usd: float
    warn_at: float

    @property
    def spent(self) -> bool:
        return self.used_usd >= self.limit_usd

    @property
    def key(self) -> tuple[str, datetime, float]:
        return (self.tenant, self.resumes, self.limit_usd)

    @property
    def until(self) -> str:
        time = f"{self.resumes:%H:%M} UTC"
        return time if self.span is BudgetSpan.DAY else f"{self.resumes:%Y-%m-%d} {time}"

    def why(self) -> str:
        return (
            f"tenant {self.tenant} has used ${self.used_usd:.2f} of its ${self.limit_usd:g} for "
            f"{self.span}; it resumes at {self.until} or when the budget is raised"
        )


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """How all tenants stand, as last read."""

    held: Mapping[str, str] = field(default_factory=dict)
    """Tenant → why none of its work is started."""
    alerts: Mapping[AlertKey, str] = field(default_factory=dict)
    """What a human should know now → in words."""
    known: bool = True
    """False: nothing has been read yet."""
    words: Mapping[tuple[str, datetime, float], str] = field(default_factory=dict)
    """A hold keeps the words it began with: others would be written for the whole queue each
    time a running job makes the sum grow."""

    def why(self, job: Job) -> str | None:
        """Why the job may not start; None: its tenant's budget allows it."""
        return self.held.get(job.spec.tenant_id)

    def hold_back(self, plan: PlanBuilder) -> None:
        """Jobs that were admitted but have no VM yet are no demand any more."""
        if not self.known or not self.held:
            return
        for job in plan.waiting():
            why = self.why(job)
            if why is not None and job.status is S.PROVISIONING:
                plan.step(job, E.WITHDRAWN, why)

    def free(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs that may be started, in their order: one that is held takes nobody's place."""
        if not self.held:
            return list(jobs)
        return [job for job in jobs if self.why(job) is None or job.status is not S.QUEUED]


def unread(budgets: Mapping[str, TenantBudget]) -> BudgetStatus:
    """Before the first reading: a tenant with a budget begins nothing new. That takes a moment."""
    held = {tenant: f"the budget of tenant {tenant} is being read" for tenant in budgets}
    return BudgetStatus(held, known=not budgets)


def judge(
    budgets: Mapping[str, TenantBudget],
    spent: Mapping[str, Spent],
    now: datetime,
    before: BudgetStatus,
) -> BudgetStatus:
    """Who is held, and what is to be told. Of two budgets that are spent, the one that ends last
    gives the reason."""
    held: dict[str, str] = {}
    alerts: dict[AlertKey, str] = {}
    words: dict[tuple[str, datetime, float], str] = {}
    for period in _periods(budgets, spent, now.astimezone(UTC).date()):
        subject = f"{period.tenant} {period.span}"
        # An alert is written once: it names no sums, which go on growing.
        told = {"tenant": period.tenant, "period": period.span}
        if period.spent:
            why = words[period.key] = before.words.get(period.key) or period.why()
            held[period.tenant] = why
            alerts[BUDGET_SPENT.name, subject] = BUDGET_SPENT.message(**told, until=period.until)
        elif period.used_usd >= period.limit_usd * period.warn_at:
            message = BUDGET_WARNING.message(**told, part=period.warn_at)
            alerts[BUDGET_WARNING.name, subject] = message
    return BudgetStatus(held, alerts, words=words)


def _periods(
    budgets: Mapping[str, TenantBudget], spent: Mapping[str, Spent], today: date
) -> list[Period]:
    """In the order of their ends."""
    tomorrow = day_start(today) + timedelta(days=1)
    following = day_start((today.replace(day=1) + timedelta(days=32)).replace(day=1))
    found = []
    for tenant, budget in sorted(budgets.items()):
        used = spent.get(tenant, Spent())
        for span, ends, limit_usd, used_usd in (
            (BudgetSpan.DAY, tomorrow, budget.usd_per_day, used.day_usd),
            (BudgetSpan.MONTH, following, budget.usd_per_month, used.month_usd),
        ):
            if limit_usd is not None:
                found.append(Period(tenant, span, ends, limit_usd, used_usd, budget.warn_at))
    return sorted(found, key=attrgetter("resumes"))


def alert_changes(
    standing: BudgetStatus, open_alerts: Iterable[AlertKey], now: datetime
) -> list[Change]:
    """Raise what is new, clear what is over: a period that ended, a budget that was raised."""
    if not standing.known:
        return []
    known = {key for key in open_alerts if key[0] in (BUDGET_WARNING.name, BUDGET_SPENT.name)}
    changes: list[Change] = [
        ALERTS[kind].saying(message, subject, now)
        for (kind, subject), message in sorted(standing.alerts.items())
        if (kind, subject) not in known
    ]
    over = sorted(known - standing.alerts.keys())
    changes += [ALERTS[kind].cleared(subject, now) for kind, subject in over]
    return changes
