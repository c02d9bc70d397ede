"""Argument list, directories and environment of a job, as values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.environment import argv_for, environment_for, places_for
from core.messages import StartJob
from stores.local import LocalStore
from tests.agent.bucket import Bucket
from tests.agent.orders import start


def env(order: StartJob, root: Path) -> dict[str, str]:
    places = places_for(order, root / "vm", LocalStore(root / "store"))
    places.make()
    return environment_for(order, places, {"PATH": "/p"})


def test_shell_only_on_request() -> None:
    """One string goes to /bin/sh if the job says so, else words are words."""
    spec = replace(start().spec, command=("echo $HOME",))
    order = replace(start(), spec=spec)
    assert argv_for(order) == ["echo $HOME"]
    shell = replace(order, spec=replace(spec, shell=True))
    assert argv_for(shell) == ["/bin/sh", "-c", "echo $HOME"]


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("10.0.0.2:1234", "10.0.0.2", "1234"),
        ("10.0.0.2", "10.0.0.2", "29502"),
        ("", "127.0.0.1", "29502"),
    ],
)
def test_leader_of_a_gang(tmp_path: Path, address: str, host: str, port: str) -> None:
    """The leader's address is split for PyTorch; without one the job leads itself."""
    order = replace(start(slots=(2, 3)), leader_address=address, rank=1, world_size=4)
    found = env(order, tmp_path)
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == (host, port)
    assert (found["RANK"], found["WORLD_SIZE"], found["ZEN_RANK"]) == ("1", "4", "1")


def test_bucket_checkpoints_lie_on_the_vm(tmp_path: Path) -> None:
    """With a store that is no file system the directories lie on the VM's own disk."""
    places = places_for(start(), tmp_path, Bucket(tmp_path))
    assert places.checkpoints == tmp_path / "checkpoints/default/u1/job-l1"


def test_hostile_ids_stay_below_their_roots(tmp_path: Path) -> None:
    """No id of a job or lease leads a directory out of its root."""
    spec = replace(start().spec, job_id="../../x", tenant_id="..", user_id="/etc")
    order = replace(start(lease_id="../../../etc"), spec=spec)
    places = places_for(order, tmp_path / "vm", LocalStore(tmp_path / "store"))
    assert ".." not in places.base.parts + places.checkpoints.parts + places.outputs.parts
    assert places.base.parent == tmp_path / "vm" / "jobs"
    assert places.checkpoints.relative_to(tmp_path / "store" / "checkpoints").parts
