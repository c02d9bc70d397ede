"""Requests of many jobs."""

from __future__ import annotations

from bench.submit_batches import KINDS, kinds


def test_each_kind_is_told_by_its_name() -> None:
    """The names that the rows read are those of the requests."""
    assert tuple(kind.told for kind in kinds()) == KINDS
