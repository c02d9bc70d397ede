"""What an observation teaches about a place: hits, misses, hints, how long things take. Pure.

Everything is learned twice: for the zone, which people look at, and for the region, which is what
a group can be asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from functools import cached_property

from core.changes import Change, PutSupplyHistory
from core.cluster import ClusterSpec, SupplyKey
from core.supply import (
    HOUR_S,
    ROOM_MAX,
    ROOM_MIN,
    CapacityPolicy,
    SupplyHistory,
    SupplyOutcome,
    after_taking,
    faded,
    with_shortage,
)
from core.vm import Vm


class SupplyUpdates:
    """The records of one fold as they grow, and which of them are news."""

    def __init__(
        self,
        spec: ClusterSpec,
        known: Iterable[SupplyHistory],
        policy: CapacityPolicy,
        now: datetime,
    ) -> None:
        self._spec = spec
        self._before = tuple(known)
        self._half_life_s = policy.memory_half_life_s
        self._now = now
        self._news: set[SupplyKey] = set()

    @cached_property
    def _known(self) -> dict[SupplyKey, SupplyHistory]:
        """Only when there is something to learn: most observations teach nothing."""
        return {seen.place: seen for seen in self._before}

    def hit(self, vm: Vm) -> None:
        """It runs: the place delivered, in this time."""
        assert vm.running_since is not None, "only a VM that runs was delivered"
        span_s = (vm.running_since - vm.requested_at).total_seconds()
        self._learn(
            vm.region,
            vm.zone,
            lambda seen: replace(
                seen,
                hits=seen.hits + 1,
                last=SupplyOutcome.HIT,
                last_at=self._now,
                # What waited in the cloud's queue does not say how soon a single one comes.
                delivery=seen.delivery if vm.together else seen.delivery.add(span_s),
                room=min(ROOM_MAX, seen.room + 1),
            ),
        )

    def miss(self, region: str, zone: str) -> None:
        """The place had nothing to give."""
        self._learn(
            region,
            zone,
            lambda seen: replace(
                seen,
                misses=seen.misses + 1,
                last=SupplyOutcome.MISS,
                last_at=self._now,
                room=max(ROOM_MIN, seen.room / 2),
            ),
        )

    def took(self, region: str, at: datetime) -> None:
        """It took VMs back then, so it had none to give."""
        self._put(region, "", lambda seen: after_taking(seen, at))

    def short(self, region: str, kept: int) -> None:
        """It took VMs back, or refused one more: it has room for so many of ours."""
        self._put(region, "", lambda seen: with_shortage(seen, kept, self._now))

    def hints(self, region: str, zones: Iterable[str]) -> None:
        """The cloud says that these zones have room. If the group reaches one of them, so does
        the region: the group goes on trying by itself."""
        ours = self._spec.region(region).zones if self._has(region) else ()
        for zone in zones:
            self._put(region, zone, self._hinted)
            if zone in ours:
                self._put(region, "", self._hinted)

    def gone(self, vm: Vm) -> None:
        """Its life is over: how long it ran, whether it was reclaimed, how long it took to boot."""
        if vm.running_since is None:
            return
        hours = max(0.0, (self._now - vm.running_since).total_seconds() / HOUR_S)
        boot_s = None if vm.ready_at is None else (vm.ready_at - vm.running_since).total_seconds()
        self._learn(
            vm.region,
            vm.zone,
            lambda seen: replace(
                seen,
                vm_hours=seen.vm_hours + hours,
                preempted=seen.preempted + (vm.taken and not vm.together),
                boot=seen.boot if boot_s is None else seen.boot.add(boot_s),
            ),
        )

    @property
    def supply(self) -> tuple[SupplyHistory, ...]:
        if not self._news:
            return self._before
        return tuple(self._known[place] for place in sorted(self._known))

    @property
    def changes(self) -> list[Change]:
        return [PutSupplyHistory(self._known[place]) for place in sorted(self._news)]

    def _hinted(self, seen: SupplyHistory) -> SupplyHistory:
        return replace(seen, last=SupplyOutcome.HINT, last_at=self._now)

    def _has(self, region: str) -> bool:
        return any(spec.region == region for spec in self._spec.regions)

    def _learn(
        self, region: str, zone: str, lesson: Callable[[SupplyHistory], SupplyHistory]
    ) -> None:
        self._put(region, "", lesson)
        if zone:
            self._put(region, zone, lesson)

    def _put(
        self, region: str, zone: str, lesson: Callable[[SupplyHistory], SupplyHistory]
    ) -> None:
        place = self._spec.supply_key(region, zone)
        before = self._known.get(place) or SupplyHistory.none_of(place, self._now)
        self._known[place] = lesson(faded(before, self._now, self._half_life_s))
        self._news.add(place)
