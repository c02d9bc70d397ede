"""What `zen node` makes of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.inventory import FoundGpu
from cli.local.config import write_sealed
from cli.local.node_config import PLACE, NoGpus, node_values, plan_node, socket_of

L4 = FoundGpu("NVIDIA L4", 23034)


def test_the_gpus_that_are_there_make_one_shared_cluster(tmp_path: Path) -> None:
    """Free of charge, kept whether there is work or not."""
    plan = plan_node(None, [L4, L4])
    settings = write_sealed(tmp_path / "zen.yaml", node_values(plan, tmp_path / "s", tmp_path), "x")
    (cluster,) = settings.clusters
    assert (cluster.name, cluster.pool, cluster.share) == ("2xl4", "static", True)
    assert (cluster.vm_min, cluster.vm_max, cluster.gpu_memory_gb) == (1, 1, 22)
    assert cluster.usd_per_hour(PLACE) == 0
    assert cluster.region(PLACE).node == f"unix:{tmp_path}/s"


def test_without_a_driver_gpus_are_pretended_only_if_asked_for() -> None:
    """A laptop can try it; a server whose driver is broken is not fooled."""
    assert plan_node(4, []).cluster == "4xgpu"
    with pytest.raises(NoGpus, match="--gpus N"):
        plan_node(None, [])


def test_a_machine_may_take_jobs_without_gpus(tmp_path: Path) -> None:
    """One at a time: a CPU cluster of one machine."""
    plan = plan_node(0, [L4])
    settings = write_sealed(tmp_path / "zen.yaml", node_values(plan, tmp_path / "s", tmp_path), "x")
    (cluster,) = settings.clusters
    assert (cluster.name, cluster.pool, cluster.share) == ("0xcpu", "static", False)


def test_more_than_there_is_cannot_be_had() -> None:
    """Fewer can: the rest is left to others."""
    assert plan_node(1, [L4, L4]).cluster == "1xl4"
    with pytest.raises(NoGpus, match="this machine has 2 of l4"):
        plan_node(3, [L4, L4])


def test_a_second_type_is_left_alone_and_said_so() -> None:
    """One worker has GPUs of one type."""
    assert "1 of another type" in plan_node(None, [L4, L4, FoundGpu("Tesla T4", 15360)]).note


def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    """The kernel takes 108 bytes."""
    assert socket_of(tmp_path / "x") == tmp_path / "x" / "node.sock"
    assert len(str(socket_of(tmp_path / ("long" * 40)))) < 108
