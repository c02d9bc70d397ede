"""How near the rivals here come to those of a published study: a replay that does not reproduce it
proves nothing against them."""

from __future__ import annotations

from dataclasses import dataclass

TOLERANCE = 0.15


@dataclass(frozen=True, slots=True)
class StudyCheck:
    """One figure of the rivals, here and in the study."""

    suite: str
    what: str
    here: float
    study: float

    @property
    def off(self) -> float:
        return self.here / self.study - 1.0

    @property
    def valid(self) -> bool:
        return abs(self.off) <= TOLERANCE
