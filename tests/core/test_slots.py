"""Slots of VMs with and without GPUs."""

from __future__ import annotations

from core.slots import gpus_among, slots_of


def test_vm_without_gpus_has_one_slot_that_is_no_gpu() -> None:
    """A CPU job leases the whole VM, and nobody is shown a GPU of it."""
    assert [slots_of(gpus) for gpus in (0, 1, 8)] == [1, 1, 8]
    assert gpus_among((0,), 0) == ()
    assert gpus_among((2, 3), 2) == (2, 3)
