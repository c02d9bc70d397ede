"""What Google says about its own chances to deliver spot VMs (advice.capacity)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from core.cluster import ClusterSpec
from core.errors import CloudBusy, CloudRefused, Forbidden, MigMissing
from core.mig import CapacityHint
from core.ports import Clock
from migs.calling import About, Caller, call_of
from migs.responses import zone_of

log = structlog.get_logger("migs")
EVERY_S = 300.0
REFUSED_FOR_S = 6 * 3600.0
GOOD_SCORE = 0.7
"""From here on Google calls its own chances to deliver good."""


@dataclass(frozen=True, slots=True)
class _Kept:
    hints: tuple[CapacityHint, ...]
    until: float


class Adviser:
    """Asks rarely: advice changes slowly, and where it is refused it stays refused for long."""

    def __init__(self, project: str, caller: Caller, clock: Clock) -> None:
        self._project = project
        self._caller = caller
        self._clock = clock
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._said = False

    async def advise(self, spec: ClusterSpec, region: str) -> tuple[CapacityHint, ...]:
        """The newest advice; empty if there is none. Google has it for spot VMs only."""
        if not spec.spot:
            return ()
        key = (region, spec.offering)
        kept = self._kept.get(key)
        if kept is None or self._clock.monotonic() >= kept.until:
            kept = self._kept[key] = await self._ask(spec, region)
        return kept.hints

    async def _ask(self, spec: ClusterSpec, region: str) -> _Kept:
        request = {
            "project": self._project,
            "region": region,
            "capacity_advice_request_resource": _question(spec, region),
        }
        about = About(f"advice/{region}", region)
        try:
            answer = await self._caller.repeated(call_of("advice", "capacity", request), about)
        except (Forbidden, MigMissing, CloudRefused) as error:
            self._say(error)
            return _Kept((), self._clock.monotonic() + REFUSED_FOR_S)
        except CloudBusy as error:
            log.info("no capacity advice for now", region=region, why=str(error))
            return _Kept((), self._clock.monotonic() + EVERY_S)
        hints = read_hints(answer, spec, region, self._clock.now())
        return _Kept(hints, self._clock.monotonic() + EVERY_S)

    def _say(self, error: Exception) -> None:
        if not self._said:
            self._said = True
            log.warning("Google gives no capacity advice; planning without it", why=str(error))


def read_hints(
    answer: Any, spec: ClusterSpec, region: str, now: datetime
) -> tuple[CapacityHint, ...]:
    """The first recommendation counts: one hint for each zone that it names."""
    for recommendation in answer.recommendations:
        zones = [zone_of(shard.zone) or shard.zone for shard in recommendation.shards]
        likely = recommendation.scores.obtainability >= GOOD_SCORE
        return tuple(
            CapacityHint(spec.supply_key(region, zone), likely, now)
            for zone in dict.fromkeys(zones or [""])
        )
    return ()


def _question(spec: ClusterSpec, region: str) -> dict[str, object]:
    machine: dict[str, object] = {"machine_types": [spec.machine_type]}
    if spec.gpus and spec.machine_type.startswith("n1-"):
        # The only family whose GPUs are attached: the others bring them with the machine type.
        kind = f"nvidia-tesla-{spec.gpu_type}"
        machine["guest_accelerators"] = [{"accelerator_type": kind, "accelerator_count": spec.gpus}]
    zones = [{"zone": f"zones/{zone}"} for zone in spec.region(region).zones]
    return {
        "size": 1,
        "distribution_policy": {"target_shape": "ANY", "zones": zones},
        "instance_flexibility_policy": {"instance_selections": {"machine": machine}},
        "instance_properties": {"scheduling": {"provisioning_model": "SPOT"}},
    }
