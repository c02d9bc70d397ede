"""The pending reason is the first rule with words, wherever in the queue the job stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.cluster import ClusterSpec
from core.job import E, Job
from scheduler.admission.pending_reasons import RULES, Situation, explain, pending_reason
from scheduler.plan_builder import PlanBuilder
from scheduler.queue.budgets import BudgetStatus
from tests.builders import NOW, at, cluster, job, snapshot
from tests.builders import RULES as TIMES

FREE = BudgetStatus()


def far_back(spec: ClusterSpec | None, budgets: BudgetStatus = FREE) -> Situation:
    return Situation(NOW, spec, budgets, lambda _: None, far_back=True)


def in_a_cycle(waits: Job, spec: ClusterSpec | None) -> str:
    seen = snapshot((waits,))
    plan = PlanBuilder(seen, TIMES, lambda _: pytest.fail("nobody is told anything"))
    clusters = {} if spec is None else {spec.name: spec}
    (news,) = explain(plan, seen, clusters, FREE, {})
    return news.why


def test_each_rule_has_a_name_of_its_own() -> None:
    """A new rule has its place in one list."""
    kinds = [rule.kind for rule in RULES]
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize(
    ("waits", "spec", "words"),
    [
        (job(1), None, "is not in the configuration any more"),
        (job(1), cluster(drain=True), "is being drained"),
        (job(1, regions=("mars-north1",)), cluster(), "none of the job's regions"),
        (job(1, max_usd_per_hour=0.01), cluster(), "price cap of $0.01"),
        (job(1, gpu_count=8), cluster(), "no VM of 1xl4 is large enough"),
        (job(1, replicas=9), cluster(vm_max=4), "needs 9 VMs at once"),
    ],
)
def test_the_millionth_job_hears_what_the_first_hears(
    waits: Job, spec: ClusterSpec | None, words: str
) -> None:
    """What follows from the job and its cluster is said in the same words by the API."""
    told = pending_reason(waits, far_back(spec))
    assert words in told
    assert told == in_a_cycle(waits, spec)


def test_far_back_without_any_other_reason_others_are_ahead() -> None:
    """A job that has only just come has no reason yet: the next cycle gives it one."""
    assert "other jobs for cluster 1xl4 are ahead" in pending_reason(job(1), far_back(cluster()))
    assert pending_reason(job(1), replace(far_back(cluster()), far_back=False)) == ""


def test_budget_comes_before_every_other_reason() -> None:
    """What ends it is another thing than what the cluster lacks."""
    spent = BudgetStatus(held={"default": "tenant default has used its budget"})
    assert pending_reason(job(1), far_back(None, spent)) == "tenant default has used its budget"


def test_job_that_waits_for_its_next_attempt_says_when_far_back_too() -> None:
    """The moment is the job's own."""
    failed = job(1, E.ADMITTED, E.PLACED, E.STARTED, E.EXITED_ERROR, retries=2)
    told = pending_reason(replace(failed, retry_at=at(90)), far_back(cluster()))
    assert told == "attempt 2 of 3 after a failure: starts at 12:01:30 UTC"
