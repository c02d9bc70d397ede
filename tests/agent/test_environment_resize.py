"""An elastic job learns its size: from a file, and by a signal to those who listen for one."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.environment import environment_for, places_for, size_words
from agent.events import Exited, Listening, Output, Started, TellSize
from core.messages import Peer, ResizeJob, Size, StartJob
from stores.local import LocalStore
from tests.agent.orders import ME, Bench, start
from tests.agent.runner_rig import RunnerRig, order_for

TWO = Size(5, 1, 4, (Peer(0, "10.0.0.1"), Peer(1, "10.0.0.2")))
THREE = Size(8, 1, 4, (*TWO.members, Peer(3, "10.0.0.4")))


def order(**changes: object) -> StartJob:
    words = {"rank": 1, "world_size": 2, "leader_address": "10.0.0.1:20001", "size": TWO}
    return replace(start(), **{**words, **changes})  # type: ignore[arg-type]


def news(size: Size, **changes: object) -> ResizeJob:
    told = ResizeJob(ME.vm_name, ME.boot_nonce, "job-l1", "u1", 1, "l1", size)
    return replace(told, **changes)  # type: ignore[arg-type]


def bench(first: StartJob) -> Bench:
    made = Bench()
    made.feed(Listening())
    made.hear(first)
    return made


def told(out: list[Output]) -> list[Output]:
    return [output for output in out if isinstance(output, TellSize)]


# --- the machine ------------------------------------------------------------------------


def test_a_new_size_reaches_the_job_once() -> None:
    """Twice, late or for another lease or boot: nothing."""
    machine = bench(order())
    assert told(machine.hear(news(THREE))) == [TellSize("l1", THREE)]
    assert not told(machine.hear(news(THREE)))
    assert not told(machine.hear(news(replace(TWO, generation=7))))
    assert not told(machine.hear(news(replace(TWO, generation=9), lease_id="l2")))
    assert not told(machine.hear(news(replace(TWO, generation=9), boot_nonce="older")))


def test_what_it_knows_already_is_no_news() -> None:
    """The same members in another generation: nobody forms a group anew."""
    assert not told(bench(order()).hear(news(replace(TWO, generation=6))))


def test_at_the_barrier_it_starts_with_the_newest_size() -> None:
    """There is no process to tell yet."""
    machine = bench(order(barrier=True))
    assert not told(machine.hear(news(THREE)))
    (work,) = machine.machine.jobs.values()
    assert (work.order.size, work.order.world_size) == (THREE, 3)


def test_a_job_that_is_not_elastic_hears_nothing() -> None:
    machine = bench(order(size=None))
    assert not told(machine.hear(news(THREE)))


# --- the environment --------------------------------------------------------------------


def variables(made: StartJob, root: Path) -> dict[str, str]:
    places = places_for(made, root / "vm", LocalStore(root / "store"))
    places.make()
    return environment_for(made, places, {})


def test_torchrun_finds_the_others(tmp_path: Path) -> None:
    """Its options come from the environment; what the job says itself goes before them."""
    mine = replace(order().spec, environment={"PET_NPROC_PER_NODE": "1"})
    found = variables(order(spec=mine), tmp_path)
    expected = {
        "PET_NNODES": "1:4",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "10.0.0.1:20001",
        "PET_RDZV_ID": "job-l1",
        "PET_RDZV_CONF": "is_host=0",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "20001",
        "RANK": "1",
        "WORLD_SIZE": "2",
    }
    assert {name: found[name] for name in expected} == expected
    assert found["ZEN_SIZE_FILE"].endswith("/size/size.json")
    assert variables(order(size=None), tmp_path)["PET_NNODES"] == "2"


def test_a_job_on_one_vm_has_no_rendezvous(tmp_path: Path) -> None:
    found = variables(replace(start(), rank=0), tmp_path)
    assert not [name for name in found if name.startswith("PET_") or name == "ZEN_SIZE_FILE"]


def test_the_size_file_says_who_is_there() -> None:
    """Ranks stay with their members, places are without gaps."""
    assert size_words(order(rank=3), THREE) == {
        "job_id": "job-l1",
        "generation": 8,
        "world_size": 3,
        "min": 1,
        "max": 4,
        "rank": 3,
        "place": 2,
        "leader_address": "10.0.0.1:20001",
        "members": [
            {"rank": 0, "address": "10.0.0.1"},
            {"rank": 1, "address": "10.0.0.2"},
            {"rank": 3, "address": "10.0.0.4"},
        ],
    }


# --- real processes ---------------------------------------------------------------------

# The signal is waited for, not handled: one that came in the middle of a print, or just before a
# pause, would be lost. The handler is there because that is how one shows that one listens.
LISTENER = """
import json, os, signal, sys
number = getattr(signal, "SIG" + sys.argv[1])
signal.pthread_sigmask(signal.SIG_BLOCK, [number])
signal.signal(number, lambda *_: None)
while True:
    with open(os.environ["ZEN_SIZE_FILE"]) as file:
        print("size", json.load(file)["world_size"], flush=True)
    signal.sigwait([number])
"""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RunnerRig]:
    made = RunnerRig(tmp_path)
    yield made
    await made.runner.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["USR1", "USR2"])
async def test_a_process_that_listens_gets_the_signal(rig: RunnerRig, name: str) -> None:
    """The shell that started it has no handler and would die of it: it is left alone."""
    script = rig.root / "listen.py"
    script.write_text(LISTENER, encoding="utf-8")
    spec = replace(
        order_for(f"{sys.executable} {script} {name}; echo end").spec, resize_signal=name
    )
    rig.start("", spec=spec, size=TWO, rank=1)
    assert await rig.next() == Started("lease-1")
    await rig.said("size 2\n")
    rig.runner.resize("lease-1", THREE)
    await rig.said("size 2\nsize 3\n")


@pytest.mark.slow
async def test_the_file_alone(rig: RunnerRig) -> None:
    """Without a signal the file is there when the job looks."""
    order = order_for("until grep -q 'world_size.: 3' $ZEN_SIZE_FILE; do sleep 0.05; done")
    rig.start("", spec=replace(order.spec, resize_signal="none"), size=TWO, rank=1)
    assert await rig.next() == Started("lease-1")
    rig.runner.resize("lease-1", THREE)
    assert await rig.end() == Exited("lease-1", 0, "exit code 0")


@pytest.mark.slow
async def test_a_disk_that_is_full_does_not_end_the_agent(rig: RunnerRig) -> None:
    """The job goes on with the size that it knows."""
    made = rig.start("sleep 60", size=TWO, rank=1)
    assert await rig.next() == Started("lease-1")
    places = places_for(made, rig.root / "vm", rig.store)
    known = json.loads(places.size_file.read_text(encoding="utf-8"))
    places.size_file.with_suffix(".new").mkdir()
    rig.runner.resize("lease-1", THREE)
    assert json.loads(places.size_file.read_text(encoding="utf-8")) == known
    rig.runner.resize("lease-9", THREE)
