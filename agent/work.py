"""One attempt of a job on this VM, as the machine remembers it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agent.words import Progressed
from core.messages import BeatStatus, Progress, StartJob

B = BeatStatus


@dataclass(slots=True)
class Work:
    """One attempt on this VM."""

    order: StartJob
    started: bool = False
    frozen_since: float | None = None
    preempted: bool = False
    ending: str = ""
    """Why we end it; empty while its exit is its own."""
    kill_at: float = math.inf
    killed: bool = False
    progress: Progress | None = None
    checkpoint_step: float | None = None

    @property
    def status(self) -> BeatStatus:
        """What a beat about it says now."""
        if self.frozen_since is not None:
            return B.FROZEN
        return B.RUNNING if self.started else B.FOUND_VM

    def learn(self, news: Progressed) -> None:
        """What the job says of itself; what it does not mention stays."""
        self.progress = news.progress or self.progress
        if news.checkpoint_step is not None:
            self.checkpoint_step = news.checkpoint_step
