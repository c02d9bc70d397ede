"""The world file: what it may say, and how it is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sim.cloud import world as world_module
from sim.cloud.faults import Stockout
from sim.cloud.parsing import InvalidInput
from sim.cloud.world import CloudPhysics, load_world, parse_world
from tests.sim.helpers import make_world, mig_json, world_json


def test_a_world_loads_from_its_file(tmp_path: Path) -> None:
    """Everything the file says arrives in the values."""
    raw = world_json(
        mig_json(spot=True, default_action_on_failure="REPAIR", list_mode="PAGINATED"),
        physics={
            "capacity": {
                "default": 4,
                "pools": [
                    {
                        "zone": "us-central1-a",
                        "machine_type": "a2-highgpu-1g",
                        "spot": True,
                        "vms": 2,
                    }
                ],
            },
            "quotas": [
                {"region": "us-central1", "metric": "PREEMPTIBLE_NVIDIA_A100_GPUS", "limit": 3}
            ],
        },
        faults=[{"kind": "stockout", "zone": "us-central1-b", "for_s": 60}],
    )
    path = tmp_path / "world.json"
    path.write_text(json.dumps(raw))
    world = load_world(path)
    assert (world.project, world.seed) == ("zen-test", 7)
    assert world.migs[0].spot
    assert world.migs[0].default_action_on_failure == "REPAIR"
    assert dict(world.migs[0].metadata)["zen-gpus"] == "1"
    assert world.physics.capacity == ((("us-central1-a", "a2-highgpu-1g", True), 2),)
    assert world.physics.capacity_default == 4
    assert world.faults == (Stockout(for_s=60.0, zone="us-central1-b"),)


def test_the_example_in_the_documentation_is_a_world() -> None:
    """The world file shown in the module's documentation loads as it stands."""
    text = world_module.__doc__ or ""
    world = parse_world(json.loads(text[text.index("{") :]))
    use = {"INSTANCES": 1, "NVIDIA_A100_GPUS": 2, "GPUS_ALL_REGIONS": 2}
    assert world.migs[0].quota_use() == use
    assert world.physics == replace(
        CloudPhysics(), capacity=world.physics.capacity, quotas=world.physics.quotas
    )


def test_every_fault_of_a_file_is_reported_at_once() -> None:
    """One refusal names every field that is wrong, what came and what was expected."""
    raw = world_json(
        mig_json(
            region="us-central1",
            zones=["europe-west4-a"],
            target_shape="ROUND",
            gpus=-1,
            machin_type="x",
        ),
        project="X",
        physics={"create_s": [9, 1], "retry_s": 0},
        faults=[{"kind": "stockot", "zone": "us-central1-a"}, {"kind": "crash", "vm": "a"}],
        sed=1,
    )
    with pytest.raises(InvalidInput) as refused:
        parse_world(raw)
    text = "\n".join(refused.value.problems)
    for part in (
        "project: expected text that matches",
        "migs[0].zones: expected zones of region us-central1",
        "migs[0].target_shape: expected one of ANY, ANY_SINGLE_ZONE, BALANCED, EVEN, got 'ROUND'",
        "migs[0].gpus: expected a whole number from 0 to 64, got -1",
        "migs[0].machin_type: unknown field (nearest: machine_type",
        "physics.create_s: expected [min, max] in seconds, 0 ≤ min ≤ max, got [9, 1]",
        "physics.retry_s: expected a number ≥ 0.01, got 0",
        "faults[0].kind: expected a kind of fault (nearest: stockout",
        "faults[1].vm: expected a known VM",
        "sed: unknown field (nearest: seed",
    ):
        assert part in text


@pytest.mark.parametrize(("content", "said"), [("{", "not JSON"), ("[]", "expected an object")])
def test_a_file_that_is_no_object_is_refused(tmp_path: Path, content: str, said: str) -> None:
    """Text that is not a JSON object is refused with the file's name."""
    path = tmp_path / "world.json"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=said) as refused:
        load_world(path)
    assert str(path) in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A file that is not there is named."""
    with pytest.raises(InvalidInput, match="No such file"):
        load_world(tmp_path / "none.json")


def test_the_same_group_twice_is_refused() -> None:
    """Two groups of one name in one region cannot be told apart."""
    with pytest.raises(InvalidInput, match="exists twice"):
        make_world(mig_json(), mig_json())


@pytest.mark.parametrize(
    ("machine_type", "accelerator", "spot", "metric"),
    [
        ("a2-highgpu-2g", None, False, "NVIDIA_A100_GPUS"),
        ("a2-ultragpu-2g", None, True, "PREEMPTIBLE_NVIDIA_A100_80GB_GPUS"),
        ("a3-highgpu-8g", "nvidia-h100-80gb", False, "NVIDIA_H100_GPUS"),
        ("g2-standard-4", None, False, "NVIDIA_L4_GPUS"),
        ("n1-highmem-8", "nvidia-tesla-v100", False, "NVIDIA_V100_GPUS"),
    ],
)
def test_gpus_count_against_their_quota(
    machine_type: str, accelerator: str | None, spot: bool, metric: str
) -> None:
    """A VM takes its GPUs from the quota of their kind and from that of all regions, and one from
    INSTANCES."""
    world = make_world(
        mig_json(machine_type=machine_type, accelerator=accelerator, spot=spot, gpus=2)
    )
    assert world.migs[0].quota_use() == {"INSTANCES": 1, metric: 2, "GPUS_ALL_REGIONS": 2}
