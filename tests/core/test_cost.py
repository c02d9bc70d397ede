"""Each billed second of a VM is somebody's, once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.cost import (
    Amount,
    CostKind,
    Life,
    Payer,
    Share,
    Spent,
    Stay,
    add_live_spend,
    attribute,
    burn,
    settle,
    vm_usd,
)
from core.cost_report import CostQuestion, CostTally, dealt_out, printed, usd
from core.job import JobEvent
from tests.builders import vm

K = CostKind
T0 = datetime(2026, 3, 31, 22, 0, tzinfo=UTC)
OUTCOMES = ("", *(str(event) for event in JobEvent))


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def life(*stays: Stay, off: float | None = None, ready: float | None = 100, **more: object) -> Life:
    """A VM of 4 GPUs that costs 3.6 dollars an hour: a second is a tenth of a cent."""
    made = Life(
        vm_uid="vm",
        cluster="4xl4",
        region="us-central1",
        spot=True,
        gpus=4,
        usd_per_hour=3.6,
        running_since=T0,
        ready_at=None if ready is None else at(ready),
        off_at=None if off is None else at(off),
        settled_until=None,
        stays=stays,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def payer(job: str, tenant: str = "t") -> Payer:
    return Payer(job, job, tenant, "0")


def stay(
    since: float,
    until: float | None,
    outcome: str = "exited_ok",
    job: str = "j",
    tenant: str = "t",
    **more: object,
) -> Stay:
    made = Stay(
        payer=payer(job, tenant),
        gpus=1,
        since=at(since),
        until=None if until is None else at(until),
        checkpoint_at=None,
        outcome=outcome if until is not None else "",
    )
    return replace(made, **more)  # type: ignore[arg-type]


def spans(shares: list[Share]) -> dict[str, float]:
    """Seconds by kind."""
    found: dict[str, float] = {}
    for share in shares:
        found[str(share.kind)] = found.get(str(share.kind), 0.0) + share.micros / 1e6
    return found


def test_a_life_from_boot_to_end() -> None:
    """Booting, idle, at work, idle again until it is off."""
    made = life(stay(150, 400), off=500)
    assert spans(attribute(made, at(500))) == {"boot": 100, "idle": 50 + 100, "useful": 250}


def test_vm_that_never_ran_a_job_is_a_hedge_once_it_is_over() -> None:
    """While it lives it may yet be used: it boots and idles."""
    assert spans(attribute(life(off=500), at(500))) == {"hedge": 500}
    assert spans(attribute(life(), at(500))) == {"boot": 100, "idle": 400}


def test_vm_is_billed_for_a_minute_at_least() -> None:
    """A VM that ran for ten seconds costs sixty."""
    made = life(off=10, ready=None)
    end = made.billed_until(at(1000))
    assert end == at(60)
    assert spans(attribute(made, end)) == {"hedge": 60}


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        ("spot_taken", "preempted"),
        ("yielded", "preempted"),
        ("yield_grace_over", "preempted"),
        ("vm_lost", "lost"),
        ("claim_timeout", "lost"),
        ("start_timeout", "lost"),
    ],
)
def test_what_came_after_the_last_checkpoint_is_lost(outcome: str, kind: str) -> None:
    """Up to the checkpoint the work counts; without one, none of it does."""
    saved = life(stay(100, 400, outcome, checkpoint_at=at(300)), off=400)
    assert spans(attribute(saved, at(400))) == {"boot": 100, "useful": 200, kind: 100}
    unsaved = life(stay(100, 400, outcome), off=400)
    assert spans(attribute(unsaved, at(400))) == {"boot": 100, kind: 300}


@pytest.mark.parametrize("outcome", ["exited_ok", "exited_error", "stopped", "stop_grace_over"])
def test_what_the_owner_ended_is_not_our_waste(outcome: str) -> None:
    """The machine did what it was asked for, also when the program failed."""
    assert spans(attribute(life(stay(100, 400, outcome), off=400), at(400)))["useful"] == 300


def test_a_job_alone_has_the_whole_vm_and_two_share_by_gpus() -> None:
    """One of four GPUs alone: all of it. With three more GPUs of another job: a quarter."""
    small, big = stay(100, 300, job="small"), stay(200, 300, job="big", gpus=3)
    shares = attribute(life(small, big, off=300), at(300))
    seconds = {s.payer.job_uid: s.micros / 1e6 for s in shares if s.payer}
    assert seconds == {"small": 100 + 25, "big": 75}


def test_days_end_at_midnight_utc() -> None:
    """A share belongs to one day."""
    shares = attribute(life(stay(100, None), ready=100), at(3 * 3600))
    by_day: dict[date, float] = {}
    for share in shares:
        by_day[share.day] = by_day.get(share.day, 0) + share.micros / 1e6
    assert by_day == {date(2026, 3, 31): 7200, date(2026, 4, 1): 3600}


def test_amounts() -> None:
    """Time, time of all its GPUs, and money at the price of the VM."""
    (share,) = attribute(life(off=3600), at(3600))
    assert share.amount == Amount(3600, 4 * 3600, 3.6)
    assert (share.tenant_id, share.user_id) == ("", "")


# --- who caused it ------------------------------------------------------------------------


def paid(shares: list[Share]) -> dict[tuple[str, str], float]:
    """(tenant, kind) → seconds; an empty tenant: nobody."""
    found: dict[tuple[str, str], float] = {}
    for share in shares:
        key = (share.tenant_id, str(share.kind))
        found[key] = found.get(key, 0.0) + share.micros / 1e6
    return found


def asked(*stays: Stay, **more: Any) -> Life:
    """A VM that a job of the tenant a asked for."""
    return life(*stays, cause=payer("asker", "a"), idle_max_s=300.0, **more)


def test_boot_and_first_idling_are_the_tenants_that_asked() -> None:
    """Also when another tenant's job is the first to use the VM."""
    made = asked(stay(150, 400, tenant="b"), off=500)
    assert paid(attribute(made, at(500))) == {
        ("a", "boot"): 100,
        ("a", "idle"): 50,
        ("b", "useful"): 250,
        ("b", "idle"): 100,
    }


