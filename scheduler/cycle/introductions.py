"""Which introductions are looked at when more come than there is room for. Pure.

A VM that may publish heartbeats can invent introductions of any VM, and only the check of a token
tells them from the worker's own. So no VM takes another's room, and for one VM the dice decide, not
which one came first: a forger has to send more than can be checked, again and again, and the
worker says it again with each heartbeat.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.messages import InMessage, Introduction
from core.vm import Vm
from scheduler.cycle.heartbeats import ReceivedHeartbeat

WAITING_MAX = 1_000
WAITING_EACH = 100
"""Of one VM."""


@dataclass(frozen=True, slots=True)
class Applicant:
    """A heartbeat that waits for what its token proves."""

    vm: Vm
    item: ReceivedHeartbeat
    introduction: Introduction
    pool: str
    message: InMessage


def choose(
    asking: Sequence[Applicant], waiting: Mapping[str, int], seed: Callable[[], bytes]
) -> list[Applicant]:
    """Of these the ones that may wait, in the order they came. `waiting`: how many do already, by
    the VM's uid. `seed`: thrown if there is not room for all."""
    room = WAITING_MAX - sum(waiting.values())
    asked = Counter(applicant.vm.uid for applicant in asking)
    most = max((waiting.get(uid, 0) + count for uid, count in asked.items()), default=0)
    if len(asking) <= room and most <= WAITING_EACH:
        return list(asking)
    chosen = sorted(_thrown(asking, waiting, seed())[: max(0, room)])
    return [asking[index] for index in chosen]


def _thrown(asking: Sequence[Applicant], waiting: Mapping[str, int], seed: bytes) -> Sequence[int]:
    """Their places in `asking`: first of the VMs that have the fewest, then by the dice."""
    of_vm: defaultdict[str, list[tuple[bytes, int]]] = defaultdict(list)
    for index, applicant in enumerate(asking):
        thrown = hashlib.sha256(seed + applicant.message.message_id.encode()).digest()
        of_vm[applicant.vm.uid].append((thrown, index))
    ranked = [
        (place, thrown, index)
        for uid, dice in of_vm.items()
        for place, (thrown, index) in enumerate(sorted(dice), waiting.get(uid, 0))
        if place < WAITING_EACH
    ]
    return [index for _, _, index in sorted(ranked)]
