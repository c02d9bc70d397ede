"""What was measured of a cloud: how fast it answers, and how long spot VMs live."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.replay.figures import share_of
from sim.replay.physics import RandomDuration
from sim.replay.tables import BadTrace, TableRow, read_table

# An answer within seconds is no stockout: the type is not there, or there is no quota.
STOCKOUT_LEAST_S = 5.0
_EVENTS = ("create_ok", "create_failed", "running", "preempted")


@dataclass(frozen=True, slots=True)
class Probe:
    """One kind of machine under test: times until the cloud gave it, or said no."""

    granted: RandomDuration
    refused: RandomDuration
    lifetimes_s: tuple[float, ...]


def load_probe(path: Path, gpus: int = 1) -> Probe:
    """Create calls with their latency and preemptions with the lifetime, of one size of VM."""
    table = read_table(path)
    if not table.has("zone", "num_gpu", "event", "latency_or_lifetime_s"):
        raise BadTrace(
            f"{path}, line 1: expected the columns zone, num_gpu, event, latency_or_lifetime_s"
        )
    times: dict[str, list[float]] = {event: [] for event in _EVENTS}
    for row in table.rows:
        event = row.text("event")
        if event not in times:
            raise row.bad("event", f"one of {', '.join(_EVENTS)}")
        if row.whole("num_gpu", least=1) == gpus and row.cell("latency_or_lifetime_s").strip():
            times[event].append(row.number("latency_or_lifetime_s", least=0))
    stockouts = [t for t in times["create_failed"] if t >= STOCKOUT_LEAST_S]
    for name, found in (("create_ok", times["create_ok"]), ("create_failed", stockouts)):
        if len(found) < 2:
            raise BadTrace(f"{path}: fewer than two {name} events of VMs with {gpus} GPU")
    return Probe(
        granted=_spread(times["create_ok"]),
        refused=_spread(stockouts),
        lifetimes_s=tuple(sorted(times["preempted"])),
    )


def _spread(times: Sequence[float]) -> RandomDuration:
    ordered = sorted(max(1.0, t) for t in times)
    p50 = share_of(ordered, 0.5)
    return RandomDuration(p50, max(p50 * 1.001, share_of(ordered, 0.9)))


def load_lifetimes(path: Path) -> tuple[float, ...]:
    """How long each spot VM lived; one that its owner stopped may have lived for ever."""
    table = read_table(path)
    if not table.has("lifetime_s", "end"):
        raise BadTrace(f"{path}, line 1: expected the columns lifetime_s and end")
    return tuple(sorted(_lifetime(row) for row in table.rows))


def _lifetime(row: TableRow) -> float:
    lived_s = row.number("lifetime_s", least=0)
    end = row.text("end")
    if end not in ("preempted", "stopped"):
        raise row.bad("end", "preempted or stopped")
    return lived_s if end == "preempted" else math.inf
