"""Costs in memory: the same sums as db/cost.py makes, by the same functions of core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime

from core.cost import (
    SETTLE_AFTER,
    Amount,
    CostKind,
    DailyKey,
    Life,
    Payer,
    SettledBills,
    Settlement,
    Spent,
    Stay,
    add_live_spend,
    settle,
    settled,
    sums_of,
)
from core.cost_report import CostQuestion, CostReport, CostTally, job_amounts, job_key
from sim.memory.tables import JobRecord, Tables, VmRecord


def life_of(tables: Tables, record: VmRecord) -> Life | None:
    """The VM as its bill sees it; None: it never ran."""
    vm = record.vm
    if vm.running_since is None:
        return None
    return Life(
        vm_uid=vm.uid,
        cluster=vm.cluster,
        region=vm.region,
        spot=vm.spot,
        gpus=vm.gpus,
        usd_per_hour=vm.usd_per_hour,
        running_since=vm.running_since,
        ready_at=vm.ready_at,
        off_at=vm.stopped_at or vm.gone_at,
        settled_until=record.settled_until,
        stays=tuple(_stays(tables, record)),
        cause=_payer(tables, vm.caused_by) if vm.caused_by in tables.jobs else None,
        idle_max_s=vm.idle_max_s,
        leaving_since=vm.leaving_since,
        billed_at_least_s=vm.billed_at_least_s,
    )


def _payer(tables: Tables, uid: str) -> Payer:
    spec = tables.jobs[uid].job.spec
    return Payer(uid, spec.job_id, spec.tenant_id, spec.user_id)


def _stays(tables: Tables, record: VmRecord) -> Iterator[Stay]:
    """Attempts that are not settled, and the last one that is."""
    settled_until = record.settled_until
    found = list(_all_stays(tables, record))
    if settled_until is None:
        yield from found
        return
    ends = [stay.until for stay in found if stay.until is not None and stay.until <= settled_until]
    last = max(ends, default=settled_until)
    yield from (stay for stay in found if stay.until is None or stay.until >= last)


def _all_stays(tables: Tables, record: VmRecord) -> Iterator[Stay]:
    for uid, number in tables.stays.get(record.vm.uid, ()):
        row = tables.jobs[uid].attempts.get(number)
        if row is None:
            continue  # pruned: it is settled
        yield Stay(
            payer=_payer(tables, uid),
            gpus=len(row.slots),
            since=row.assigned_at,
            until=row.ended_at,
            checkpoint_at=row.checkpoint_at,
            outcome=row.outcome,
        )


def _lives(tables: Tables) -> Iterator[Life]:
    for uid in tables.unsettled:
        life = life_of(tables, tables.vms[uid])
        if life is not None:
            yield life


def settle_costs(tables: Tables, batch: int, now: datetime) -> SettledBills:
    """The sums, and the mark on the VM that it is in them."""
    due = [uid for uid in sorted(tables.unsettled) if _is_due(tables, tables.vms[uid], now)]
    done: list[Settlement] = []
    for uid in due[:batch]:
        life = life_of(tables, tables.vms[uid])
        settlement = settle(life, now) if life is not None else None
        if settlement is not None:
            tables.mark_settled(uid, settlement.until, whole=settlement.whole)
            done.append(settlement)
        elif life is None:
            tables.mark_settled(uid, None, whole=True)
    daily, jobs = sums_of(done)
    for key, amount in daily.items():
        tables.cost_daily[key] = tables.cost_daily.get(key, Amount()) + amount
    for (job, day, kind), amount in jobs.items():
        costs = tables.jobs[job].costs
        costs[day, kind] = costs.get((day, kind), Amount()) + amount
    return settled(done, len(due[:batch]))


def _is_due(tables: Tables, record: VmRecord, now: datetime) -> bool:
    if record.vm.state.gone and not record.vm.leases:
        return True
    since = record.settled_until or record.vm.running_since
    if since is None or since >= now - SETTLE_AFTER:
        return False
    life = life_of(tables, record)
    return life is not None and _has_ended_parts(life)


def _has_ended_parts(life: Life) -> bool:
    """SETTLE_AFTER or more before the oldest attempt that goes on, with an attempt in it."""
    since = life.settled_until or life.running_since
    fresh = [stay for stay in life.stays if stay.since >= since]
    ended = any(stay.until is not None for stay in fresh)
    held = any(stay.until is None and stay.since < since + SETTLE_AFTER for stay in fresh)
    return ended and not held


def spent(tables: Tables, now: datetime) -> Mapping[str, Spent]:
    """Tenant → what its jobs have cost today and this month (UTC)."""
    today = now.astimezone(UTC).date()
    sums: dict[str, Spent] = {}
    for (day, tenant, *_), amount in tables.cost_daily.items():
        if tenant and day >= today.replace(day=1):
            known = sums.get(tenant, Spent())
            of_day = amount.usd if day == today else 0.0
            sums[tenant] = Spent(known.day_usd + of_day, known.month_usd + amount.usd)
    return add_live_spend(sums, _lives(tables), now)


def cost_report(tables: Tables, question: CostQuestion, now: datetime) -> CostReport:
    """Settled sums plus the VMs that are not settled."""
    tally = CostTally(question, now)
    today = now.astimezone(UTC).date()
    for key, amount in tables.cost_daily.items():
        day, tenant, _, cluster, _, _, kind = key
        if question.tenant_id not in (None, tenant) or question.cluster not in (None, cluster):
            continue
        if day == today:
            tally.today += amount
        if question.since <= day <= question.until:
            tally.add_total(kind, amount)
            if question.by != "job":
                tally.add_row(_group(key, question.by), kind, amount)
            elif not tenant:
                tally.add_row("", kind, amount)
    if question.by == "job":
        _settled_jobs(tables, tally)
    for life in _lives(tables):
        tally.add_life(life)
    return tally.report()


def _group(key: DailyKey, by: str) -> str:
    day, tenant, user, cluster, region, spot, kind = key
    return {
        "kind": str(kind),
        "tenant": tenant,
        "user": user,
        "cluster": cluster,
        "region": region,
        "spot": "spot" if spot else "standard",
        "day": day.isoformat(),
    }[by]


def _settled_jobs(tables: Tables, tally: CostTally) -> None:
    asked = tally.question
    for record in tables.jobs.values():
        spec = record.job.spec
        if asked.tenant_id not in (None, spec.tenant_id):
            continue
        if asked.cluster not in (None, record.job.cluster):
            continue
        for (day, kind), amount in record.costs.items():
            if asked.since <= day <= asked.until:
                tally.add_row(job_key(spec.job_id, spec.user_id), kind, amount)


def job_costs(tables: Tables, record: JobRecord, now: datetime) -> Mapping[CostKind, float]:
    """What a job has caused."""
    uid = record.job.uid
    sums: dict[CostKind, float] = {}
    for kind, dollars in _costs(record.costs):
        sums[kind] = sums.get(kind, 0.0) + dollars
    vms = {tables.lease_ids[row.lease_id] for row in record.attempts.values()}
    vms |= {vm for vm in tables.unsettled if tables.vms[vm].vm.caused_by == uid}
    found = [life_of(tables, tables.vms[vm]) for vm in sorted(vms) if vm in tables.unsettled]
    lives = [life for life in found if life is not None]
    for kind, amount in job_amounts(lives, uid, now).items():
        sums[kind] = sums.get(kind, 0.0) + amount.usd
    return sums


def _costs(costs: Mapping[tuple[date, CostKind], Amount]) -> Iterable[tuple[CostKind, float]]:
    return ((kind, amount.usd) for (_, kind), amount in costs.items())
