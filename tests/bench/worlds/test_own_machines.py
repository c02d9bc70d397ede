"""Machines that are there anyway, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from bench.worlds.own_machines import simulate_own
from bench.worlds.sockets import SocketLoop
from sim.virtual.run import SimulationPlan


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_jobs_on_own_machines_survive_their_node_services(seed: int) -> None:
    """Services go away, hang and talk nonsense, workers crash, leaders die: every job ends, none
    runs twice at once, and in the end each machine has its worker."""
    outcome = simulate_own(SimulationPlan(seed, jobs=25, replicas=2))
    assert [str(violation) for violation in outcome.violations] == [], outcome.about
    assert sum(outcome.statuses.values()) == 25
    assert outcome.faults["own_crash"] > 0
    assert outcome.faults["alert_cloud_missing"] > 0


def test_without_misfortune_each_job_runs_once() -> None:
    """One worker for each machine, from the beginning to the end."""
    outcome = simulate_own(SimulationPlan(4, jobs=10, replicas=1, faults=False))
    assert outcome.violations == []
    assert sum(outcome.statuses.values()) == 10
    assert not [step for step in outcome.transitions if "vm_lost" in step]


def test_sockets_in_virtual_time() -> None:
    """A line there, a line back; nobody listens, and one who hangs up."""
    loop = SocketLoop()

    async def shout(line: bytes) -> bytes | None:
        return line.upper() if line != b"bye\n" else None

    async def ask(line: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection("/here")
        writer.write(line)
        answer = await reader.readline()
        writer.close()
        return answer

    loop.listening["/here"] = shout
    assert loop.run_until_complete(ask(b"hello\n")) == b"HELLO\n"
    assert loop.run_until_complete(ask(b"bye\n")) == b""
    del loop.listening["/here"]
    with pytest.raises(FileNotFoundError):
        loop.run_until_complete(ask(b"hello\n"))
    loop.dispose()
