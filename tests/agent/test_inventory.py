"""Which GPUs a machine has, and how clusters of them are called."""

from __future__ import annotations

import pytest

from agent.inventory import FoundGpu, most_of_a_kind, read_smi


@pytest.mark.parametrize(
    ("product", "gpu_type"),
    [
        ("NVIDIA L4", "l4"),
        ("Tesla T4", "t4"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000"),
        ("???", "gpu"),
    ],
)
def test_products_are_called_as_clusters_are(product: str, gpu_type: str) -> None:
    """Small letters, the maker and the socket left out, the memory last."""
    assert FoundGpu(product, 0).gpu_type == gpu_type


def test_nvidia_smi_is_read_line_by_line() -> None:
    """A GPU that cannot tell its memory still counts."""
    assert read_smi("NVIDIA L4, 23034\nOdd, name, [N/A]\nno comma\n") == [
        FoundGpu("NVIDIA L4", 23034),
        FoundGpu("Odd, name", 0),
    ]


def test_a_mixed_machine_offers_its_most_frequent_type() -> None:
    """A worker has GPUs of one type."""
    l4, t4 = FoundGpu("NVIDIA L4", 23034), FoundGpu("Tesla T4", 15360)
    assert most_of_a_kind([t4, l4, l4]) == [l4, l4]
    assert most_of_a_kind([]) == []
