"""Many runs, summed up: how often each fault fired and each step was taken, and what was missed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from core.job import TRANSITIONS, JobEvent, JobStatus
from sim.virtual.fault_plan import FAULTS, SMALL_FAULTS
from sim.virtual.progress import ProgressReporter
from sim.virtual.run import SeedResult, SimulationPlan, simulate

JUDGED_FROM_SEEDS = 40
"""Fewer runs than this cannot be expected to meet every fault."""
KILLS = (
    "leader_killed",
    "replica_killed",
    "crash_at_commit",
    "crash_at_publish",
    "crash_at_cloud_call",
)
"""Faults that end a scheduler without a word."""
_ABSENT = (JobEvent.FOUND_BY_V1,)
NOT_SIMULATED = frozenset(
    {
        # Workers of the older kind have a world of their own (bench/worlds/v1_workers.py).
        *(step for step in TRANSITIONS if step[1] in _ABSENT),
        (JobStatus.PROVISIONING, JobEvent.START_REFUSED),
        # A gang that shrinks loses its first member in the seconds in which another one leaves: met
        # once or twice in twenty seeds, although it is looked for (sim/virtual/rare_moments.py).
        (JobStatus.PREEMPTING, JobEvent.GANG_FAILED),
    }
)
"""Steps that no set of seeds need take."""


@dataclass(frozen=True, slots=True)
class SimulationSummary:
    """All runs of one command."""

    outcomes: tuple[SeedResult, ...]

    @property
    def failed(self) -> list[SeedResult]:
        return [outcome for outcome in self.outcomes if outcome.violations]

    @property
    def faults(self) -> Counter[str]:
        counted = Counter(dict.fromkeys((*FAULTS, *SMALL_FAULTS), 0))
        for outcome in self.outcomes:
            counted.update(outcome.faults)
        return counted

    @property
    def kills(self) -> int:
        """How often a scheduler was killed."""
        return sum(self.faults[name] for name in KILLS)

    @property
    def messages(self) -> int:
        """What the bus was given to deliver while it misbehaved."""
        return sum(outcome.messages for outcome in self.outcomes)

    @property
    def bus_shares(self) -> dict[str, float]:
        """Of the messages, how many came twice; of all deliveries, how many out of turn or late."""
        faults, sent = self.faults, max(1, self.messages)
        trips = sent + faults["message_duplicated"]
        return {
            "twice": faults["message_duplicated"] / sent,
            "reordered": faults["message_reordered"] / trips,
            "delayed": faults["message_delayed"] / trips,
        }

    @property
    def transitions(self) -> Counter[str]:
        """By state and event, with the ones that never happened."""
        counted = Counter({f"{status} {event}": 0 for status, event in expected_steps()})
        for outcome in self.outcomes:
            for step, count in outcome.transitions.items():
                status, event, _ = step.split()
                counted[f"{status} {event}"] += count
        return counted

    @property
    def missing(self) -> list[str]:
        """What no run met, once there are enough of them."""
        faulty = [outcome for outcome in self.outcomes if outcome.plan.faults]
        if len(faulty) < JUDGED_FROM_SEEDS:
            return []
        never = [f"fault {name}" for name in (*FAULTS, *SMALL_FAULTS) if not self.faults[name]]
        steps = self.transitions
        return never + [f"step {name}" for name, count in sorted(steps.items()) if not count]

    @property
    def good(self) -> bool:
        return not self.failed and not self.missing


def expected_steps() -> list[tuple[JobStatus, JobEvent]]:
    """Steps of the job's table that some run must take."""
    return [step for step in TRANSITIONS if step not in NOT_SIMULATED]


def excluded_steps() -> list[tuple[JobStatus, JobEvent]]:
    """Steps that no run need take."""
    return [step for step in TRANSITIONS if step in NOT_SIMULATED]


def simulate_all(
    plans: Sequence[SimulationPlan], workers: int, *, tell: bool = False
) -> Iterable[SeedResult]:
    """Every plan, side by side; in the order of the plans. `tell`: how far they are, on stderr."""
    if workers <= 1 or len(plans) == 1:
        yield from (
            _told(plan, over=sys.stderr.isatty()) if tell else simulate(plan) for plan in plans
        )
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_told if tell else simulate, plans)


def _told(plan: SimulationPlan, *, over: bool = False) -> SeedResult:
    """Several at once cannot write over one line."""
    progress = ProgressReporter(over=over)
    try:
        return simulate(plan, progress)
    finally:
        progress.close()


def command_of(plan: SimulationPlan) -> str:
    """What repeats the run, event for event."""
    words = [f"zen simulate --seed {plan.seed} --jobs {plan.jobs} --replicas {plan.replicas}"]
    return " ".join([*words, *(["--no-faults"] if not plan.faults else [])])


def failure_text(outcome: SeedResult) -> str:
    """What was broken, what led to it, and how to see it again."""
    lines = [f"seed {outcome.plan.seed}: {outcome.violations[0]}"]
    for subject, words in outcome.about.items():
        lines += [f"  the last events about {subject}:", *(f"    {line}" for line in words)]
    lines += [
        f"  event log {outcome.digest}, {outcome.events} events",
        f"  repeat it: {command_of(outcome.plan)} --verbose",
    ]
    return "\n".join(lines)
