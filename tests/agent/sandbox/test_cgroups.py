"""Control groups as files: both versions of the kernel's, in a directory that stands for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.sandbox.cgroups import Group, find_cgroups

V1 = "4:memory:/user\n1:cpu,cpuacct:/\n0::/x"


def test_version_1(tmp_path: Path) -> None:
    """A tree of our own below each controller; the limits are written, and what agents left that
    were killed goes."""
    for controller in ("memory", "cpu"):
        (tmp_path / controller / "zen" / "gone" / "lease").mkdir(parents=True)
    found = find_cgroups("vm", tmp_path, V1)
    assert found is not None
    assert not (tmp_path / "memory/zen/gone").exists()
    mine = tmp_path / "memory/zen/vm/a"
    mine.mkdir()
    for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
        (mine / name).touch()
    group = found.make("a", 100, None)
    assert group == Group((mine,), (tmp_path / "memory/user",), limits_memory=True)
    assert (mine / "memory.limit_in_bytes").read_text() == str(100 << 20)
    assert found.make("b", None, None) is None


def test_version_2(tmp_path: Path) -> None:
    """Below the agent's own group, which has to be its own alone; the agent moves to a leaf."""
    own = tmp_path / "system.slice/zen-agent.service"
    own.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").touch()
    (own / "cgroup.procs").write_text("1\n2\n")
    where = "0::/system.slice/zen-agent.service"
    assert find_cgroups("vm", tmp_path, where) is None
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n")
    found = find_cgroups("vm", tmp_path, where)
    assert found is not None
    assert (own / "agent/cgroup.procs").read_text() == str(os.getpid())
    assert (own / "cgroup.subtree_control").read_text() == "+memory +cpu"
    mine = own / "zen-vm/a"
    mine.mkdir(parents=True)
    for name in ("memory.max", "memory.swap.max", "cpu.max"):
        (mine / name).touch()
    group = found.make("a", 1, 1.5)
    assert group == Group((mine,), (own / "agent",), limits_memory=True)
    assert (mine / "cpu.max").read_text() == "150000 100000"


@pytest.mark.parametrize("file", ["memory.events", "memory.oom_control"])
def test_out_of_memory_is_known(tmp_path: Path, file: str) -> None:
    """The kernel counts what it killed."""
    group = Group((tmp_path,), (), limits_memory=True)
    assert not group.out_of_memory()
    (tmp_path / file).write_text("under_oom 0\noom_kill 1\n")
    assert group.out_of_memory()


def test_no_groups(tmp_path: Path) -> None:
    """Where none can be made, there are none."""
    (tmp_path / "memory").touch()
    (tmp_path / "cpu").touch()
    assert find_cgroups("vm", tmp_path, V1) is None
