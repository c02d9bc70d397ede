"""What chaos must have left: judged from the database and from the jobs' own lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from cli.chaos.outages import Through, come_through, outage_faults, outage_rows
from cli.chaos.scenarios import ChaosLog, ChaosPlan, tick_lines
from core.history_check import HistoryCheck, Reign, takeovers

TAKEOVER_MAX_S = 15.0
HANDOVER_MAX_S = 1.0
SLACK_S = 0.15
"""A line is written every tenth of a second: what is nearer than this cannot be told apart."""


@dataclass(slots=True)
class ChaosVerdict:
    """The figures, and everything that must not be."""

    plan: ChaosPlan
    story: ChaosLog
    statuses: Counter[str]
    attempts: int
    takeovers_s: list[float]
    handovers_s: list[float]
    writes: int
    runs_seen: int
    through: Mapping[str, Sequence[Through]]
    """By the part that was away: the jobs that ran meanwhile."""
    faults: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.faults

    def rows(self) -> list[tuple[str, str, str]]:
        """(what, measured, must hold)."""
        story = self.story
        retried = ", ".join(f"{n} {kind}" for kind, n in sorted(story.submit_errors.items()))
        acts = ", ".join(f"{n} × {act}" for act, n in sorted(story.acts.items()))
        ended = ", ".join(f"{n} {status}" for status, n in sorted(self.statuses.items()))
        return [
            ("faults done", acts, ""),
            ("jobs accepted", str(len(story.accepted)), ""),
            ("jobs ended", ended, "all accepted ones"),
            ("attempts", f"{self.attempts} ({self.runs_seen} seen running)", "none at once"),
            ("takeovers", _quantiles(self.takeovers_s), f"p99 ≤ {TAKEOVER_MAX_S:g} s"),
            ("handovers (SIGTERM)", _quantiles(self.handovers_s), f"< {HANDOVER_MAX_S:g} s"),
            ("leaders' writes", f"{self.writes}, all by the leader of the time", "0 by others"),
            ("answers to repeat", retried or "none", "only retryable"),
            *outage_rows(story, self.through),
            ("all ended after", f"{story.healed_s:.1f} s without faults", ""),
        ]

    def as_json(self) -> dict[str, object]:
        story = self.story
        return {
            "ok": self.ok,
            "faults": self.faults,
            "seed": self.plan.seed,
            "replicas": self.plan.replicas,
            "acts": dict(story.acts),
            "accepted": len(story.accepted),
            "statuses": dict(self.statuses),
            "attempts": self.attempts,
            "runs_seen": self.runs_seen,
            "takeovers_s": [round(s, 2) for s in self.takeovers_s],
            "takeover_p50_s": round(quantile(self.takeovers_s, 0.5), 2),
            "takeover_p99_s": round(quantile(self.takeovers_s, 0.99), 2),
            "handovers_s": [round(s, 3) for s in self.handovers_s],
            "leader_writes": self.writes,
            "submit_errors": dict(story.submit_errors),
            "healed_s": round(story.healed_s, 1),
            "through_outages": {
                part: [asdict(one) for one in jobs] for part, jobs in self.through.items()
            },
            "refusal_max_s": round(max(story.refusals_s, default=0.0), 3),
        }


@dataclass(frozen=True, slots=True)
class AttemptProcess:
    """One process of one attempt, by its own lines."""

    attempt: int
    pid: int
    first: float
    last: float


def judge(
    plan: ChaosPlan, story: ChaosLog, found: HistoryCheck, reigns: Sequence[Reign], ticks: Path
) -> ChaosVerdict:
    """Everything that is not as it must be, with the figures."""
    ran = read_ticks(ticks)
    between = _takeovers(reigns, story.outages)
    verdict = ChaosVerdict(
        plan=plan,
        story=story,
        statuses=Counter(str(job.status) for job in found.jobs),
        attempts=sum(len(job.tries) for job in found.jobs),
        takeovers_s=between,
        handovers_s=story.handovers_s,
        writes=sum(reign.writes for reign in reigns),
        runs_seen=sum(len(runs) for runs in ran.values()),
        through={outage.part: come_through(outage, ticks) for outage in story.away},
    )
    known = {job.job_id for job in found.jobs}
    faults = [f"{job_id} was accepted and is lost" for job_id in sorted(story.accepted - known)]
    faults += [f"not ended: {words}" for words in found.unfinished()]
    faults += [
        f"{job.job_id} FAILED after {job.attempt} attempts: {job.steps[-1].event}"
        for job in found.jobs
        if job.status == "FAILED"
    ]
    faults += found.faults()
    faults += [fault for job_id, runs in ran.items() for fault in double_runs(job_id, runs)]
    faults += [
        f"{reign.writes} writes of {reign.writer} in term {reign.term}, which another held"
        for reign in reigns
        if not reign.rightful
    ]
    faults += outage_faults(story, verdict.through)
    faults += [f"an answer that cannot be repeated: {words}" for words in story.fatal_errors]
    if (late := quantile(between, 0.99)) > TAKEOVER_MAX_S:
        faults.append(f"takeover p99 is {late:.1f} s, more than {TAKEOVER_MAX_S:g} s")
    if (late := max(story.handovers_s, default=0.0)) >= HANDOVER_MAX_S:
        faults.append(f"a handover took {late:.2f} s, not less than {HANDOVER_MAX_S:g} s")
    verdict.faults = faults
    return verdict


def read_ticks(path: Path) -> dict[str, list[AttemptProcess]]:
    """The processes of each job, by their own lines."""
    spans: dict[tuple[str, int, int], tuple[float, float]] = {}
    for line in tick_lines(path):
        job_id, which, pid, at = line.split()
        key, moment = (job_id, int(which), int(pid)), float(at)
        first, last = spans.get(key, (moment, moment))
        spans[key] = (min(first, moment), max(last, moment))
    found: dict[str, list[AttemptProcess]] = {}
    for (job_id, attempt, number), (first, last) in spans.items():
        found.setdefault(job_id, []).append(AttemptProcess(attempt, number, first, last))
    return found


def double_runs(job_id: str, runs: Iterable[AttemptProcess]) -> list[str]:
    """Two processes for one attempt, or two attempts at the same time."""
    ordered = sorted(runs, key=lambda ran: (ran.first, ran.attempt))
    faults = []
    for one, following in pairwise(ordered):
        if one.attempt == following.attempt:
            faults.append(f"{job_id}: attempt {one.attempt} ran twice")
        elif following.first < one.last - SLACK_S:
            overlap_s = one.last - following.first
            faults.append(
                f"{job_id}: attempts {one.attempt} and {following.attempt} ran at once"
                f" for {overlap_s:.1f} s"
            )
    return faults


def _takeovers(
    reigns: Sequence[Reign], outages: Sequence[tuple[datetime, datetime]]
) -> list[float]:
    """Without the waits that an outage of the database fell into: nothing could have been
    faster."""
    firsts: dict[int, datetime] = {}
    for reign in reigns:
        firsts[reign.term] = min(reign.first, firsts.get(reign.term, reign.first))
    return [
        seconds
        for term, seconds in takeovers(reigns).items()
        if not any(
            firsts[term] - timedelta(seconds=seconds) <= ended and began <= firsts[term]
            for began, ended in outages
        )
    ]


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share does not exceed."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _quantiles(values: Sequence[float]) -> str:
    if not values:
        return "none"
    return (
        f"{len(values)}: p50 {quantile(values, 0.5):.2f} s, p99 {quantile(values, 0.99):.2f} s,"
        f" longest {max(values):.2f} s"
    )
