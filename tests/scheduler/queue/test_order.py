"""Who goes first: class, share, due; and the guarantees that the order makes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from core.active import ActiveIndex, Census, take_census
from core.job import E, Job
from core.job_fields import JobSpec
from core.job_steps import advance, new_job
from core.queueing import (
    AGING_LIMIT_MAX_S,
    PriorityClass,
    QueuePolicy,
    QueueRule,
    aging_limit_s,
    class_of,
    due_at,
    size_s,
)
from core.tenants import Tenant, Usage
from scheduler.queue.fair_share import Shares, shares_of
from scheduler.queue.order import ranked
from tests.builders import NOW, RULES, at, job

POLICY = QueuePolicy()
HOUR = 3600.0


def shares(used: dict[str, float] | None = None, **weights: float) -> Shares:
    return Shares(used or {}, weights, HOUR, POLICY.hysteresis)


def ids(jobs: list[Job], rule: QueueRule = QueueRule.FAIR, by: Shares | None = None) -> list[str]:
    return [each.spec.job_id for each in ranked(jobs, rule, by or shares())]


def test_classes_of_priorities() -> None:
    """100–500 low, 500–1000 normal, 1000–2000 high, 2000 and more urgent."""
    words = {p: class_of(p).name for p in (0, 100, 499, 500, 999, 1000, 1999, 2000, 9999)}
    assert list(words.values()) == [
        *("LOW", "LOW", "LOW", "NORMAL", "NORMAL", "HIGH", "HIGH", "URGENT", "URGENT")
    ]


def test_class_goes_before_share() -> None:
    """A tenant that has used much still goes first with an urgent job."""
    calm = job(1, tenant_id="idle")
    urgent = job(2, tenant_id="greedy", priority=2000)
    assert ids([calm, urgent], by=shares({"greedy": 1e9}, idle=1, greedy=1)) == ["job-2", "job-1"]


def test_who_has_had_least_goes_next() -> None:
    """Within a class the smaller share goes first, not the earlier job."""
    early, late = job(1, tenant_id="greedy"), job(2, tenant_id="idle")
    assert ids([early, late], by=shares({"greedy": 7200.0}, idle=1, greedy=1)) == ["job-2", "job-1"]


def test_fifo_and_priority_remain() -> None:
    """Arrival alone; the number alone."""
    jobs = [job(2, priority=900), job(1, priority=100), job(3, priority=950)]
    assert ids(jobs, QueueRule.FIFO) == ["job-1", "job-2", "job-3"]
    assert ids(jobs, QueueRule.PRIORITY) == ["job-3", "job-2", "job-1"]


@given(st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1.0, 2.0, 3.0, 9.0]), min_size=2))
def test_places_are_dealt_out_by_weight(weights: dict[str, float]) -> None:
    """Among tenants that have used nothing, each gets its part of any number of places, to one."""
    jobs = [
        job(100 * index + number, tenant_id=name)
        for index, name in enumerate(weights)
        for number in range(40)
    ]
    got = Counter(
        each.spec.tenant_id
        for each in islice(ranked(jobs, QueueRule.FAIR, shares(None, **weights)), 36)
    )
    for name, weight in weights.items():
        assert abs(got[name] - 36 * weight / sum(weights.values())) <= 1 + len(weights) / 2


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 9999), st.integers(0, 10**6)), max_size=30
    )
)
def test_order_is_a_permutation_by_class_and_due(rows: list[tuple[str, int, int]]) -> None:
    """Nobody is lost, classes never mix, and within a tenant and class who is due first goes
    first."""
    jobs = [
        new_job(f"u{n:03}", JobSpec(f"j{n}", tenant_id=t, priority=p), "1xl4", at(s))
        for n, (t, p, s) in enumerate(rows)
    ]
    order = list(ranked(jobs, QueueRule.FAIR, shares(a=1, b=2)))
    assert sorted(each.uid for each in order) == sorted(each.uid for each in jobs)
    classes = [class_of(each.spec.priority) for each in order]
    assert classes == sorted(classes, reverse=True)
    for tenant in "ab":
        for kind in PriorityClass:
            mine = [
                each.due
                for each in order
                if each.spec.tenant_id == tenant and class_of(each.spec.priority) is kind
            ]
            assert mine == sorted(mine)


@given(
    st.integers(0, 9999),
    st.integers(0, 9999),
    st.floats(60, 7 * 86400),
    st.floats(60, 7 * 86400),
    st.floats(0, 1e6),
)
def test_bound_of_starvation(
    mine: int, theirs: int, my_size: float, their_size: float, later: float
) -> None:
    """Once a job has waited as long as it was told, nobody of its tenant and class who comes later
    goes first, however small and however high within the class."""
    first = JobSpec("first", priority=mine)
    bound = aging_limit_s(first, 0.0, POLICY, my_size)
    waiting = new_job("a", first, "1xl4", NOW, due=due_at(NOW, first, 0.0, POLICY, my_size))
    arrived = NOW + timedelta(seconds=bound + later)
    other = JobSpec("b", priority=theirs)
    due = due_at(arrived, other, 0.0, POLICY, their_size)
    comes = new_job("b", other, "1xl4", arrived, due=due)
    if class_of(mine) is class_of(theirs):
        assert next(ranked([comes, waiting], QueueRule.FAIR, shares(default=1))) is waiting


@given(st.integers(0, 9999), st.floats(0, 1e7), st.integers(1, 64))
def test_the_aging_limit_is_relative_to_size(priority: int, attained: float, gpus: int) -> None:
    """At least `patience` × size, and bounded: a big job waits longer for its turn than a small
    one, none for ever."""
    spec = JobSpec("j", priority=priority, gpu_count=gpus)
    size = size_s(spec, attained, POLICY)
    wait = aging_limit_s(spec, attained, POLICY)
    most = AGING_LIMIT_MAX_S + POLICY.big_first_s
    assert min(POLICY.patience * size, AGING_LIMIT_MAX_S) <= wait <= most


@given(st.integers(0, 9999), st.integers(1, 64), st.floats(0, 1e7), st.floats(0, 1e7))
def test_service_had_puts_a_job_behind_new_ones(
    priority: int, gpus: int, one: float, other: float
) -> None:
    """A job that has had more is never due before an equal that has had less."""
    spec = JobSpec("j", priority=priority, gpu_count=gpus)
    less, more = sorted((one, other))
    assert due_at(NOW, spec, less, POLICY) <= due_at(NOW, spec, more, POLICY)
    new, old = due_at(NOW, spec, 0.0, POLICY), due_at(NOW, spec, 40 * HOUR * gpus, POLICY)
    assert new < old


@given(st.integers(0, 9999), st.integers(0, 9999))
def test_a_higher_number_is_due_sooner(one: int, other: int) -> None:
    """Within its class."""
    low, high = sorted((one, other))
    if class_of(low) is class_of(high):
        lower, higher = (aging_limit_s(JobSpec("j", priority=p), 0.0, POLICY) for p in (low, high))
        assert higher <= lower


def test_an_attempt_that_ends_counts_and_moves_the_job() -> None:
    """What a job had is added when its lease ends; it waits again behind those who had less, but
    its age counts from its submission. What was predicted of it when it came still holds."""
    ran = job(1, E.ADMITTED, E.PLACED, E.CLAIMED, E.STARTED, gpu_count=4)
    back = advance(ran, E.VM_LOST, at(1 + 9 * HOUR), RULES)
    assert back.attained_gpu_s == 36 * HOUR
    assert back.due == due_at(back.submitted_at, back.spec, 36 * HOUR, RULES.queue)
    later = replace(ran, due_at=at(1000 * HOUR))
    assert advance(later, E.VM_LOST, at(1 + 9 * HOUR), RULES).due == at(1000 * HOUR)


def test_a_place_is_kept_unless_a_share_is_clearly_smaller() -> None:
    """Hysteresis: two tenants whose shares are nearly the same do not take turns in waiting."""
    holds, comes = job(1, E.ADMITTED, tenant_id="a"), job(2, tenant_id="b")
    nearly = shares({"a": 100_000.0, "b": 95_000.0}, a=1, b=1)
    clearly = shares({"a": 100_000.0, "b": 85_000.0}, a=1, b=1)
    assert ids([holds, comes], by=nearly) == ["job-1", "job-2"]
    assert ids([holds, comes], by=clearly) == ["job-2", "job-1"]


def test_usage_is_forgotten_by_half_lives() -> None:
    """Late news is not made younger, and the order of news does not matter."""
    week = POLICY.half_life_s
    early, late = at(0), at(week)
    one = Usage().plus(100.0, early, week).plus(10.0, late, week)
    other = Usage().plus(10.0, late, week).plus(100.0, early, week)
    assert one == other == Usage(60.0, late)
    assert one.decayed(at(2 * week), week) == 30.0


def test_what_runs_counts_for_the_share() -> None:
    """So far, and ahead for a typical run; divided by the weight."""
    ran = job(1, E.ADMITTED, E.PLACED, E.STARTED, tenant_id="a", gpu_count=2)
    found = shares_of(
        {"a": Tenant("a", weight=2.0), "b": Tenant("b")},
        {"a": Usage(1000.0, NOW)},
        take_census([ran]),
        at(101),
        POLICY,
        HOUR,
    )
    past = 1000.0 * 0.5 ** (101 / POLICY.half_life_s)
    assert abs(found.used_by("a") - (past + 2 * (100 + HOUR)) / 2) < 1e-3
    assert found.in_order() == ["b", "a"]


@given(st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=8), max_size=6))
def test_census_of_changes_is_the_census_of_all(turns: list[list[tuple[int, int]]]) -> None:
    """An index that counts only what moved says what a fresh look says."""
    states = ((), (E.ADMITTED,), (E.ADMITTED, E.PLACED), (E.ADMITTED, E.PLACED, E.STARTED))
    active = ActiveIndex()
    for cycle in turns:
        jobs = {n: job(n, *states[s], tenant_id="ab"[n % 2]) for n, s in cycle}
        for moved in jobs.values():
            active.put_job(moved)
        for uid in active.jobs.keys() - {moved.uid for moved in jobs.values()}:
            active.drop_job(uid)
        kept, fresh = active.census, take_census(jobs.values())
        for name in "ab":
            assert kept.gpus[name] == fresh.gpus[name]
            assert abs(kept.gpu_s(name, at(50), HOUR) - fresh.gpu_s(name, at(50), HOUR)) < 1
        assert kept.leased["1xl4"] == fresh.leased["1xl4"]


def test_census_follows_the_steps_of_a_turn() -> None:
    """Before: leased; after: gone. And the other way round."""
    ran = job(1, E.ADMITTED, E.PLACED)
    gone = job(1)
    base = take_census([ran])
    assert base.after([(ran, gone)]).leased["1xl4"] == 0
    assert Census().after([(gone, ran)]).leased["1xl4"] == 1
    assert base.leased["1xl4"] == 1
