"""Where misfortune strikes: all that it can touch, and what each kind of it needs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sim.virtual.clients import PretendClients
from sim.virtual.loop import VirtualLoop
from sim.virtual.pretend_vms import Boot, PretendVms
from sim.virtual.replicas import Ground, Host

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
        ground = stage.ground
        self._broker, self._cloud = ground.broker, ground.cloud
        self._trace, self._checkers = ground.trace, ground.checkers

    def _after(self, low_s: float, high_s: float, undo: Callable[[], object]) -> None:
        self._loop.later(self._dice.uniform(low_s, high_s), lambda: self._over() or undo())

    def _some_worker(self) -> Boot | None:
        workers = self._stage.fleet.workers()
        return self._dice.choice(workers) if workers else None
