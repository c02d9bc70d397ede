"""Sends one submission: tells what became of it, or waits for its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import typer

from cli.client import Client, Json, path
from cli.commands import prices
from cli.commands.groups import summary, wait_for_group
from cli.output.durations import between
from cli.output.printing import Answer, emit, note
from cli.paths import PROGRAM
from core.clock import SystemClock
from core.job_status import FINAL

if TYPE_CHECKING:
    from cli.workdir.upload import Sent


class SendOptions(NamedTuple):
    """How a submission is sent and told."""

    wait: bool
    """Follow the log; the exit code is the job's."""
    yes: bool
    """Any price is agreed to."""
    quiet: bool
    as_json: bool


def send_job(client: Client, body: Json, own: SendOptions, code: Sent | None = None) -> None:
    """Submits a job or an array. `code`: what was sent for it before."""
    if code is not None and own.wait and not own.quiet:
        note(code.words())
    response = prices.send(client, body, own.yes)
    answer, array = client.json(response), "array" in body
    if tenant_id := answer.get("tenant_id"):
        client.speak_for(tenant_id)  # other tenants may have a job of that id
    if response.headers.get("Zen-New-Tenant") == "true":
        note(f"tenant {tenant_id} is new: it has no limits")
    # The answer to a repeat is that of the first time; what became of the job since is not in it.
    repeated = response.headers.get("Zen-Repeat") == "true"
    if repeated:
        answer["message"] = (_existing_array if array else _existing)(client, answer)
    if own.wait and array:
        raise typer.Exit(wait_for_group(client, answer, own.quiet, own.as_json))
    if own.wait:
        raise typer.Exit(_wait(client, answer, own.quiet, own.as_json))
    job_id = answer["job_id"]
    show, follow = f"{PROGRAM} show {job_id}", f"{PROGRAM} logs -f {job_id}"
    next_steps = f"  follow its log: {follow}   its timeline: {show}"
    if array:
        next_steps = f"  look: {show}   logs: {follow}   stop: {PROGRAM} stop {job_id}"
    lines = [job_id, f"  {answer.get('message', 'submitted')}", next_steps]
    if code is not None:
        lines.insert(1, f"  {code.words()}")
        answer["workdir"] = code.json()
    json = {**answer, "repeated": True} if repeated else answer
    Answer(json, lines[:1] if own.quiet else lines).print(own.as_json)


def _existing(client: Client, answer: Json) -> str:
    """What became of the job that was submitted before."""
    job = client.get(path("jobs", answer["job_id"]), {"user_id": answer["user_id"]})
    ago = between(job["submitted_at"], SystemClock().now())
    reason = f" ({job['reason']})" if job["status"] in FINAL and job["reason"] else ""
    return (
        f"nothing new was submitted: this job came {ago} ago and is {job['status']}{reason}; "
        "another id, or none, makes another job"
    )


def _existing_array(client: Client, answer: Json) -> str:
    """How the jobs of the array are that was submitted before."""
    counts = summary(client, answer["job_id"], answer["user_id"])["message"]
    return (
        f"nothing new was submitted: this array is there already, with {counts}; another id, or "
        "none, makes another array"
    )


def _wait(client: Client, answer: Json, quiet: bool, as_json: bool) -> int:
    """Follows the job; its log owns stdout, unless the JSON answer does."""
    from cli.output.follow import Follower, ending, exit_code, printer

    job_id = answer["job_id"]
    if not quiet:
        note(f"job {job_id}: {answer.get('message', 'submitted')}")
    follower = Follower(client, job_id, answer.get("user_id"))
    try:
        ended = follower.follow(printer(to_stderr=as_json), quiet=quiet)
    except KeyboardInterrupt:
        follow, stop = f"{PROGRAM} logs -f {job_id}", f"{PROGRAM} stop {job_id}"
        note(f"job {job_id} goes on; follow it: {follow}, stop it: {stop}")
        return 130
    if as_json:
        emit(ended)
    code = exit_code(ended)
    if code != 0 or not quiet:
        note(ending(ended))
    return code
