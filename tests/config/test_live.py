"""Live settings: one immutable snapshot at a time."""

from __future__ import annotations

from dataclasses import replace

from config.live import LiveSettings
from tests.builders import cluster, settings


def test_a_snapshot_stays_as_it_is_when_others_are_adopted() -> None:
    """A reader goes on with what it has read once; the next reading sees the new one."""
    live = LiveSettings(settings(cluster(vm_max=1)))
    read = live.current
    live.adopt(replace(read, clusters=(cluster(vm_max=2),), version=7))
    assert (read.by_name["1xl4"].vm_max, read.version) == (1, 0)
    assert (live.current.by_name["1xl4"].vm_max, live.current.version) == (2, 7)