def test_hedge_is_the_tenants_whose_wait_made_it() -> None:
    """A VM that never ran a job."""
    assert paid(attribute(asked(off=300), at(300))) == {("a", "hedge"): 300}


def test_idling_between_jobs_is_the_job_before() -> None:
    """Until another job takes the VM; of jobs that share it, the one that left last."""
    first, second = stay(100, 200, job="1", tenant="b"), stay(150, 300, job="2", tenant="c")
    made = asked(first, second, stay(350, 400, job="3", tenant="d"), off=400)
    found = paid(attribute(made, at(400)))
    assert {key: s for key, s in found.items() if key[1] == "idle"} == {("c", "idle"): 50}


def test_floor_is_nobodys() -> None:
    """A VM that no job asked for, before and after the job that used it."""
    made = life(stay(150, 400), off=500)
    assert paid(attribute(made, at(500))) == {
        ("", "boot"): 100,
        ("", "idle"): 50 + 100,
        ("t", "useful"): 250,
    }


def test_vm_that_a_floor_keeps_is_nobodys_after_the_idle_timeout() -> None:
    """A job pays for the idle time-out after it and for giving the VM back, not for the nights in
    which a floor keeps it."""
    made = asked(stay(100, 400))
    found = paid(attribute(made, at(100_000)))
    assert found["t", "idle"] == 300 + 60
    assert found["", "idle"] == 100_000 - 400 - 360
    given_back = replace(made, leaving_since=at(700), off_at=at(2000))
    assert ("", "idle") not in paid(attribute(given_back, at(2000)))


def test_vm_that_is_kept_for_its_owner_is_the_owners() -> None:
    """keep_alive drains the VM at the end of its job: however long it is kept, the job pays."""
    made = asked(stay(100, 400), leaving_since=at(400))
    assert paid(attribute(made, at(50_000)))["t", "idle"] == 50_000 - 400


def test_idling_after_what_is_settled_is_still_the_last_jobs() -> None:
    """The last settled attempt is among those of a life: who idles is known without history."""
    made = asked(stay(100, 400), settled_until=at(450))
    assert paid(attribute(made, at(500))) == {("t", "idle"): 50}
    assert burn(made, at(500)) == [(payer("j"), 3.6)]


def test_budgets_count_what_a_tenant_caused() -> None:
    """Boot, idle and hedge time too."""
    found = add_live_spend({}, [asked(ready=None)], at(1000))
    assert found["a"].day_usd == pytest.approx(1.0)


