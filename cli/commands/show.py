"""zen show: one job, whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated

import typer

from cli.client import Client, Json, Refused, path
from cli.commands.jobs import progress, run_time, short_vm, vm_of, vms_of, why
from cli.options import JobOrArray, User, command
from cli.output.client_words import in_words_of, state_in
from cli.output.durations import between, clock_time, moment, short
from cli.output.etas import eta_words, run_words
from cli.output.follow import events_of
from cli.output.printing import Answer, Printable, clean, fitted, heading, money, price, status_text
from cli.output.tables import Fitted
from core.clock import SystemClock
from core.job_fields import SPEC_FIELDS

SINGULAR = {"failures": "failure", "losses": "loss", "preemptions": "preemption"}
_MET = {
    "pending_reason": "pending",
    "vm_request": "asked",
    "refusal": "refused",
    "request_cancelled": "cancelled",
    "not_asked": "not asked",
}
"""Words of the table; the others are as the API says them."""
Said = Callable[[str], str]
"""A status, in the words of the command line that was called."""


@command
def show(
    client: Client,
    job: JobOrArray,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Jobs of an array.")] = 50,
    offset: Annotated[
        int, typer.Option("--offset", min=0, help="Of an array: so many are passed over.")
    ] = 0,
    words: Annotated[str, typer.Option("--words", hidden=True)] = "",
    user: User = None,
) -> Answer:
    """One job: where it is and why, its timeline, its attempts, its cost so far.

    Of an array or a group: how its jobs are, counted, and the jobs page by page.

    \b
    Examples:
      zen show train-7
      zen show train-7 --json
      zen show sweep --offset 50
    """
    owner = {"user_id": user}
    try:
        found = client.get(path("jobs", job), owner)
    except Refused as error:
        from cli.commands.arrays import group_of, show_array

        return show_array(client, group_of(client, job, user, error), limit, offset)
    more = {
        "events": events_of(client, job, user),
        "attempts": client.get(path("jobs", job, "attempts"), owner)["attempts"],
        "waits": client.get(path("jobs", job, "waits"), owner)["waits"],
    }
    if found.get("replicas", 1) > 1:
        more["members"] = client.get(path("jobs", job, "members"), owner)["jobs"]
    if words:
        found |= in_words_of(found, words)
    said: Said = (lambda status: state_in(status, words)) if words else str
    return Answer(found | more, _text(found | more, said))


def _text(job: Json, said: Said) -> Iterator[Printable]:
    now, members = SystemClock().now(), job.get("members")
    if members:
        job["cost_usd"] = sum(member["cost_usd"] for member in members)
        job["cost_kinds"] = _summed(member["cost_kinds"] for member in members)
    yield from _header(job, now, said)
    if members:
        yield from (heading("\nMembers"), _members_table(members, now, said))
    if job["attempts"]:
        yield from (heading("\nAttempts"), _attempts_table(job["attempts"], now))
    if job["waits"]:
        yield from (heading("\nWaits"), _waits_table(job["waits"], now))
    yield from (heading("\nTimeline"), _events_table(job["events"], now, said))


def _header(job: Json, now: datetime, said: Said) -> list[str]:
    vm, submitted = vm_of(job), job["submitted_at"]
    gpus = f", GPUs {vm['slots']}" if vm and vm["slots"] else ""
    place = f"{vm['name']} in {vm['zone'] or vm['region']}{gpus}" if vm else ""
    counts = job.get("retries") or {}
    again = ", ".join(_counted(n, what) for what, n in counts.items() if n and what != "retries")
    lines = {
        "job": f"{job['job_id']}" + (f" ({job['name']})" if job.get("name") else ""),
        "status": said(job["status"]),
        "why": why(job),
        "eta": eta_words(job, now),
        "will run": run_words(job),
        "image": str(job.get("image") or ""),
        "command": " ".join(job.get("command") or []),
        "asked for": _asked(job),
        "cluster": _cluster(job),
        "owner": f"user {job['user_id']}, tenant {job['tenant_id']}, priority {job['priority']}",
        **{field.line: _value(job.get(field.name)) for field in SPEC_FIELDS if field.line},
        "VM": place,
        "progress": progress(job),
        "checkpoint": f"step {job['checkpoint_step']:g}" if job.get("checkpoint_step") else "",
        "submitted": f"{clock_time(submitted, now)} ({between(submitted, now)} ago)",
        "run time": run_time(job, now) if job.get("started_at") else "",
        "wanted by": _wanted(job, now),
        "time limit": _limit(job, now, said),
        "starvation": _bound(job, now),
        "attempt": f"{job['attempt']}" + (f" ({again})" if again else ""),
        "next attempt": _next_attempt(job, now),
        "exit code": "" if job.get("exit_code") is None else str(job["exit_code"]),
        "cost so far": _cost(job),
    }
    return [f"{name + ':':<14}{clean(value)}" for name, value in lines.items() if value]


def _value(value: object) -> str:
    """A field of the submission; empty: nothing was said."""
    if isinstance(value, dict):
        return ", ".join(f"{key}={word}" for key, word in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value or "")


def _counted(number: int, what: str) -> str:
    """ "1 loss", "2 losses": the API's names of the counts are plurals."""
    return f"{number} {SINGULAR.get(what, what) if number == 1 else what}"


