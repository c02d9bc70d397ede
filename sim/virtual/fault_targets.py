"""Where misfortune strikes: all that it can touch, and what each kind of it needs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sim.virtual.bus import PretendBroker
from sim.virtual.checkers import Checkers
from sim.virtual.clients import PretendClients
from sim.virtual.compute import CloudInTime
from sim.virtual.loop import VirtualLoop
from sim.virtual.pretend_vms import Boot, PretendVms
from sim.virtual.replicas import Ground, Host
from sim.virtual.trace import Trace

Acts = dict[str, Callable[[], bool]]
"""Fault → what does it; False: there was nobody to do it to."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that misfortune can touch."""

    loop: VirtualLoop
    ground: Ground
    hosts: Sequence[Host]
    fleet: PretendVms
    clients: PretendClients
    dice: random.Random


class Misfortunes:
    """One kind of them: each is a method."""

    def __init__(self, stage: Stage, over: Callable[[], bool]) -> None:
        self._stage, self._over = stage, over
        self._loop, self._dice = stage.loop, stage.dice

    @property
    def _broker(self) -> PretendBroker:
        return self._stage.ground.broker

    @property
    def _cloud(self) -> CloudInTime:
        return self._stage.ground.cloud

    @property
    def _trace(self) -> Trace:
        return self._stage.ground.trace

    @property
    def _checkers(self) -> Checkers:
        return self._stage.ground.checkers

    def _after(self, low_s: float, high_s: float, undo: Callable[[], object]) -> None:
        self._loop.later(self._dice.uniform(low_s, high_s), lambda: self._over() or undo())

    def _some_worker(self) -> Boot | None:
        workers = self._stage.fleet.workers()
        return self._dice.choice(workers) if workers else None