# --- any history --------------------------------------------------------------------------

_WHEN = st.integers(0, 200_000).map(lambda n: n / 2)
_STAY = st.builds(
    lambda since, long, outcome, saved, gpus, job: stay(
        since,
        None if long is None else since + long,
        outcome or "exited_ok",
        job=job,
        tenant=f"tenant-{job}",
        gpus=gpus,
        checkpoint_at=None if saved is None else at(since + saved),
    ),
    _WHEN,
    st.none() | _WHEN,
    st.sampled_from(OUTCOMES),
    st.none() | _WHEN,
    st.integers(0, 4),
    st.sampled_from("abc"),
)
_LIFE = st.builds(
    lambda stays, ready, off, cause, price, leaving: life(
        *stays,
        ready=ready,
        off=off,
        cause=cause and payer(cause, f"tenant-{cause}"),
        usd_per_hour=price,
        idle_max_s=300.0,
        leaving_since=None if leaving is None else at(leaving),
    ),
    st.lists(_STAY, max_size=6),
    st.none() | _WHEN,
    st.none() | _WHEN,
    st.none() | st.sampled_from("abcd"),
    st.integers(0, 10_000_000).map(lambda n: n / 1e5),
    st.none() | _WHEN,
)


@settings(max_examples=100)
@given(_LIFE, _WHEN)
def test_the_parts_are_the_bill(made: Life, now: float) -> None:
    """Whatever happened to a VM, its shares add up to its bill to the last microsecond."""
    end = made.billed_until(at(now))
    shares = attribute(made, end)
    assert sum(share.micros for share in shares) == (end - T0) // timedelta(microseconds=1)
    assert all(share.micros > 0 for share in shares)
    hedge = {share.kind for share in shares} & {K.HEDGE}
    assert not hedge or not made.stays