def _asked(job: Json) -> str:
    count, one = job["gpu_count"], job.get("gpu_type")
    kinds = job.get("gpu_types", [one] if one else [])
    each = f"{count} GPU{'s' if count > 1 else ''} of any type" if count else "no GPUs"
    if count and kinds:
        each = f"{count} × {' or '.join(kinds)}"
    vms = vms_of(job)
    cap_usd, spot = job.get("max_usd_per_hour"), job.get("spot")
    words = [
        f"{each} on each of {vms} VMs" if vms != "1" else each,
        f"in {' or '.join(job['regions'])}" if job.get("regions") else "",
        f"not in {', '.join(job['regions_denied'])}" if job.get("regions_denied") else "",
        "" if cap_usd is None else f"at most ${cap_usd:g}/h for the VM",
        "spot" if spot else "",
        "larger VMs allowed" if job.get("allow_larger") else "",
    ]
    return ", ".join(word for word in words if word)


def _cluster(job: Json) -> str:
    """Its name, whether its VMs are spot VMs, and what one costs."""
    on_spot, least, most = (job.get(k) for k in ("on_spot", "usd_per_hour", "usd_per_hour_max"))
    if on_spot is None or least is None or most is None:
        return str(job["cluster"])
    price = f"${least:.2f}/h" if least == most else f"${least:.2f} to ${most:.2f}/h by region"
    each = " for each VM" if vms_of(job) != "1" else ""
    return f"{job['cluster']} ({'spot' if on_spot else 'standard'} VMs, {price}{each})"


