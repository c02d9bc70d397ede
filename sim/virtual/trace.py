"""What happened, in order: a digest of everything, the last words about each thing, and counts."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from dataclasses import dataclass

from sim.virtual.loop import VirtualLoop

KEPT_PER_SUBJECT = 40


@dataclass(frozen=True, slots=True)
class Violation:
    """A guarantee that was broken, when, and about whom."""

    invariant: str
    at: float
    what: str
    subjects: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.invariant} broken at {self.at:.3f} s: {self.what}"


class Trace:
    """The event log of one run. Two runs of one seed have the same digest."""

    def __init__(self, loop: VirtualLoop, *, keep_all: bool = False) -> None:
        self._loop = loop
        self._digest = hashlib.blake2b(digest_size=12)
        self._about: dict[str, deque[str]] = {}
        self._keep_all = keep_all
        self.lines: list[str] = []
        self.events = 0
        self.faults: Counter[str] = Counter()
        """How often each fault really fired."""
        self.transitions: Counter[str] = Counter()
        """How often each step of the job's table was taken."""
        self.messages = 0
        """What the bus was given to deliver while it misbehaved."""

    def note(self, kind: str, words: str, *subjects: str) -> None:
        """One event; `subjects` are the jobs, VMs and replicas that it concerns."""
        self.events += 1
        line = f"{self._loop.time():10.3f} {kind:<12} {words}"
        self._digest.update(line.encode())
        if self._keep_all:
            self.lines.append(line)
        for subject in subjects:
            about = self._about.get(subject)
            if about is None:
                about = self._about[subject] = deque(maxlen=KEPT_PER_SUBJECT)
            about.append(line)

    def fault(self, name: str, words: str = "", *subjects: str) -> None:
        """A fault fired."""
        self.faults[name] += 1
        self.note("fault", f"{name} {words}", *subjects)

    def count_fault(self, name: str) -> None:
        """A fault too frequent to be told each time (a duplicate, a delay)."""
        self.faults[name] += 1

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def about(self, subject: str) -> list[str]:
        return list(self._about.get(subject, ()))