@settings(max_examples=100)
@given(st.lists(_LIFE, max_size=6), _WHEN)
def test_tenants_add_up_to_the_bill(fleet: list[Life], now: float) -> None:
    """Whatever VMs, jobs, hedges, shared GPUs, losses and preemptions there were: the sums of the
    tenants and of what nobody caused are the bill, exactly, and to the cent as printed. What nobody
    caused is of VMs that no job asked for, or that a floor keeps past the idle time-out."""
    tally = CostTally(CostQuestion("tenant", date(2026, 1, 1), date(2027, 1, 1)), at(now))
    bill, tenants = Fraction(0), Fraction(0)
    for made in fleet:
        end = made.billed_until(at(now))
        bill += _exact((end - T0) // timedelta(microseconds=1), made)
        shares = attribute(made, end)
        tenants += sum((_exact(share.micros, made) for share in shares), Fraction(0))
        tally.add_life(made)
        if made.cause is not None:
            unpaid = {str(share.kind) for share in shares if share.payer is None}
            assert unpaid <= {"idle", "hedge"}
    assert tenants == bill
    report = tally.report()
    assert set(report.rows) <= {"", *(f"tenant-{name}" for name in "abcd")}
    for decimals in (2, 4):
        rows = printed(list(report.rows.values()), decimals)
        units = [round(sum(row.values()) * 10**decimals) for row in rows]
        assert sum(units) == pytest.approx(float(bill) * 10**decimals, abs=0.5001)
        exact = [usd(costs.values()) * 10**decimals for costs in report.rows.values()]
        assert all(abs(unit - part) < 1.0001 for unit, part in zip(units, exact, strict=True))


def _exact(micros: int, made: Life) -> Fraction:
    return Fraction(micros, 3_600_000_000) * Fraction(made.usd_per_hour)


@given(st.lists(st.floats(0, 1e6), max_size=20))
def test_what_is_dealt_out_adds_up(parts: list[float]) -> None:
    """Each part is rounded up or down, and together they are the whole, rounded."""
    whole = round(sum(parts))
    found = dealt_out(parts, whole)
    assert sum(found) == (whole if parts else 0)
    assert all(abs(units - part) < 1.001 for units, part in zip(found, parts, strict=True))


@settings(max_examples=100)
@given(_LIFE, st.lists(_WHEN, min_size=1, max_size=4))
def test_settling_in_pieces_counts_nothing_twice(made: Life, moments: list[float]) -> None:
    """However often a VM is settled on its way, in the end each second was settled once."""
    ended = [s if s.until is not None else replace(s, until=at(300_000)) for s in made.stays]
    over = replace(made, off_at=made.off_at or at(250_000), stays=tuple(ended))
    now_of = sorted(moments)
    micros, until = 0, None
    for moment in now_of:
        # As it was known then: what had not ended was open, and the VM lived.
        known = tuple(
            replace(s, until=None, outcome="") if s.until and s.until > at(moment) else s
            for s in over.stays
            if s.since <= at(moment) and (until is None or s.until is None or s.until > until)
        )
        done = settle(replace(over, off_at=None, stays=known, settled_until=until), at(moment))
        if done is not None and done.until > T0:
            micros, until = micros + sum(s.micros for s in done.shares), done.until
    left = tuple(s for s in over.stays if until is None or s.until is None or s.until > until)
    last = settle(replace(over, stays=left, settled_until=until), at(400_000))
    assert last is not None
    assert last.whole
    micros += sum(share.micros for share in last.shares)
    assert until is not None or over.off_at is not None
    end = max(over.billed_until(at(400_000)), until or T0)
    assert micros == (end - T0) // timedelta(microseconds=1)


# --- settling, reports, budgets -----------------------------------------------------------


def test_what_is_settled_of_a_vm_that_lives() -> None:
    """All that was before the oldest attempt that goes on; nothing of a VM that was never used."""
    assert settle(life(), at(9000)) is None
    done = settle(life(stay(100, 200), stay(300, None)), at(9000))
    assert done is not None
    assert (done.until, done.whole) == (at(300), False)
    idle = settle(life(stay(100, 200)), at(9000))
    assert idle is not None
    assert idle.until == at(9000 - 60), "what is being written just now is left for the next time"


def test_vm_cost_is_its_bill() -> None:
    """From RUNNING until off, a minute at least, nothing before it ran."""
    ran = replace(vm(), running_since=T0, usd_per_hour=3.6)
    assert vm_usd(vm(), at(100)) == 0
    assert vm_usd(ran, at(100)) == pytest.approx(0.1)
    assert vm_usd(replace(ran, stopped_at=at(200), gone_at=at(300)), at(900)) == pytest.approx(0.2)
    assert vm_usd(replace(ran, gone_at=at(1)), at(900)) == pytest.approx(0.06)


def test_burn_is_the_price_now_and_whose() -> None:
    """Shared by GPUs; nobody's while idle; nothing once off."""
    two = life(stay(100, None, job="a"), stay(100, None, job="b", gpus=3))
    assert {s.job_uid: usd for s, usd in burn(two, at(200)) if s} == pytest.approx(
        {"a": 0.9, "b": 2.7}
    )
    assert burn(life(stay(100, 150)), at(200)) == [(None, 3.6)]
    assert burn(life(off=100), at(200)) == []


def test_report_of_what_lives() -> None:
    """Only what fits the question; today, burn and forecast whatever days were asked for."""
    midnight = 2 * 3600
    ours = life(stay(0, None), ready=0)
    theirs = life(stay(0, None, job="k", tenant="u"), ready=0, vm_uid="vm2")
    asked = CostQuestion("day", date(2026, 3, 31), date(2026, 3, 31), tenant_id="t")
    tally = CostTally(asked, at(midnight + 3600))
    for each in (ours, theirs):
        tally.add_life(each)
    report = tally.report()
    assert {day: costs[K.USEFUL].usd for day, costs in report.rows.items()} == pytest.approx(
        {"2026-03-31": 7.2}
    )
    assert report.total[K.USEFUL].vm_seconds == 7200
    assert report.today.usd == pytest.approx(3.6)
    assert report.burn_usd_per_hour == pytest.approx(3.6)
    assert report.forecast_usd == pytest.approx(24 * 3.6)


def test_spend_of_tenants_by_day_and_month() -> None:
    """The new month begins at midnight UTC; what was settled counts on."""
    running = life(stay(0, None), ready=0)
    found = add_live_spend({"t": Spent(1.0, 2.0)}, [running], at(3 * 3600))
    assert found["t"].day_usd == pytest.approx(1.0 + 3.6)
    assert found["t"].month_usd == pytest.approx(2.0 + 3.6)
    before = add_live_spend({}, [running], at(3600))
    assert (before["t"].day_usd, before["t"].month_usd) == pytest.approx((3.6, 3.6))
