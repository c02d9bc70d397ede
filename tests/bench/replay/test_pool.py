"""The pool and its policies, on jobs small enough to reckon by hand."""

from __future__ import annotations

import pytest

from bench.replay.pool import Costs, PoolJob, PoolPolicy, replay
from bench.replay.queue_eta import Asking, truth_of
from bench.replay.queue_figures import figures_of
from bench.replay.queue_product import ProductQueue
from bench.replay.queue_rivals import (
    Easy,
    Fifo,
    Fill,
    Las,
    Oracle,
    ShortestPredicted,
    shortest_known,
)
from sim.replay.synthetic import Recipe, make_jobs
from sim.replay.workload import TraceJob

# A long one takes 2 of 4 GPUs; one of 4 must wait; two small ones could pass.
TRACE = (
    TraceJob(0.0, 1000.0, 2),
    TraceJob(1.0, 100.0, 4),
    TraceJob(2.0, 500.0, 2),
    TraceJob(3.0, 5000.0, 2),
)


def starts(policy: PoolPolicy) -> list[float]:
    return [job.first_at for job in replay(TRACE, 4, policy)]


def test_rivals_start_whom_they_should() -> None:
    """Strict: all wait for the second. Fill: both pass it. EASY: only the one that ends in time."""
    assert starts(Fifo()) == [0, 1000, 1100, 1100]
    assert starts(Fill()) == [0, 5502, 2, 502]
    assert starts(Easy()) == [0, 1000, 2, 1100]
    assert starts(shortest_known()) == [0, 5502, 2, 502]


def test_the_oracle_preempts_for_what_is_shorter() -> None:
    """The second needs 400 GPU-seconds, the first still 1998: it is preempted and goes on
    afterwards."""
    jobs = replay(TRACE, 4, Oracle())
    assert [job.first_at for job in jobs] == [0, 1, 101, 601]
    assert jobs[0].preemptions == 1
    assert jobs[0].ended_at == 1100


def test_preemptions_cost_what_was_not_saved() -> None:
    """With a checkpoint each 60 s the first keeps nothing of its one second, and restarts in 5."""
    jobs = replay(TRACE, 4, Oracle(), Costs(checkpoint_s=60.0, restart_s=5.0))
    assert jobs[0].lost_gpu_s == 2.0
    assert jobs[0].ended_at == 1106


def test_a_job_that_never_fits_is_refused() -> None:
    """The replay would have no end."""
    with pytest.raises(ValueError, match="8 GPUs"):
        replay([TraceJob(0, 1, 8)], 4, Fifo())


def test_this_queue_lets_the_new_start_before_those_that_had_much() -> None:
    """A job that has run for hours is preempted for one that has waited for what the restart
    costs."""
    trace = (TraceJob(0.0, 100_000.0, 4), TraceJob(50_000.0, 600.0, 4))
    jobs = replay(trace, 4, ProductQueue())
    assert jobs[1].first_at == 50_060
    assert jobs[0].ended_at == 100_600
    still = replay(trace, 4, ProductQueue(preempts=False))
    assert still[1].first_at == 100_000


def test_elastic_jobs_use_what_is_spare() -> None:
    """It starts with a quarter of its size; a minute later, alone in the pool, it has twice
    its size, and is nearly twice as fast."""
    (job,) = replay([TraceJob(0.0, 1000.0, 2)], 8, ProductQueue(), elastic=[0])
    done_s = 60 * 0.5**0.88
    assert job.ended_at == pytest.approx(60 + (1000 - done_s) / 2**0.88)


@pytest.mark.parametrize(
    "policy",
    [Fifo, Fill, Easy, ShortestPredicted, Las, Oracle, ProductQueue],
    ids=lambda p: p.__name__,
)
def test_replays_are_whole_and_repeatable(policy: type[PoolPolicy]) -> None:
    """Every job ends, none before its work is done, and again in the same way."""
    work = make_jobs(Recipe(seed=4, days=1.0))

    def once() -> list[PoolJob]:
        return replay(
            work.jobs, 8, policy(), elastic=range(0, 50, 3) if policy is ProductQueue else ()
        )

    first, again = once(), once()
    assert [job.ended_at for job in first] == [job.ended_at for job in again]
    assert all(job.wait_s > -1e-6 for job in first if not job.elastic)
    assert figures_of(first, 8).jobs == len(work.jobs)


def test_etas_are_told_and_counted() -> None:
    """Jobs that have to wait are told when they start; what they were told is held against it."""
    work = make_jobs(Recipe(seed=4, days=2.0))
    asking = Asking(preempts=False, every=2)
    replay(work.jobs, 4, asking)
    truth = truth_of(asking.outcomes)
    assert truth.told > 50
    assert not asking.told
    assert 0.5 < truth.p90_holds <= 1