def _summed(costs: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for kinds in costs:
        for kind, usd in kinds.items():
            found[kind] = found.get(kind, 0.0) + usd
    return found


def _cost(job: Json) -> str:
    """All that it caused, and on what it was spent."""
    whole, kinds = job.get("cost_usd"), job.get("cost_kinds") or {}
    digits = 2 if (whole or 0) >= 1 else 4
    parts = [
        f"{'work' if kind == 'useful' else kind} ${usd:.{digits}f}"
        for kind, usd in kinds.items()
        if round(usd, digits)
    ]
    return f"{money(whole)}: {', '.join(parts)}" if len(parts) > 1 else money(whole)


def _bound(job: Json, now: datetime) -> str:
    at, latest = moment(job.get("due_at")), moment(job.get("starts_by"))
    if at is None:
        return ""
    left_s = (at - now).total_seconds()
    words = "no later job of its tenant and class goes first"
    if left_s > 0:
        words = f"after {short(left_s)} no later job of its tenant and class goes first"
    if latest is None:
        return words
    return f"guaranteed start: within {short((latest - now).total_seconds())}; {words}"


def _wanted(job: Json, now: datetime) -> str:
    """The owner's deadline, and whether it was or can be kept."""
    at = moment(job.get("deadline"))
    if at is None:
        return ""
    ended = moment(job.get("ended_at"))
    left_s = (at - (ended or now)).total_seconds()
    when = "before" if left_s >= 0 else "after"
    if ended is not None:
        return f"{job['deadline']} (ended {short(abs(left_s))} {when} it)"
    return f"{job['deadline']} ({f'in {short(left_s)}' if left_s >= 0 else 'it has passed'})"


def _next_attempt(job: Json, now: datetime) -> str:
    """Of a job whose last attempt failed: which one comes, and when."""
    at = moment(job.get("retry_at"))
    counts = job.get("retries") or {}
    if at is None or not counts:
        return ""
    number, most = counts["failures"] + 1, counts["retries"] + 1
    left_s = max(0.0, (at - now).total_seconds())
    return f"{number} of {most}, at {clock_time(job['retry_at'], now)} (in {short(left_s)})"


def _limit(job: Json, now: datetime, said: Said) -> str:
    """When this status ends by itself: nothing stays where it is for ever."""
    at = moment(job.get("deadline_at"))
    if at is None:
        return ""
    ends = {"RUNNING": "its max runtime", "QUEUED": "it gives up waiting"}
    ends["PROVISIONING"] = ends["QUEUED"]
    what = ends.get(job["status"], f"no longer {said(job['status'])}")
    return f"in {short((at - now).total_seconds())} ({what})"


def _events_table(events: list[Json], now: datetime, said: Said) -> Fitted:
    rows = [
        [
            clock_time(event["at"], now),
            event["event"],
            status_text(said(event["to"])),
            event["attempt"] or "",
            event.get("region"),
            short_vm(event.get("vm_name")),
            event["reason"],
        ]
        for event in events
    ]
    headings = ("AT", "EVENT", "STATUS", "ATTEMPT", "REGION", "VM", "REASON")
    return fitted(headings, rows, drop="ATTEMPT REGION VM", below="REASON")


def _waits_table(waits: list[Json], now: datetime) -> Fitted:
    """What it met while it waited: yesterday's reasons too."""
    rows = [
        [
            clock_time(met["first_at"], now),
            clock_time(met["last_at"], now) if met["last_at"] != met["first_at"] else "",
            met["count"],
            _MET.get(met["kind"], met["kind"]),
            met["region"],
            met["reason"],
        ]
        for met in waits
    ]
    headings = ("FIRST", "LAST", "TIMES", "WHAT", "REGION", "REASON")
    return fitted(headings, rows, right="TIMES", below="REASON")


def _members_table(members: list[Json], now: datetime, said: Said) -> Fitted:
    rows = [
        [
            member["rank"],
            member["job_id"],
            status_text(said(member["status"])),
            vm_of(member).get("region"),
            short_vm(vm_of(member).get("name")),
            member["attempt"] or "",
            run_time(member, now),
            why(member),
        ]
        for member in members
    ]
    headings = ("RANK", "JOB", "STATUS", "REGION", "VM", "ATTEMPT", "RUN", "WHY")
    return fitted(headings, rows, right="RUN", drop="ATTEMPT RUN VM", below="WHY")


def _attempts_table(attempts: list[Json], now: datetime) -> Fitted:
    rows = [
        [
            attempt["attempt"],
            attempt["vm_name"],
            attempt["zone"] or attempt["region"],
            ",".join(str(slot) for slot in attempt["slots"]),
            clock_time(attempt["assigned_at"], now),
            between(attempt["assigned_at"], moment(attempt.get("ended_at")) or now),
            price(attempt["usd_per_hour"]) + "/h",
            attempt.get("exit_code"),
            attempt.get("outcome") or "goes on",
        ]
        for attempt in attempts
    ]
    headings = ("ATTEMPT", "VM", "ZONE", "GPUS", "ASSIGNED", "HELD", "PRICE", "EXIT", "OUTCOME")
    return fitted(headings, rows, drop="GPUS PRICE ZONE ASSIGNED")
