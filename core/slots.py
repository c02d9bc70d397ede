"""Slots: the parts of a VM that can be leased: its GPUs, or the one slot of a VM without GPUs."""

from __future__ import annotations


def slots_of(gpus: int) -> int:
    """How many slots a VM with so many GPUs has, or a job that asks for so many is given."""
    return max(1, gpus)


def gpus_among(slots: tuple[int, ...], gpu_count: int) -> tuple[int, ...]:
    """The GPUs that a job was given with its slots: the slot of a job without GPUs is none."""
    return slots if gpu_count else ()
