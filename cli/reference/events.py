"""The page of what can happen to a job and to a VM, from their tables of transitions."""

from __future__ import annotations

from collections.abc import Mapping

from cli.reference.markdown import MADE_BY, cell, code, meanings, table
from core.job import DEADLINE_EVENT, TRANSITIONS, JobEvent, JobStatus
from core.vm import VM_BEGINNINGS, VM_TRANSITIONS, VmEvent, VmState
from core.waits import WaitKind

_HEAD = f"""\
# Events

{MADE_BY}
What stands on the timeline of a job: `zen show JOB`, `GET /api/v1/jobs/{{job_id}}/events`. Each
entry has its time, the event, the status before and after, the attempt, the VM and a
reason in words. How the states belong together: [State machines](../internals/state-machines.md).
"""
_BY_ITSELF = "The clock does this to a job that stays in a status for too long:"
_TWO = (
    "Of two statuses the first holds while the retry limit (or the reason of the stop) allows it, "
    "the second afterwards."
)
_NOTES: Mapping[str, str] = {
    "spot_notice": "The cloud will take the VM back soon: the job is told to save and exit.",
    "room_made": "Other jobs are preempted for this one; the reason says which and until when.",
    "resized": "An elastic job grew or shrank.",
    "wf-…": "A progress note of a v1 worker, as the worker wrote it.",
}


def page() -> str:
    """The whole page."""
    statuses, events, vms = meanings(JobStatus), meanings(JobEvent), meanings(VmState)
    return "\n".join(
        [
            _HEAD,
            "## Statuses of a job\n",
            table(("Status", "Meaning"), ((code(s), statuses[s.name]) for s in JobStatus)),
            "## Events of a job\n",
            table(
                ("Event", "Meaning", "From → to"),
                ((code(e), cell(events[e.name]), _steps(e)) for e in JobEvent),
            ),
            f"{_TWO}\n",
            f"{_BY_ITSELF}\n",
            table(("Status", "Event"), ((code(s), code(e)) for s, e in DEADLINE_EVENT.items())),
            "Entries that change no status:\n",
            table(("Entry", "Meaning"), ((code(n), cell(words)) for n, words in _NOTES.items())),
            "## What is noted while a job waits\n",
            table(
                ("Kind", "Meaning"),
                ((code(k), cell(meanings(WaitKind)[k.name])) for k in WaitKind),
            ),
            "## States of a VM\n",
            table(("State", "Meaning"), ((code(v), cell(vms[v.name])) for v in VmState)),
            "## Events of a VM\n",
            table(
                ("Event", "Meaning", "From → to"),
                ((code(e), cell(meanings(VmEvent)[e.name]), _vm_steps(e)) for e in VmEvent),
            ),
        ]
    )


def _vm_steps(event: VmEvent) -> str:
    if event in VM_BEGINNINGS:
        return f"→ {VM_BEGINNINGS[event]}"
    steps = [f"{old} → {new}" for (old, what), new in VM_TRANSITIONS.items() if what is event]
    return "<br>".join(steps)


def _steps(event: JobEvent) -> str:
    steps = [
        f"{status} → {' or '.join(targets)}"
        for (status, happened), targets in TRANSITIONS.items()
        if happened is event
    ]
    return "<br>".join(steps) if steps else "→ QUEUED"
