"""The reservation of the job that cannot start yet, and who may pass it. Pure.

The first job that does not fit gets a reservation: the moment at which enough GPUs are expected to
be free. Others may use what is free until then, if they are predicted to be gone in time (their
90 % quantile: most of them keep it), or if they leave enough for it anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Reservation:
    """`gpus` for one job from `at_s` on."""

    gpus: int
    at_s: float
    """Seconds from now; infinity if what runs never frees enough."""
    spare: int
    """GPUs that will be free at that moment beyond those reserved."""

    def lets(self, gpus: int, ends_in_s: float) -> bool:
        """Whether a job that fits now leaves the reservation whole. `ends_in_s`: a time it is
        predicted to keep nine times of ten."""
        return ends_in_s <= self.at_s or gpus <= self.spare

    def after(self, gpus: int, ends_in_s: float) -> Reservation:
        """The reservation after such a job has started."""
        return self if ends_in_s <= self.at_s else replace(self, spare=self.spare - gpus)


def reserve(gpus: int, free: int, ending: Iterable[tuple[float, int]]) -> Reservation:
    """`ending`: of each running job the seconds until it is expected to end, and its GPUs."""
    if gpus <= free:
        return Reservation(gpus, 0.0, free - gpus)
    at = math.inf
    for at_s, freed in sorted(ending):
        if at_s > at:
            break  # the members of a gang end together: what is beyond its need is spare
        free += freed
        if free >= gpus:
            at = at_s
    return Reservation(gpus, at, free - gpus if at < math.inf else 0)


class Backfill:
    """One reservation, and the jobs that pass it."""

    __slots__ = ("held",)

    def __init__(self, held: Reservation) -> None:
        self.held = held

    def lets(self, gpus: int, ends_in_s: float) -> bool:
        """Whether a job that fits now may start; then it has passed."""
        if not self.held.lets(gpus, ends_in_s):
            return False
        self.held = self.held.after(gpus, ends_in_s)
        return True
