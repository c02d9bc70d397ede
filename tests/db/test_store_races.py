"""Races on PostgreSQL: stops against heartbeats, drains against placements, equal submissions.

The service's own parts; `python -m bench.races` runs the same with other counts."""

from __future__ import annotations

import gc
from collections.abc import Iterator, MutableMapping, Sequence

import pytest

from bench import races
from bench.house import house_on
from bench.race_submits import race_submits
from bench.races import race_drains, race_stops
from bench.report import RaceResult
from core import commit as kernel
from core.changes import AtomicBatch, Committed
from core.job import Job
from core.vm import Vm, VmState

pytestmark = pytest.mark.slow


def held(result: RaceResult) -> RaceResult:
    """Nothing went wrong, and the race was really run."""
    assert result.faults == []
    assert result.collisions > 0
    return result


async def test_stop_against_heartbeats(database_url: str) -> None:
    """1,000 stops race with claims, starts and ends: each job ends CANCELLED or SUCCEEDED."""
    result = held(await race_stops(database_url, 1000, seed=1))
    assert result.outcomes["CANCELLED"] + result.outcomes["SUCCEEDED"] == 1000
    assert min(result.outcomes["CANCELLED"], result.outcomes["SUCCEEDED"]) > 0


async def test_drain_against_placement(database_url: str) -> None:
    """1,000 idle VMs are given back while jobs are placed on them: no leased VM is deleted."""
    result = held(await race_drains(database_url, 1000, seed=1))
    assert result.outcomes["VMs deleted"] == 1000
    assert min(result.outcomes["CANCELLED"], result.outcomes["SUCCEEDED"]) > 0


async def test_equal_submissions_at_once(database_url: str) -> None:
    """50 times the same over two doors of two replicas: one job, equal answers."""
    result = await race_submits(database_url, 10, seed=1)
    assert (result.faults, result.outcomes["equal answers"]) == ([], 10)


# --- the races would notice ---------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What hangs because a guard is missing need not be waited for."""
    monkeypatch.setattr(races, "WAIT_S", 1.0)
    yield
    gc.collect()  # what was left in the middle is complained of here, not in another test


# A service without its guards ends in the middle of what it did: pipelines that nobody closes are
# not what these tests are about.
torn = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def _blind(
    noun: str, name: str, before: Job | Vm, after: Job | Vm, versions: MutableMapping[str, int]
) -> str | None:
    """A guard that lets every step pass."""
    versions[before.uid] = after.version
    return None


@torn
async def test_without_versions_stops_are_lost(
    database_url: str, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    """Without the comparison of versions some history is not what the table allows."""
    monkeypatch.setattr(kernel, "_guard_version", _blind)
    assert (await race_stops(database_url, 200, seed=1)).faults


@torn
async def test_without_versions_leased_vms_are_deleted(
    database_url: str, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    """Without it a VM is deleted under its job."""
    monkeypatch.setattr(kernel, "_guard_version", _blind)
    assert (await race_drains(database_url, 200, seed=1)).faults


@torn
async def test_without_care_for_refused_steps_stops_are_lost(
    database_url: str, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    """If a step may build on a refused one, a running heartbeat undoes a stop."""
    monkeypatch.setattr(kernel, "_built_on_sand", lambda *_: None)
    assert (await race_stops(database_url, 300, seed=1)).faults


async def test_drain_is_not_planned_on_a_refused_observation(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job placed while an observation is being written keeps its VM: the version that the
    observation would have made is now the placement's, and nothing may be built on it."""
    async with house_on(database_url, seed=1) as house:
        now = await house.now()
        await house.put([house.new_vm(now)[1], house.new_job(now)[1]])
        commit = house.store.commit

        async def overtaken(batches: Sequence[AtomicBatch], term: int | None) -> Committed:
            monkeypatch.setattr(house.store, "commit", commit)
            await house.loop.cycle()
            return await commit(batches, term)

        monkeypatch.setattr(house.store, "commit", overtaken)
        await house.manager.reconcile()
        (vm,) = (await house.api.snapshot(0)).vms
        assert (vm.state, len(vm.leases)) == (VmState.READY, 1)
