"""What an outage must not have done: judged from the lines of the jobs that ran through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from cli.chaos.scenarios import ChaosLog, Outage, tick_lines

ANSWER_MAX_S = 2.0
AGAIN_MAX_S = 30.0
PAUSE_MAX_S = 3.0
"""A job that is left alone writes ten lines a second; a busy machine may hold it up a little."""


@dataclass(frozen=True, slots=True)
class Through:
    """How a job came through an outage."""

    job_id: str
    lines: int
    wanted: int
    runs: int
    """Different (attempt, process) pairs: more than one means that work was done again."""
    longest_pause_s: float
    again_s: float
    """From the part's return to the job's first line after it; negative if it never stood."""


def come_through(outage: Outage, ticks: Path) -> list[Through]:
    """The steady jobs, by their own lines."""
    moments: dict[str, list[float]] = {job_id: [] for job_id in outage.steady}
    runs: dict[str, set[tuple[str, str]]] = {job_id: set() for job_id in outage.steady}
    for line in tick_lines(ticks):
        job_id, attempt, pid, at = line.split()
        if job_id in moments:
            moments[job_id].append(float(at))
            runs[job_id].add((attempt, pid))
    return [
        _through(job_id, wanted, sorted(moments[job_id]), len(runs[job_id]), outage.back)
        for job_id, wanted in outage.steady.items()
    ]


def _through(job_id: str, wanted: int, at: Sequence[float], runs: int, back: float) -> Through:
    pauses = [after - before for before, after in pairwise(at)]
    later = [moment - back for moment in at if moment > back]
    return Through(
        job_id=job_id,
        lines=len(at),
        wanted=wanted,
        runs=runs,
        longest_pause_s=max(pauses, default=0.0),
        again_s=min(later, default=float("inf")),
    )


def outage_rows(
    story: ChaosLog, found: Mapping[str, Sequence[Through]]
) -> list[tuple[str, str, str]]:
    """(what, measured, must hold)."""
    rows = []
    for outage in story.away:
        jobs = found[outage.part]
        gone = f"{outage.back - outage.began:.0f} s"
        rows.append((f"{outage.part} away", gone, ""))
        whole = sum(one.runs == 1 and one.lines == one.wanted for one in jobs)
        rows.append(("jobs through it in one run", f"{whole} of {len(jobs)}", "all"))
        if outage.part == "postgres":
            pause = max(one.longest_pause_s for one in jobs)
            rows.append(("longest pause of theirs", f"{pause:.2f} s", f"≤ {PAUSE_MAX_S:g} s"))
            times = story.refusals_s
            told = f"{len(times)} × 503, longest {max(times, default=0.0):.2f} s"
            rows.append(("answers meanwhile", told, f"503 within {ANSWER_MAX_S:g} s"))
        else:
            again = max(one.again_s for one in jobs)
            rows.append(("running again after", f"{again:.1f} s", f"≤ {AGAIN_MAX_S:g} s"))
    return rows


def outage_faults(story: ChaosLog, found: Mapping[str, Sequence[Through]]) -> list[str]:
    """Everything that must not be."""
    faults = []
    for outage in story.away:
        for one in found[outage.part]:
            if one.runs != 1:
                faults.append(f"{one.job_id} ran {one.runs} times, not once")
            elif one.lines != one.wanted:
                faults.append(f"{one.job_id} wrote {one.lines} lines, not {one.wanted}")
            if outage.part == "postgres" and one.longest_pause_s > PAUSE_MAX_S:
                faults.append(f"{one.job_id} stood still for {one.longest_pause_s:.1f} s")
            if outage.part == "bus" and one.again_s > AGAIN_MAX_S:
                faults.append(f"{one.job_id} ran again {one.again_s:.1f} s after the bus was back")
    late = [seconds for seconds in story.refusals_s if seconds > ANSWER_MAX_S]
    if late:
        faults.append(f"{len(late)} answers took longer than {ANSWER_MAX_S:g} s: {max(late):.2f} s")
    if any(outage.part == "postgres" for outage in story.away) and not story.refusals_s:
        faults.append("nobody was refused while the database was away: it was not away")
    return faults
