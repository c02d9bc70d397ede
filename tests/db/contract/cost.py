"""Each billed second is settled once, and what things cost does not change when history goes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, get_args

import pytest

from core.changes import JobProgress, NewVm, VmMove
from core.cost import CostKind
from core.cost_report import By, CostQuestion, CostReport, usd
from core.job import Job, JobEvent
from core.ports import Store
from core.reads import Reads
from core.retention import RetentionRules
from core.vm import Vm, VmEvent, advance_vm, drop_lease
from tests.db.builders import Maker, leased, put, ready, step, submitted
from tests.db.contract.retention import days_ago

E, K = JobEvent, CostKind
HOUR = timedelta(hours=1)
RULES = RetentionRules()


def _by_group(report: CostReport) -> dict[str, dict[str, float]]:
    """Row → kind → dollars."""
    return {
        key: {str(kind): round(amount.usd, 6) for kind, amount in costs.items()}
        for key, costs in report.rows.items()
    }


def dollars(report: CostReport) -> dict[str, float]:
    """By kind, in cents that matter."""
    return {str(kind): round(amount.usd, 6) for kind, amount in report.total.items()}


class Costs:
    async def test_settled_once(self, store: Store, reads: Reads, maker: Maker) -> None:
        """A VM that is gone is settled into boot, idle and its job, and never again."""
        begun = await days_ago(store, 100)
        job, _ = await self._history(store, maker, begun)
        before = await self._report(store, reads)
        done = await store.settle_costs(10)
        assert (done.vms, round(sum(done.usd.values()), 6)) == (1, 2 * 4.0)
        assert (await store.settle_costs(10)).vms == 0
        after = await self._report(store, reads)
        assert dollars(before) == dollars(after) == {"boot": 2.0, "useful": 4.0, "idle": 2.0}
        row = await reads.job(job.spec.job_id, None)
        assert (row.cost_usd, row.wasted_usd) == pytest.approx((4.0, 0.0))

    async def test_costs_outlive_history(self, store: Store, reads: Reads, maker: Maker) -> None:
        """Nothing is pruned before it is settled; when it is pruned, every sum stays."""
        begun = await days_ago(store, 100)
        job, vm = await self._history(store, maker, begun)
        counts = await store.prune(RULES, 10)
        assert (counts["vms"], counts["attempts"]) == (0, 0)
        await store.settle_costs(10)
        reports = {by: await self._report(store, reads, by) for by in get_args(By)}
        counts = await store.prune(RULES, 10)
        assert (counts["vms"], counts["attempts"]) == (1, 1)
        for by, report in reports.items():
            kept = await self._report(store, reads, by)
            assert (kept.rows, kept.total) == (report.rows, report.total)
        assert (await reads.job(job.spec.job_id, None)).cost_usd == pytest.approx(4.0)
        assert vm.name not in {
            row.vm.name for row in (await reads.vms(None, None, True, 9, None)).rows
        }

    async def test_groups_add_up(self, store: Store, reads: Reads, maker: Maker) -> None:
        """Whatever a report is grouped by, its rows add up to the bills of the VMs: one that is
        settled, one that lives."""
        await self._history(store, maker, await days_ago(store, 3))
        await store.settle_costs(10)
        now = await days_ago(store, 0)
        await self._working(store, maker, now - 2 * HOUR)
        bills = 8.0 + 4.0
        for by in get_args(By):
            report = await self._report(store, reads, by)
            assert usd(report.total.values()) == pytest.approx(bills, abs=0.05)
            rows = sum(usd(costs.values()) for costs in report.rows.values())
            assert rows == pytest.approx(usd(report.total.values()))
            assert report.burn_usd_per_hour == pytest.approx(2.0)

    async def test_filters(self, store: Store, reads: Reads, maker: Maker) -> None:
        """A tenant's report has its jobs alone, a cluster's its VMs, and days are days."""
        job, _ = await self._history(store, maker, await days_ago(store, 3), tenant_id="a")
        await store.settle_costs(10)
        now = await days_ago(store, 0)
        await self._working(store, maker, now - HOUR, tenant_id="b")
        ours = await self._report(store, reads, "job", tenant_id="a")
        sums = {key: round(usd(costs.values()), 6) for key, costs in ours.rows.items()}
        assert sums == {job.spec.job_id: 4.0}
        assert ours.burn_usd_per_hour == 0
        theirs = await self._report(store, reads, "tenant", tenant_id="b")
        assert list(theirs.rows) == ["b"]
        assert theirs.burn_usd_per_hour == pytest.approx(2.0)
        assert (await self._report(store, reads, cluster="8xh100")).total == {}
        past = CostQuestion(
            "kind", now.date() - 60 * timedelta(days=1), now.date() - 30 * timedelta(days=1)
        )
        assert (await reads.cost(past)).total == {}

    async def test_checkpoint_saves_what_was_before_it(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """Of an attempt whose VM was lost, what came after its last checkpoint is waste; a repeat
        of the same checkpoint is none."""
        begun = (await days_ago(store, 0)) - 4 * HOUR
        job, vm = await self._working(store, maker, begun)
        for hours, saved in ((1.0, 10.0), (2.0, 20.0), (2.5, 20.0)):
            await put(store, JobProgress(job.uid, 1, None, saved, begun + hours * HOUR))
        lost = step(job, E.VM_LOST, begun + 3 * HOUR)
        dropped = drop_lease(vm, vm.leases[0], begun + 3 * HOUR)
        gone = advance_vm(dropped, VmEvent.NOT_LISTED, begun + 3 * HOUR, "gone")
        await put(store, lost, VmMove(vm, dropped), VmMove(dropped, gone))
        for _ in range(2):
            report = await self._report(store, reads)
            assert dollars(report) == {"useful": 4.0, "lost": 2.0}
            row = await reads.job(job.spec.job_id, None)
            assert (row.cost_usd, row.wasted_usd) == pytest.approx((6.0, 2.0))
            await store.settle_costs(10)

    async def test_hedge_and_vm_that_never_ran(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """A VM without a job is a hedge, a minute at least; one that never ran costs nothing, and
        both are pruned in their time."""
        begun = await days_ago(store, 40)
        ran, never = maker.vm("ran"), maker.vm("never")
        up = ready(ran, begun)
        off = replace(up.after, version=3, stopped_at=begun + timedelta(seconds=6))
        gone = advance_vm(off, VmEvent.NOT_LISTED, begun + HOUR, "gone")
        await put(store, NewVm(ran, 9), up, VmMove(up.after, off), VmMove(off, gone))
        await put(
            store,
            NewVm(never, 9),
            VmMove(never, advance_vm(never, VmEvent.NOT_LISTED, begun, "no")),
        )
        await store.settle_costs(10)
        assert dollars(await self._report(store, reads)) == {"hedge": round(2.0 / 60, 6)}
        assert (await store.prune(RULES, 10))["vms"] == 2

    async def test_gone_vm_with_leases_waits(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """Until its jobs have heard, how their attempts ended is not known."""
        begun = (await days_ago(store, 0)) - 4 * HOUR
        _, vm = await self._working(store, maker, begun)
        await put(store, VmMove(vm, advance_vm(vm, VmEvent.NOT_LISTED, begun + HOUR, "gone")))
        assert (await store.settle_costs(10)).vms == 0
        assert dollars(await self._report(store, reads)) == {"useful": 2.0}

    async def test_long_lives_are_settled_on_the_way(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """Of a VM that lives, what ended before the attempt that goes on is settled, so that old
        attempts can be pruned and reports read little."""
        begun = (await days_ago(store, 0)) - 6 * HOUR
        job, vm = await self._working(store, maker, begun)
        over = step(job, E.EXITED_OK, begun + 2 * HOUR)
        idle = drop_lease(vm, vm.leases[0], begun + 2 * HOUR)
        await put(store, over, VmMove(vm, idle))
        following = maker.job()
        await put(store, submitted(following))
        await self._place(store, maker, following, idle, begun + 3 * HOUR)
        before = await self._report(store, reads)
        done = await store.settle_costs(10)
        assert {str(kind): round(v, 6) for (kind, _), v in done.usd.items()} == {
            "useful": 4.0,
            "idle": 2.0,
        }
        assert (await store.settle_costs(10)).vms == 0
        after = await self._report(store, reads)
        assert usd(after.total.values()) == pytest.approx(usd(before.total.values()), abs=0.05)
        assert (await reads.job(following.spec.job_id, None)).cost_usd == pytest.approx(
            6.0, abs=0.05
        )

    async def test_spend_of_tenants(self, store: Store, maker: Maker) -> None:
        """What a tenant's jobs cost today and this month, settled or not; floors are nobody's."""
        now = await days_ago(store, 0)
        await self._working(store, maker, now - timedelta(minutes=3), tenant_id="a")
        await self._history(store, maker, await days_ago(store, 40), tenant_id="old")
        await store.settle_costs(10)
        spent = await store.spent()
        assert set(spent) - {"old"} == {"a"}
        assert spent["a"].day_usd <= spent["a"].month_usd <= 0.11
        assert spent["a"].month_usd > 0

    async def test_summary_tells_the_burn(self, store: Store, reads: Reads, maker: Maker) -> None:
        """What VMs that are billed cost by the hour now, by cluster."""
        now = await days_ago(store, 0)
        await self._working(store, maker, now - HOUR)
        await put(store, NewVm(maker.vm(), 9))
        assert (await reads.summary()).burn_usd_per_hour == {"1xl4": 2.0}

    async def test_tenants_pay_for_what_they_caused(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """Boot and first idling are the tenant's whose job asked for the VM, the idling afterwards
        the tenant's whose job left it; their sums are the bill, before and after settling, with
        and without history."""
        begun = await days_ago(store, 100)
        asker = maker.job("asker", tenant_id="asking")
        await put(store, submitted(asker))
        job, _ = await self._history(
            store, maker, begun, caused_by=asker.uid, idle_max_s=9e9, tenant_id="working"
        )
        for settles in range(3):
            tenants = await self._report(store, reads, "tenant")
            assert _by_group(tenants) == {
                "asking": {"boot": 2.0},
                "working": {"useful": 4.0, "idle": 2.0},
            }
            jobs = await self._report(store, reads, "job")
            assert _by_group(jobs) == {
                "asker": {"boot": 2.0},
                job.spec.job_id: {"useful": 4.0, "idle": 2.0},
            }
            assert (await reads.job("asker", None)).costs == pytest.approx({K.BOOT: 2.0})
            assert (await reads.job(job.spec.job_id, None)).costs == pytest.approx(
                {K.USEFUL: 4.0, K.IDLE: 2.0}
            )
            if settles == 0:
                await store.settle_costs(10)
            else:
                await store.prune(RULES, 10)

    async def test_hedge_is_its_jobs(self, store: Store, reads: Reads, maker: Maker) -> None:
        """Of the job that it was asked for, although another VM served it; budgets count it."""
        now = await days_ago(store, 0)
        job, ran = maker.job("asker", tenant_id="a"), maker.vm("ran")
        await put(store, submitted(job))
        ran = replace(ran, caused_by=job.uid)
        up = ready(ran, now - timedelta(minutes=1))
        gone = advance_vm(up.after, VmEvent.NOT_LISTED, now, "gone")
        await put(store, NewVm(ran, 9), up, VmMove(up.after, gone))
        for _ in range(2):
            assert (await reads.job("asker", None)).costs == pytest.approx({K.HEDGE: 2.0 / 60})
            assert (await store.spent())["a"].month_usd == pytest.approx(2.0 / 60)
            await store.settle_costs(10)

    async def test_idling_after_a_piece_that_is_settled(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """Of the job that left last, also when its attempt is settled already."""
        begun = (await days_ago(store, 0)) - 6 * HOUR
        job, vm = await self._working(store, maker, begun, caused_by=True, idle_max_s=9e9)
        over = step(job, E.EXITED_OK, begun + 2 * HOUR)
        idle = drop_lease(vm, vm.leases[0], begun + 2 * HOUR)
        await put(store, over, VmMove(vm, idle))
        assert (await store.settle_costs(10)).vms == 1
        gone = advance_vm(idle, VmEvent.NOT_LISTED, begun + 6 * HOUR, "gone")
        await put(store, VmMove(idle, gone))
        for _ in range(2):
            found = (await reads.job(job.spec.job_id, None)).costs
            assert found == pytest.approx({K.USEFUL: 4.0, K.IDLE: 8.0})
            await store.settle_costs(10)

    # --- what happened -------------------------------------------------------------------

    async def _report(
        self,
        store: Store,
        reads: Reads,
        by: By = "kind",
        tenant_id: str | None = None,
        cluster: str | None = None,
    ) -> CostReport:
        today = (await store.snapshot(0)).now.date()
        since = today - timedelta(days=400)
        return await reads.cost(CostQuestion(by, since, today, tenant_id, cluster))

    async def _history(
        self, store: Store, maker: Maker, begun: datetime, **spec: Any
    ) -> tuple[Job, Vm]:
        """One hour of boot, two of a job, one idle, at two dollars an hour."""
        job, vm = await self._working(store, maker, begun, boot=HOUR, **spec)
        over = step(job, E.EXITED_OK, begun + 3 * HOUR)
        idle = drop_lease(vm, vm.leases[0], begun + 3 * HOUR)
        gone = advance_vm(idle, VmEvent.NOT_LISTED, begun + 4 * HOUR, "idle")
        await put(store, over, VmMove(vm, idle), VmMove(idle, gone))
        return over.after, gone

    async def _working(
        self,
        store: Store,
        maker: Maker,
        begun: datetime,
        boot: timedelta = timedelta(0),
        caused_by: str | bool = False,
        idle_max_s: float = 0.0,
        **spec: object,
    ) -> tuple[Job, Vm]:
        """A VM that runs since `begun`, and a job on it since it booted. True: it was asked for
        because that job waited."""
        vm, job = maker.vm(), maker.job(**spec)  # type: ignore[arg-type]
        cause = job.uid if caused_by is True else caused_by or None
        vm = replace(vm, caused_by=cause, idle_max_s=idle_max_s)
        up = VmMove(
            vm,
            advance_vm(vm, VmEvent.WORKER_READY, begun + boot, "said READY", running_since=begun),
        )
        await put(store, NewVm(vm, 9), up, submitted(job))
        return await self._place(store, maker, job, up.after, begun + boot)

    async def _place(
        self, store: Store, maker: Maker, job: Job, vm: Vm, now: datetime
    ) -> tuple[Job, Vm]:
        admitted = step(job, E.ADMITTED, now)
        lease = maker.lease(vm)
        placed = step(admitted.after, E.PLACED, now, lease=lease)
        started = step(placed.after, E.STARTED, now)
        held = leased(vm, lease)
        await put(store, admitted, placed, started, held)
        return started.after, held.after
