"""The one table of transitions, by example and by property."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import IllegalTransition
from core.job import (
    DEADLINE_EVENT,
    FINAL,
    REPEATS,
    TRANSITIONS,
    Budgets,
    E,
    Job,
    JobEvent,
    JobStatus,
    Lease,
    Rules,
    S,
    StopReason,
)
from core.job_fields import JobSpec
from core.job_steps import EventFacts, advance, entry_for, new_job

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RULES = Rules(budgets=Budgets(losses=2, preemptions=2))
PLACING = (E.PLACED, E.FOUND_BY_V1)


def lease(number: int = 1) -> Lease:
    return Lease(f"lease-{number}", "vm-1", "uid-1", "us-central1", "us-central1-a", (0,))


def fresh(**spec: object) -> Job:
    words = {"job_id": "j", "command": ("true",), **spec}
    return new_job("u", JobSpec(**words), "1xl4", NOW)  # type: ignore[arg-type]


def go(job: Job, *events: JobEvent, rules: Rules = RULES) -> Job:
    for number, event in enumerate(events, start=1):
        moment = NOW + timedelta(seconds=number)
        job = advance(job, event, moment, rules, facts=baggage(event, number))
    return job


def baggage(event: JobEvent, number: int = 9) -> EventFacts:
    """What an event needs besides the job: a placement its lease, a reroute its cluster."""
    placed = event in (E.PLACED, E.FOUND_BY_V1)
    return EventFacts(
        lease=lease(number) if placed else None,
        cluster="1xt4" if event is E.REROUTED else None,
    )


def in_state(status: JobStatus) -> Job:
    roads: dict[JobStatus, tuple[JobEvent, ...]] = {
        S.QUEUED: (),
        S.PROVISIONING: (E.ADMITTED,),
        S.ASSIGNED: (E.ADMITTED, E.PLACED),
        S.STARTING: (E.ADMITTED, E.PLACED, E.CLAIMED),
        S.RUNNING: (E.ADMITTED, E.PLACED, E.CLAIMED, E.STARTED),
        S.PREEMPTING: (E.ADMITTED, E.PLACED, E.STARTED, E.PREEMPTION_ASKED),
        S.STOPPING: (E.ADMITTED, E.PLACED, E.STARTED, E.STOP_ASKED),
        S.SUCCEEDED: (E.ADMITTED, E.PLACED, E.STARTED, E.EXITED_OK),
        S.FAILED: (E.ADMITTED, E.PLACED, E.STARTED, E.EXITED_ERROR),
        S.CANCELLED: (E.STOP_ASKED,),
    }
    return go(fresh(), *roads[status])


@pytest.mark.parametrize("status", list(JobStatus))
@pytest.mark.parametrize("event", list(JobEvent))
def test_every_event_from_every_state_is_legal_a_repeat_or_refused(
    status: JobStatus, event: JobEvent
) -> None:
    """The table is the whole truth: nothing else moves a job."""
    job = in_state(status)
    if (status, event) in REPEATS:
        assert advance(job, event, NOW, RULES, facts=baggage(event)) is job
    elif (status, event) in TRANSITIONS:
        after = advance(job, event, NOW, RULES, facts=baggage(event))
        assert after.status in TRANSITIONS[(status, event)]
        assert after.version == job.version + 1
    else:
        with pytest.raises(IllegalTransition):
            advance(job, event, NOW, RULES, facts=baggage(event))


@given(st.lists(st.sampled_from(list(JobEvent)), max_size=60))
def test_no_history_breaks_the_rules(events: list[JobEvent]) -> None:
    """Whatever comes, in whatever order: final states absorb, leases and attempts agree."""
    job, seen = fresh(retries=1), 0
    for number, event in enumerate(events):
        before, moment = job, NOW + timedelta(seconds=number)
        try:
            job = advance(job, event, moment, RULES, facts=baggage(event, number))
        except IllegalTransition:
            job = before
        assert not before.status.final or job is before
        assert job.status.leased == (job.lease is not None)
        assert job.status.final == (job.ended_at is not None) == (job.deadline_at is None)
        assert job.attempt in (before.attempt, before.attempt + 1)
        assert (job.attempt > before.attempt) == (job is not before and event in PLACING)
        assert job.failures <= 2
        assert (job.cluster == before.cluster) or event is E.REROUTED
        if job is not before:
            row = entry_for(before, job, event)
            assert (row.from_status, row.to_status) == (before.status, job.status)
            seen += 1
    assert job.version == 1 + seen


def test_every_state_that_is_not_final_has_a_deadline_event_the_table_knows() -> None:
    """No job waits in one state for ever."""
    for status in JobStatus:
        if status in FINAL:
            assert status not in DEADLINE_EVENT
        else:
            assert (status, DEADLINE_EVENT[status]) in TRANSITIONS


def test_attempt_grows_when_the_start_is_written_never_at_a_requeue() -> None:
    """A requeued job keeps its number until it is placed again."""
    job = go(in_state(S.RUNNING), E.VM_LOST)
    assert (job.status, job.attempt, job.lease) == (S.QUEUED, 1, None)
    assert go(job, E.ADMITTED, E.PLACED).attempt == 2


def test_exit_code_is_retried_while_the_users_retries_last() -> None:
    """retries=1 means two tries in all."""
    road = (E.ADMITTED, E.PLACED, E.STARTED, E.EXITED_ERROR)
    once = go(fresh(retries=1), *road)
    assert (once.status, once.failures) == (S.QUEUED, 1)
    assert go(once, *road).status is S.FAILED


def test_the_next_attempt_waits_twice_as_long_each_time() -> None:
    """10 s after the first failure, then doubled, and never more than the bound; each is said."""
    road = (E.ADMITTED, E.PLACED, E.STARTED)
    job, waits, said = fresh(retries=8), [], []
    for _ in range(8):
        job = advance(
            go(job, *road),
            E.EXITED_ERROR,
            NOW,
            RULES,
            reason="exit code 1",
            facts=EventFacts(exit_code=1),
        )
        assert job.retry_at is not None
        waits.append((job.retry_at - NOW).total_seconds())
        said.append(job.reason)
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600]
    assert said[0] == "attempt 1 failed: exit code 1; attempt 2 of 9 in 10 s"
    assert said[1] == "attempt 2 failed: exit code 1; attempt 3 of 9 in 20 s"
    last = advance(
        go(job, *road),
        E.EXITED_ERROR,
        NOW,
        RULES,
        reason="exit code 1",
        facts=EventFacts(exit_code=1),
    )
    assert (last.status, last.retry_at) == (S.FAILED, None)
    assert last.reason == "attempt 9 of 9 failed: exit code 1; it has no more"


def test_only_what_the_job_did_itself_makes_it_wait() -> None:
    """A lost or reclaimed VM is no reason to wait, and a job without retries is told nothing of
    attempts."""
    road = (E.ADMITTED, E.PLACED, E.STARTED)
    for event in (E.VM_LOST, E.RECLAIMED):
        assert go(fresh(retries=1), *road, event).retry_at is None
    alone = advance(go(fresh(), *road), E.EXITED_ERROR, NOW, RULES, reason="exit code 1")
    assert (alone.status, alone.reason) == (S.FAILED, "exit code 1")


def test_lost_vms_do_not_eat_the_users_retries_and_the_other_way_round() -> None:
    """Budgets are separate."""
    job = fresh(retries=1)
    road = (E.ADMITTED, E.PLACED, E.STARTED)
    job = go(job, *road, E.VM_LOST)
    job = go(job, *road, E.RECLAIMED)
    job = go(job, *road, E.EXITED_ERROR)
    assert (job.status, job.losses, job.preemptions, job.failures) == (S.QUEUED, 1, 1, 1)


def test_infra_budget_ends_a_job_that_loses_its_vm_again_and_again() -> None:
    """Two losses are forgiven here, the third is not."""
    job = fresh()
    for _ in range(3):
        job = go(job, E.ADMITTED, E.PLACED, E.STARTED, E.VM_LOST)
    assert (job.status, job.losses) == (S.FAILED, 3)
    assert job.reason == "vm_lost; 3 VMs lost, 2 are forgiven (budgets.losses)"


@pytest.mark.parametrize("loss", [E.VM_LOST, E.CLAIM_TIMEOUT])
def test_losses_count_before_the_job_runs_too(loss: JobEvent) -> None:
    """A job whose VM is lost again and again while it is ASSIGNED ends as well."""
    job = fresh(reschedulable=False)  # it has not begun: beginning again is allowed
    for _ in range(2):
        job = go(job, E.ADMITTED, E.PLACED, loss)
        assert job.status is S.QUEUED
    job = go(job, E.ADMITTED, E.PLACED, loss)
    assert (job.status, job.losses, job.lease) == (S.FAILED, 3, None)
    assert job.reason == f"{loss}; 3 VMs lost, 2 are forgiven (budgets.losses)"


def test_start_that_the_bus_refuses_ends_the_job() -> None:
    """Another VM would not get the message either."""
    assert go(in_state(S.ASSIGNED), E.START_REFUSED).status is S.FAILED
    with pytest.raises(IllegalTransition):
        go(in_state(S.RUNNING), E.START_REFUSED)


def test_stop_ends_cancelled_but_max_runtime_ends_failed() -> None:
    """The reason of the stop decides."""
    assert go(in_state(S.STOPPING), E.STOPPED).status is S.CANCELLED
    late = go(in_state(S.RUNNING), E.MAX_RUNTIME)
    assert (late.status, late.stop_reason) == (S.STOPPING, StopReason.MAX_RUNTIME)
    assert go(late, E.STOPPED).status is S.FAILED


def test_stop_asked_during_a_max_runtime_stop_changes_nothing() -> None:
    """The first reason stays."""
    late = go(in_state(S.RUNNING), E.MAX_RUNTIME)
    assert go(late, E.STOP_ASKED) is late


def test_success_that_was_faster_than_the_stop_counts() -> None:
    """STOPPING and COMPLETED: the work is done."""
    assert go(in_state(S.STOPPING), E.EXITED_OK).status is S.SUCCEEDED


def test_late_running_heartbeat_does_not_undo_a_stop() -> None:
    """STOPPING wins."""
    job = in_state(S.STOPPING)
    assert go(job, E.STARTED) is job


def test_queue_clock_goes_on_for_a_job_that_was_never_claimed() -> None:
    """Bouncing between QUEUED and ASSIGNED cannot outlive the queue time-out."""
    job = go(fresh(queue_timeout_s=60.0), E.ADMITTED, E.PLACED, E.CLAIM_TIMEOUT)
    assert job.deadline_at == NOW + timedelta(seconds=60)
    ran = go(fresh(queue_timeout_s=60.0), E.ADMITTED, E.PLACED, E.CLAIMED, E.VM_LOST)
    assert ran.deadline_at == ran.status_since + timedelta(seconds=60)


def test_deadline_of_a_running_job_is_its_max_runtime() -> None:
    """Counted from the moment it runs."""
    job = go(fresh(max_runtime_s=100.0), E.ADMITTED, E.PLACED, E.STARTED)
    assert job.deadline_at == job.status_since + timedelta(seconds=100)


def test_placing_forgets_the_last_attempts_exit_code() -> None:
    """An exit code belongs to the attempt that ended."""
    job = advance(in_state(S.RUNNING), E.EXITED_ERROR, NOW, RULES, facts=EventFacts(exit_code=3))
    job = replace(job, status=S.QUEUED, ended_at=None)
    assert go(job, E.ADMITTED, E.PLACED).exit_code is None


@pytest.mark.parametrize("status", [S.QUEUED, S.PROVISIONING])
def test_rerouted_job_keeps_its_place_in_time(status: JobStatus) -> None:
    """Another cluster, the same wait: neither its rank nor its queue time-out starts again, and
    its demand for a VM in the old cluster is over."""
    before = in_state(status)
    after = advance(
        before, E.REROUTED, NOW + timedelta(hours=1), RULES, facts=EventFacts(cluster="1xt4")
    )
    assert (after.cluster, after.status) == ("1xt4", S.QUEUED)
    assert (after.queued_since, after.deadline_at) == (before.queued_since, before.deadline_at)
    assert after.attempt == before.attempt


def test_only_a_reroute_names_a_cluster() -> None:
    """A step that changes the cluster without saying so, or the other way round, is a bug."""
    with pytest.raises(AssertionError):
        advance(fresh(), E.ADMITTED, NOW, RULES, facts=EventFacts(cluster="1xt4"))
    with pytest.raises(AssertionError):
        advance(fresh(), E.REROUTED, NOW, RULES)
